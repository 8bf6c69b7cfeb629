define('buffer', (require, exports, module) => {
  const names = { 'utf8': 'utf8', 'utf-8': 'utf8', 'hex': 'hex', 'base64': 'base64', 'base64url': 'base64url', 'ascii': 'ascii', 'latin1': 'latin1', 'binary': 'latin1',
    'ucs2': 'utf16le', 'ucs-2': 'utf16le', 'utf16le': 'utf16le', 'utf-16le': 'utf16le' };
  const encodingOf = (e) => {
    if (e === undefined || e === null || e === '') return 'utf8';
    const n = names[String(e).toLowerCase()];
    if (n === undefined) throw nodeError(TypeError, 'ERR_UNKNOWN_ENCODING', `Unknown encoding: ${e}`);
    return n;
  };
  const encode = (s, enc) => enc === 'utf16le' ? utf16(s) : host.bytes(s, enc);
  const utf16 = (s) => { const u = new Uint16Array(s.length); for (let i = 0; i < s.length; i++) u[i] = s.charCodeAt(i); return u.buffer; };
  const decode = (b, enc) => {
    if (b.byteLength === 0) return '';
    if (enc === 'utf16le') { let s = ''; for (let i = 0; i + 1 < b.byteLength; i += 2) s += String.fromCharCode(b[i] | b[i + 1] << 8); return s; }
    return host.text(bytesOf(b), enc);
  };
  const make = (ab, off, len) => { const b = new Uint8Array(ab, off, len); Object.setPrototypeOf(b, Buffer.prototype); return b; };
  function fromValue(v, enc, len) {
    if (typeof v === 'string') return make(encode(v, encodingOf(enc)));
    if (v instanceof ArrayBuffer || v instanceof SharedArrayBuffer) return make(v, enc, len);
    if (ArrayBuffer.isView(v)) { const b = make(new ArrayBuffer(v.length ?? v.byteLength)); b.set(v); return b; }
    if (v && typeof v === 'object') {
      if (v.type === 'Buffer' && Array.isArray(v.data)) return fromValue(v.data);
      if (typeof v.length === 'number') { const b = make(new ArrayBuffer(v.length)); for (let i = 0; i < v.length; i++) b[i] = v[i]; return b; }
      const p = v.valueOf?.();
      if (p !== v && p !== null && p !== undefined) return fromValue(p, enc, len);
      if (typeof v[Symbol.toPrimitive] === 'function') return fromValue(v[Symbol.toPrimitive]('string'), enc, len);
    }
    throw nodeError(TypeError, 'ERR_INVALID_ARG_TYPE', `The first argument must be of type string or an instance of Buffer, ArrayBuffer, or Array or an Array-like Object.${typeError('x', '', v).message.replace(/^[^]*?must be \./, '')}`);
  }
  function Buffer(v, enc, len) { return typeof v === 'number' ? Buffer.alloc(v) : fromValue(v, enc, len); }
  Object.setPrototypeOf(Buffer, Uint8Array);
  Buffer.prototype = Object.create(Uint8Array.prototype, { constructor: { value: Buffer, writable: true, configurable: true } });
  Object.assign(Buffer, {
    poolSize: 8192,
    from: (v, enc, len) => fromValue(v, enc, len),
    of: (...a) => fromValue(a),
    alloc(n, fill, enc) {
      if (typeof n !== 'number') throw typeError('size', 'of type number', n);
      if (!(n >= 0 && n <= 2 ** 32)) throw nodeError(RangeError, 'ERR_OUT_OF_RANGE', `The value of "size" is out of range. It must be >= 0 && <= 9007199254740991. Received ${n}`);
      const b = make(new ArrayBuffer(n));
      if (fill !== undefined && fill !== 0) b.fill(fill, enc);
      return b;
    },
    allocUnsafe: (n) => Buffer.alloc(n), allocUnsafeSlow: (n) => Buffer.alloc(n),
    byteLength: (v, enc) => typeof v === 'string' ? encode(v, encodingOf(enc)).byteLength : v.byteLength,
    isBuffer: (b) => b instanceof Buffer, isEncoding: (e) => typeof e === 'string' && names[e.toLowerCase()] !== undefined,
    concat(list, total) {
      if (!Array.isArray(list)) throw typeError('list', 'an instance of Array', list);
      total ??= list.reduce((n, b) => n + b.length, 0);
      const out = Buffer.alloc(total);
      let at = 0;
      for (const b of list) { if (at >= total) break; const part = at + b.length > total ? b.subarray(0, total - at) : b; out.set(part, at); at += part.length; }
      return out;
    },
    compare(a, b) { const n = Math.min(a.length, b.length); for (let i = 0; i < n; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1; return a.length < b.length ? -1 : a.length > b.length ? 1 : 0; },
  });
  const view = (b) => new DataView(b.buffer, b.byteOffset, b.byteLength);
  const range = (name, v, lo, hi) => nodeError(RangeError, 'ERR_OUT_OF_RANGE', `The value of "${name}" is out of range. It must be >= ${lo} and <= ${hi}. Received ${v}`);
  const at = (b, off, n) => { off ??= 0; if (!(Number.isInteger(off) && off >= 0 && off + n <= b.length)) throw b.length < n ? nodeError(RangeError, 'ERR_BUFFER_OUT_OF_BOUNDS', 'Attempt to access memory outside buffer bounds') : range('offset', off, 0, b.length - n); return off; };
  const methods = {
    toString(enc, from = 0, to = this.length) { from = Math.max(0, from | 0); to = Math.min(this.length, to); return to <= from ? '' : decode(from === 0 && to === this.length ? this : this.subarray(from, to), encodingOf(enc)); },
    toLocaleString(...a) { return this.toString(...a); },
    toJSON() { return { type: 'Buffer', data: Array.from(this) }; },
    equals(o) { return this === o || Buffer.compare(this, o) === 0; },
    compare(o, ts = 0, te = o.length, ss = 0, se = this.length) { return Buffer.compare(this.subarray(ss, se), o.subarray(ts, te)); },
    write(s, off, len, enc) {
      if (typeof off === 'string') { enc = off; off = 0; len = this.length; } else if (typeof len === 'string') { enc = len; len = undefined; }
      off ??= 0;
      let b = new Uint8Array(encode(s, encodingOf(enc)));
      let n = Math.min(b.length, len ?? Infinity, this.length - off);
      if (encodingOf(enc) === 'utf8') while (n > 0 && n < b.length && (b[n] & 0xc0) === 0x80) n--;
      this.set(b.subarray(0, n), off);
      return n;
    },
    copy(to, ts = 0, ss = 0, se = this.length) { const n = Math.max(0, Math.min(se - ss, to.length - ts)); to.set(this.subarray(ss, ss + n), ts); return n; },
    slice(a, b) { return this.subarray(a, b); },
    subarray(a, b) { const u = Uint8Array.prototype.subarray.call(new Uint8Array(this.buffer, this.byteOffset, this.length), a, b); Object.setPrototypeOf(u, Buffer.prototype); return u; },
    fill(v, a, b, enc) {
      if (typeof a === 'string') { enc = a; a = 0; b = this.length; } else if (typeof b === 'string') { enc = b; b = this.length; }
      a ??= 0; b ??= this.length;
      if (typeof v === 'string') v = new Uint8Array(encode(v, encodingOf(enc)));
      if (typeof v === 'number' || typeof v === 'boolean') return Uint8Array.prototype.fill.call(this, v & 255, a, b);
      if (v.length === 0) return Uint8Array.prototype.fill.call(this, 0, a, b);
      for (let i = a; i < b; i++) this[i] = v[(i - a) % v.length];
      return this;
    },
    indexOf(v, from, enc) { return find(this, v, from, enc, 1); },
    lastIndexOf(v, from, enc) { return find(this, v, from, enc, -1); },
    includes(v, from, enc) { return this.indexOf(v, from, enc) !== -1; },
    swap16() { for (let i = 0; i + 1 < this.length; i += 2) [this[i], this[i + 1]] = [this[i + 1], this[i]]; return this; },
    readUIntBE(o, n) { o = at(this, o, n); let v = 0; for (let i = 0; i < n; i++) v = v * 256 + this[o + i]; return v; },
    readUIntLE(o, n) { o = at(this, o, n); let v = 0; for (let i = n - 1; i >= 0; i--) v = v * 256 + this[o + i]; return v; },
    readIntBE(o, n) { const v = this.readUIntBE(o, n); return v >= 2 ** (8 * n - 1) ? v - 2 ** (8 * n) : v; },
    readIntLE(o, n) { const v = this.readUIntLE(o, n); return v >= 2 ** (8 * n - 1) ? v - 2 ** (8 * n) : v; },
    writeUIntBE(v, o, n) { o = at(this, o, n); for (let i = n - 1; i >= 0; i--) { this[o + i] = v & 255; v = Math.floor(v / 256); } return o + n; },
    writeUIntLE(v, o, n) { o = at(this, o, n); for (let i = 0; i < n; i++) { this[o + i] = v & 255; v = Math.floor(v / 256); } return o + n; },
  };
  const find = (b, v, from, enc, dir) => {
    if (typeof from === 'string') { enc = from; from = undefined; }
    if (typeof v === 'number') return dir > 0 ? Uint8Array.prototype.indexOf.call(b, v & 255, from) : Uint8Array.prototype.lastIndexOf.call(b, v & 255, from ?? b.length - 1);
    const n = typeof v === 'string' ? new Uint8Array(encode(v, encodingOf(enc))) : v;
    let i = from ?? (dir > 0 ? 0 : b.length - n.length);
    if (i < 0) i += b.length;
    if (dir < 0) i = Math.min(i, b.length - n.length);
    outer: for (; i >= 0 && i + n.length <= b.length; i += dir) { for (let j = 0; j < n.length; j++) if (b[i + j] !== n[j]) continue outer; return i; }
    return -1;
  };
  const bounds = { Int8: [-128, 127], Uint8: [0, 255], Int16: [-32768, 32767], Uint16: [0, 65535], Int32: [-2147483648, 2147483647], Uint32: [0, 4294967295] };
  for (const [name, method, n] of [['Int8', 'Int8', 1], ['UInt8', 'Uint8', 1], ['Int16', 'Int16', 2], ['UInt16', 'Uint16', 2], ['Int32', 'Int32', 4], ['UInt32', 'Uint32', 4],
    ['Float', 'Float32', 4], ['Double', 'Float64', 8], ['BigInt64', 'BigInt64', 8], ['BigUInt64', 'BigUint64', 8]]) {
    for (const end of n === 1 ? [''] : ['LE', 'BE']) {
      const little = end === 'LE';
      methods[`read${name}${end}`] = function (o) { o = at(this, o, n); return view(this)[`get${method}`](o, little); };
      methods[`write${name}${end}`] = function (v, o) {
        o = at(this, o, n);
        const lim = bounds[method];
        if (lim && (v < lim[0] || v > lim[1])) throw range('value', v, lim[0], lim[1]);
        view(this)[`set${method}`](o, v, little);
        return o + n;
      };
      for (const k of [`read${name}${end}`, `write${name}${end}`]) if (k.includes('UInt')) methods[k.replace('UInt', 'Uint')] = methods[k];
    }
  }
  for (const [k, f] of Object.entries(methods)) hideProp(Buffer.prototype, k, f);
  hideProp(Buffer.prototype, Symbol.for('nodejs.util.inspect.custom'), function (depth, ctx) {
    const hex = Array.from(Uint8Array.prototype.subarray.call(new Uint8Array(this.buffer, this.byteOffset, this.length), 0, 50), (x) => x.toString(16).padStart(2, '0')).join(' ');
    const rest = this.length - 50;
    return `<${this.constructor.name} ${hex}${rest > 0 ? ` ... ${rest} more byte${rest > 1 ? 's' : ''}` : ''}>`;
  });
  const bad = () => { return new DOMException('Invalid character', 'InvalidCharacterError'); };
  const toB64 = (s) => { s = String(s); if (/[^\0-\xff]/.test(s)) throw bad(); return host.text(host.bytes(s, 'latin1'), 'base64'); };
  const fromB64 = (s) => { s = String(s).replace(/[\t\n\f\r ]/g, ''); if (s.length % 4 === 0) s = s.replace(/==?$/, ''); if (s.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(s)) throw bad(); return host.text(host.bytes(s, 'base64'), 'latin1'); };
  class TextEncoder {
    get encoding() { return 'utf-8'; }
    encode(s = '') { return new Uint8Array(host.bytes(String(s), 'utf8')); }
    encodeInto(s, u) { const b = this.encode(s); let n = Math.min(b.length, u.length); while (n > 0 && n < b.length && (b[n] & 0xc0) === 0x80) n--; u.set(b.subarray(0, n)); return { read: decode(b.subarray(0, n), 'utf8').length, written: n }; }
  }
  class Decoder {
    #left = null;
    constructor(enc = 'utf-8', o = {}) {
      const e = String(enc).toLowerCase();
      this.encoding = /^utf-?8$|^unicode-1-1-utf-8$/.test(e) ? 'utf-8' : /^(utf-?16(le)?|ucs-2)$/.test(e) ? 'utf-16le' : /^(latin1|ascii|iso-8859-1|windows-1252|us-ascii)$/.test(e) ? 'windows-1252' : undefined;
      if (!this.encoding) throw nodeError(RangeError, 'ERR_ENCODING_NOT_SUPPORTED', `The "${enc}" encoding is not supported`);
      this.fatal = !!o.fatal; this.ignoreBOM = !!o.ignoreBOM;
    }
    decode(v, o = {}) {
      let b = v === undefined ? new Uint8Array() : v instanceof ArrayBuffer ? new Uint8Array(v) : new Uint8Array(v.buffer, v.byteOffset, v.byteLength);
      if (this.#left) { const j = new Uint8Array(this.#left.length + b.length); j.set(this.#left); j.set(b, this.#left.length); b = j; this.#left = null; }
      if (this.encoding !== 'utf-8') return decode(b, this.encoding === 'utf-16le' ? 'utf16le' : 'latin1');
      if (o.stream) { const cut = incomplete(b); if (cut < b.length) { this.#left = b.slice(cut); b = b.subarray(0, cut); } }
      let s = decode(b, 'utf8');
      if (this.fatal && s.includes('\ufffd') && host.bytes(s, 'utf8').byteLength !== b.byteLength) throw nodeError(TypeError, 'ERR_ENCODING_INVALID_ENCODED_DATA', `The encoded data was not valid for encoding utf-8`);
      if (!this.ignoreBOM && s[0] === '\ufeff') s = s.slice(1);
      return s;
    }
  }
  hideProp(Decoder, 'name', 'TextDecoder');
  // incomplete is where a character begins that is not all there.
  const incomplete = (b) => {
    for (let i = 1; i <= Math.min(3, b.length); i++) {
      const c = b[b.length - i];
      if ((c & 0xc0) === 0x80) continue;
      const need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
      return need > i ? b.length - i : b.length;
    }
    return b.length;
  };
  class StringDecoder {
    constructor(enc) { this.encoding = encodingOf(enc); this.left = Buffer.alloc(0); }
    write(b) {
      if (typeof b === 'string') return b;
      b = this.left.length ? Buffer.concat([this.left, b]) : b;
      let cut = b.length;
      if (this.encoding === 'utf8') cut = incomplete(b);
      else if (this.encoding === 'utf16le') cut -= cut % 2;
      else if (this.encoding === 'base64') cut -= cut % 3;
      this.left = Buffer.from(b.subarray(cut));
      return decode(b.subarray(0, cut), this.encoding);
    }
    end(b) { const s = b ? this.write(b) : ''; const l = this.left; this.left = Buffer.alloc(0); return s + decode(l, this.encoding); }
  }
  define('string_decoder', (r, e, m) => { m.exports = { StringDecoder }; });
  Object.assign(exports, { Buffer, kMaxLength: 2 ** 32, constants: { MAX_LENGTH: 2 ** 32, MAX_STRING_LENGTH: 536870888 }, btoa: toB64, atob: fromB64, TextEncoder, TextDecoder: Decoder, make, encodingOf, isUtf8: (b) => !utf8(b).includes('\ufffd'), isAscii: (b) => b.every((x) => x < 128) });
  for (const k of ['make', 'encodingOf', 'TextEncoder', 'TextDecoder']) Object.defineProperty(exports, k, { enumerable: false });
});
