// Streams: the parts of node's that scripts use, in a simpler make.
define('stream', (require, exports, module) => {
  const EventEmitter = require('events');
  const { Buffer } = require('buffer');
  const { StringDecoder } = require('string_decoder');
  const tick = (fn, ...a) => process.nextTick(fn, ...a);

  class Stream extends EventEmitter {
    pipe(to, o = {}) {
      this.on('data', (c) => { if (to.write(c) === false && this.pause) { this.pause(); to.once('drain', () => this.resume()); } });
      if (o.end !== false && to !== process.stdout && to !== process.stderr) this.on('end', () => to.end());
      to.emit('pipe', this);
      return to;
    }
  }
  class Readable extends Stream {
    constructor(o = {}) {
      super();
      this._r = { buf: [], size: 0, flowing: null, ended: false, done: false, reading: false, hwm: o.highWaterMark ?? (o.objectMode || o.readableObjectMode ? 16 : 65536), object: !!(o.objectMode || o.readableObjectMode), dec: null, scheduled: false };
      this.readable = true; this.destroyed = false; this.readableEnded = false; this.errored = null; this.closed = false;
      if (o.encoding) this.setEncoding(o.encoding);
      if (o.read) this._read = o.read;
      if (o.destroy) this._destroy = o.destroy;
      if (o.construct) { this._r.reading = true; tick(() => o.construct.call(this, (e) => { this._r.reading = false; if (e) this.destroy(e); else this._go(); })); }
    }
    get readableFlowing() { return this._r.flowing; }
    get readableLength() { return this._r.size; }
    get readableHighWaterMark() { return this._r.hwm; }
    get readableObjectMode() { return this._r.object; }
    get readableEncoding() { return this._r.dec?.encoding ?? null; }
    _read() { throw nodeError(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _read() method is not implemented'); }
    _destroy(e, cb) { cb(e); }
    setEncoding(e) { this._r.dec = new StringDecoder(e); return this; }
    isPaused() { return this._r.flowing === false; }
    push(c, enc) {
      const r = this._r;
      r.reading = false;
      if (c === null) { r.ended = true; const rest = r.dec?.end(); if (rest) { r.buf.push(rest); r.size += rest.length; } this._go(); return false; }
      if (!r.object) {
        if (typeof c === 'string') c = r.dec && (!enc || enc === r.dec.encoding) ? c : Buffer.from(c, enc);
        else if (!(c instanceof Buffer)) c = Buffer.from(c);
        if (r.dec && typeof c !== 'string') c = r.dec.write(c);
        if (c.length === 0) { this._go(); return true; }
      }
      r.buf.push(c);
      r.size += r.object ? 1 : c.length;
      this._go();
      return r.size < r.hwm;
    }
    unshift(c) { if (typeof c === 'string' && !this._r.dec) c = Buffer.from(c); this._r.buf.unshift(c); this._r.size += this._r.object ? 1 : c.length; }
    // _go moves things on: more is read, what is there is handed out.
    _go() { const r = this._r; if (r.scheduled || this.destroyed) return; r.scheduled = true; tick(() => { r.scheduled = false; this._turn(); }); }
    _turn() {
      const r = this._r;
      if (this.destroyed) return;
      if (r.flowing) {
        while (r.flowing && r.buf.length && !this.destroyed) { const c = r.buf.shift(); r.size -= r.object ? 1 : c.length; this.emit('data', c); }
      } else if (r.wants && (r.buf.length || r.ended)) this.emit('readable');
      if (r.ended && r.buf.length === 0) { if (!r.done && (r.flowing || r.wants || r.drained)) { r.done = true; tick(() => { if (this.destroyed && this.errored) return; this.readable = false; this.readableEnded = true; this.emit('end'); if (this.autoDestroy !== false && (this.writable === undefined || this.writableFinished)) this.destroy(); }); } return; }
      if (!r.ended && !r.reading && (r.flowing || r.wants) && r.size < r.hwm) { r.reading = true; try { this._read(r.hwm); } catch (e) { this.destroy(e); } }
    }
    read(n) {
      const r = this._r;
      if (n === 0) { this._go(); return null; }
      if (r.buf.length === 0) { r.wants = r.wants ?? false; if (r.ended) { r.drained = true; } if (!r.wants && !r.flowing) { r.wants = true; } this._go(); return null; }
      let out;
      if (r.object) out = r.buf.shift(), r.size--;
      else {
        const all = typeof r.buf[0] === 'string' ? r.buf.join('') : Buffer.concat(r.buf);
        if (n !== undefined && n < all.length) { out = all.slice(0, n); r.buf = [all.slice(n)]; } else if (n !== undefined && n > all.length && !r.ended) { r.buf = [all]; this._go(); return null; } else { out = all; r.buf = []; }
        r.size = r.buf.length ? r.buf[0].length : 0;
      }
      if (r.ended && r.buf.length === 0) r.drained = true;
      this.emit('data', out);
      this._go();
      return out;
    }
    on(type, fn) {
      super.on(type, fn);
      if (type === 'data' && this._r.flowing !== false && !this._r.wants) this.resume();
      if (type === 'readable') { this._r.wants = true; this._r.flowing = this._r.flowing ? false : this._r.flowing; this._go(); }
      return this;
    }
    addListener(t, f) { return this.on(t, f); }
    resume() { this._r.flowing = true; this._go(); return this; }
    pause() { this._r.flowing = false; return this; }
    destroy(e) {
      if (this.destroyed) return this;
      this.destroyed = true; this.readable = false;
      if (e) this.errored = e;
      this._destroy(e ?? null, (err) => tick(() => { this.closed = true; if (err) this.emit('error', err); this.emit('close'); }));
      return this;
    }
    async* [Symbol.asyncIterator]() {
      const queue = [];
      let wake, ended = false, err = null;
      const poke = () => { wake?.(); wake = undefined; };
      this.on('end', () => { ended = true; poke(); });
      this.on('close', () => { ended = true; poke(); });
      this.on('error', (e) => { err = e; poke(); });
      this.on('data', (c) => { queue.push(c); this.pause(); poke(); });
      try {
        for (;;) {
          if (queue.length) { yield queue.shift(); continue; }
          if (err) throw err;
          if (ended) return;
          const p = new Promise((ok) => { wake = ok; });
          this.resume();
          await p;
        }
      } finally { this.destroy(); }
    }
    async toArray() { const out = []; for await (const x of this) out.push(x); return out; }
    map(fn) { const s = this; return Readable.from((async function* () { for await (const x of s) yield await fn(x); })()); }
    filter(fn) { const s = this; return Readable.from((async function* () { for await (const x of s) if (await fn(x)) yield x; })()); }
    async forEach(fn) { for await (const x of this) await fn(x); }
    async reduce(fn, init) { let a = init; for await (const x of this) a = await fn(a, x); return a; }
    static from(src, o) {
      const it = typeof src === 'string' || src instanceof Uint8Array ? [src][Symbol.iterator]() : (src[Symbol.asyncIterator] ?? src[Symbol.iterator]).call(src);
      return new Readable({ objectMode: true, ...o, async read() { try { const { value, done } = await it.next(); this.push(done ? null : await value); } catch (e) { this.destroy(e); } } });
    }
  }
  const writableMethods = {
    _initWritable(o) {
      this._w = { queue: [], busy: false, ending: false, hwm: o.highWaterMark ?? (o.objectMode || o.writableObjectMode ? 16 : 65536), size: 0, object: !!(o.objectMode || o.writableObjectMode), need: false, enc: o.defaultEncoding ?? 'utf8', decode: o.decodeStrings !== false, corked: 0 };
      this.writable = true; this.writableEnded = false; this.writableFinished = false;
      if (o.write) this._write = o.write;
      if (o.writev) this._writev = o.writev;
      if (o.final) this._final = o.final;
    },
    write(c, enc, cb) {
      if (typeof enc === 'function') { cb = enc; enc = undefined; }
      const w = this._w;
      if (c === null) throw nodeError(TypeError, 'ERR_STREAM_NULL_VALUES', 'May not write null values to stream');
      if (w.ending) { const e = nodeError(Error, 'ERR_STREAM_WRITE_AFTER_END', 'write after end'); tick(() => { cb?.(e); this.destroy(e); }); return false; }
      if (this.destroyed) return false;
      if (!w.object) {
        if (typeof c === 'string') { if (w.decode) { c = Buffer.from(c, enc ?? w.enc); enc = 'buffer'; } } else if (c instanceof Uint8Array) { if (!(c instanceof Buffer)) c = Buffer.from(c); enc = 'buffer'; } else throw typeError('chunk', 'of type string or an instance of Buffer, TypedArray, or DataView', c);
      }
      w.queue.push([c, enc ?? w.enc, cb]);
      w.size += w.object ? 1 : c.length;
      this._pump();
      const ok = w.size < w.hwm;
      if (!ok) w.need = true;
      return ok;
    },
    _pump() {
      const w = this._w;
      if (w.busy || this.destroyed || w.corked) return;
      if (w.queue.length === 0) {
        if (w.ending && !w.finished) {
          w.finished = true;
          const done = (e) => { if (e) { this.destroy(e); return; } tick(() => { this.writableFinished = true; this.emit('finish'); if (this.readable === undefined || this.readableEnded || !this._r) this.destroy(); }); };
          if (this._final) try { this._final(done); } catch (e) { done(e); } else done();
        } else if (w.need && !w.ending) { w.need = false; this.emit('drain'); }
        return;
      }
      const [c, enc, cb] = w.queue.shift();
      w.busy = true;
      let sync = true;
      const done = (e) => {
        w.busy = false;
        w.size -= w.object ? 1 : c.length;
        if (e) { cb?.(e); this.destroy(e); return; }
        if (sync) tick(() => { cb?.(null); this._pump(); }); else { cb?.(null); this._pump(); }
      };
      try { this._write(c, enc, done); } catch (e) { this.destroy(e); }
      sync = false;
    },
    end(c, enc, cb) {
      if (typeof c === 'function') { cb = c; c = undefined; } else if (typeof enc === 'function') { cb = enc; enc = undefined; }
      if (c !== undefined && c !== null) this.write(c, enc);
      if (cb) this.once('finish', cb);
      this._w.ending = true; this.writableEnded = true; this.writable = false;
      this._w.corked = 0;
      this._pump();
      return this;
    },
    cork() { this._w.corked++; }, uncork() { this._w.corked = Math.max(0, this._w.corked - 1); this._pump(); },
    setDefaultEncoding(e) { this._w.enc = e; return this; },
  };
  class Writable extends Stream {
    constructor(o = {}) {
      super();
      this.destroyed = false; this.errored = null; this.closed = false;
      this._initWritable(o);
      if (o.destroy) this._destroy = o.destroy;
      if (o.construct) { this._w.busy = true; tick(() => o.construct.call(this, (e) => { this._w.busy = false; if (e) this.destroy(e); else this._pump(); })); }
    }
    get writableLength() { return this._w.size; }
    get writableHighWaterMark() { return this._w.hwm; }
    get writableNeedDrain() { return this._w.need; }
    _write(c, e, cb) { cb(nodeError(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _write() method is not implemented')); }
    _destroy(e, cb) { cb(e); }
    destroy(e) {
      if (this.destroyed) return this;
      this.destroyed = true; this.writable = false;
      if (e) this.errored = e;
      this._destroy(e ?? null, (err) => tick(() => { this.closed = true; if (err) this.emit('error', err); this.emit('close'); }));
      return this;
    }
  }
  for (const [k, f] of Object.entries(writableMethods)) hideProp(Writable.prototype, k, f);
  class Duplex extends Readable {
    constructor(o = {}) { super(o); this._initWritable(o); }
    get writableLength() { return this._w.size; }
    get writableHighWaterMark() { return this._w.hwm; }
    _write(c, e, cb) { cb(nodeError(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _write() method is not implemented')); }
  }
  for (const [k, f] of Object.entries(writableMethods)) hideProp(Duplex.prototype, k, f);
  class Transform extends Duplex {
    constructor(o = {}) { super(o); if (o.transform) this._transform = o.transform; if (o.flush) this._flush = o.flush; }
    _transform(c, e, cb) { cb(nodeError(Error, 'ERR_METHOD_NOT_IMPLEMENTED', 'The _transform() method is not implemented')); }
    _write(c, enc, cb) { this._transform(c, enc, (e, out) => { if (e) { cb(e); return; } if (out !== undefined && out !== null) this.push(out); cb(); }); }
    _read() { this._r.reading = false; }
    _final(cb) { if (!this._flush) { this.push(null); cb(); return; } this._flush((e, out) => { if (e) { cb(e); return; } if (out !== undefined && out !== null) this.push(out); this.push(null); cb(); }); }
  }
  class PassThrough extends Transform { _transform(c, e, cb) { cb(null, c); } }
  function finished(s, o, cb) {
    if (typeof o === 'function') cb = o;
    let called = false;
    const done = (e) => { if (!called) { called = true; cb.call(s, e); } };
    s.on('error', done);
    if (s._w) s.on('finish', () => { if (!s._r || s.readableEnded) done(); });
    if (s._r) s.on('end', () => { if (!s._w || s.writableFinished) done(); });
    s.on('close', () => done(s.errored ?? undefined));
    return () => { called = true; };
  }
  function pipeline(...list) {
    const cb = typeof list[list.length - 1] === 'function' && list.length > 1 && !list[list.length - 1][Symbol.asyncIterator] && list[list.length - 1].length <= 2 && !/^async|^function\s*\*/.test(String(list[list.length - 1])) ? list.pop() : () => {};
    if (list.length === 1 && Array.isArray(list[0])) list = list[0];
    let cur = list[0], called = false;
    const end = (e, v) => { if (called) return; called = true; if (e) for (const s of list) s.destroy?.(); cb(e, v); };
    if (typeof cur === 'function') cur = Readable.from(cur());
    else if (!cur.pipe) cur = Readable.from(cur);
    cur.on('error', end);
    for (let i = 1; i < list.length; i++) {
      const s = list[i], last = i === list.length - 1;
      if (typeof s === 'function') {
        const r = s(cur);
        if (last && r && typeof r.then === 'function') { r.then((v) => end(undefined, v), end); return cur; }
        cur = Readable.from(r);
        cur.on('error', end);
        if (last) { cur.on('end', () => end()); cur.resume(); }
        continue;
      }
      s.on('error', end);
      cur.pipe(s);
      if (last) { if (s._w && s !== process.stdout) s.on('finish', () => end()); else cur.on('end', () => end()); }
      cur = s;
    }
    return cur;
  }
  Object.assign(Stream, { Stream, Readable, Writable, Duplex, Transform, PassThrough, finished, pipeline });
  Stream.promises = { pipeline: (...l) => new Promise((ok, no) => pipeline(...l, (e, v) => e ? no(e) : ok(v))), finished: (s) => new Promise((ok, no) => finished(s, (e) => e ? no(e) : ok())) };
  module.exports = Stream;
});
define('stream/promises', (require, exports, module) => { module.exports = require('stream').promises; });
define('stream/consumers', (require, exports) => {
  const { Buffer } = require('buffer');
  exports.buffer = async (s) => { const l = []; for await (const c of s) l.push(Buffer.from(c)); return Buffer.concat(l); };
  exports.text = async (s) => (await exports.buffer(s)).toString();
  exports.json = async (s) => JSON.parse(await exports.text(s));
  exports.arrayBuffer = async (s) => bytesOf(await exports.buffer(s));
});
