// The globals that are not JavaScript's own.
define('internal/web', (require, exports) => {
  const { Buffer } = require('buffer');
  class DOMError extends Error { #code; constructor(m = '', name = 'Error') { super(m); const n = typeof name === 'object' ? name.name ?? 'Error' : name; hideProp(this, 'name', n); this.#code = { NotFoundError: 8, InvalidCharacterError: 5, AbortError: 20, TimeoutError: 23, DataCloneError: 25 }[n] ?? 0; } get code() { return this.#code; } }
  class Event { #stop = false; constructor(type, o = {}) { this.type = String(type); this.bubbles = !!o.bubbles; this.cancelable = !!o.cancelable; this.defaultPrevented = false; this.target = null; this.currentTarget = null; this.timeStamp = performance.now(); hideProp(this, '_stopped', () => this.#stop); } preventDefault() { if (this.cancelable) this.defaultPrevented = true; } stopImmediatePropagation() { this.#stop = true; } stopPropagation() {} }
  class CustomEvent extends Event { constructor(t, o = {}) { super(t, o); this.detail = o.detail ?? null; } }
  class EventTarget {
    #l = new Map();
    addEventListener(t, fn, o) { if (!fn) return; const l = this.#l.get(t) ?? []; if (!l.some((x) => x.fn === fn)) l.push({ fn, once: !!o?.once }); this.#l.set(t, l); }
    removeEventListener(t, fn) { this.#l.set(t, (this.#l.get(t) ?? []).filter((x) => x.fn !== fn)); }
    dispatchEvent(e) { e.target = e.currentTarget = this; const on = this[`on${e.type}`]; if (typeof on === 'function') on.call(this, e); for (const x of [...this.#l.get(e.type) ?? []]) { if (e._stopped()) break; if (x.once) this.removeEventListener(e.type, x.fn); if (typeof x.fn === 'function') x.fn.call(this, e); else x.fn.handleEvent(e); } return !e.defaultPrevented; }
  }
  class AbortSignal extends EventTarget {
    aborted = false; reason = undefined; onabort = null;
    throwIfAborted() { if (this.aborted) throw this.reason; }
    static abort(r) { const s = new AbortSignal(); abort(s, r); return s; }
    static timeout(ms) { const s = new AbortSignal(); setTimeout(() => abort(s, new DOMError('The operation was aborted due to timeout', 'TimeoutError')), ms).unref(); return s; }
    static any(l) { const s = new AbortSignal(); for (const x of l) { if (x.aborted) { abort(s, x.reason); break; } x.addEventListener('abort', () => abort(s, x.reason)); } return s; }
  }
  const abort = (s, r) => { if (s.aborted) return; s.aborted = true; s.reason = r ?? new DOMError('This operation was aborted', 'AbortError'); s.dispatchEvent(new Event('abort')); };
  class AbortController { #s = new AbortSignal(); get signal() { return this.#s; } abort(r) { abort(this.#s, r); } }
  class HeaderList {
    #m = new Map();
    constructor(init) { if (init) for (const [k, v] of typeof init[Symbol.iterator] === 'function' ? init : Object.entries(init)) this.append(k, v); }
    append(k, v) { k = String(k).toLowerCase(); v = String(v).trim(); if (!/^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(k)) throw new TypeError(`Headers.append: ${k} is an invalid header name.`); this.#m.set(k, this.#m.has(k) ? `${this.#m.get(k)}, ${v}` : v); }
    set(k, v) { this.delete(k); this.append(k, v); } get(k) { return this.#m.get(String(k).toLowerCase()) ?? null; } has(k) { return this.#m.has(String(k).toLowerCase()); } delete(k) { this.#m.delete(String(k).toLowerCase()); }
    getSetCookie() { return this.#m.has('set-cookie') ? this.#m.get('set-cookie').split(/, (?=[^;]+=)/) : []; }
    *entries() { yield* [...this.#m].sort(([a], [b]) => a < b ? -1 : 1); } *keys() { for (const [k] of this.entries()) yield k; } *values() { for (const [, v] of this.entries()) yield v; } [Symbol.iterator]() { return this.entries(); }
    forEach(fn, self) { for (const [k, v] of this) fn.call(self, v, k, this); }
    get [Symbol.toStringTag]() { return 'Headers'; }
    [Symbol.for('nodejs.util.inspect.custom')](d, o, inspect) { return `Headers ${inspect(Object.fromEntries(this), o)}`; }
  }
  class Blob {
    #b; constructor(parts = [], o = {}) { this.#b = Buffer.concat(parts.map((p) => typeof p === 'string' ? Buffer.from(p) : p instanceof Blob ? p.#b : Buffer.from(bytesOf(p)))); this.type = (o.type ?? '').toLowerCase(); }
    get size() { return this.#b.length; } async text() { return this.#b.toString(); } async arrayBuffer() { return bytesOf(this.#b); } async bytes() { return new Uint8Array(bytesOf(this.#b)); } slice(a, b, t) { return new Blob([this.#b.subarray(a, b)], { type: t }); }
  }
  class FormData { #l = []; append(k, v) { this.#l.push([String(k), typeof v === 'object' ? v : String(v)]); } set(k, v) { this.delete(k); this.append(k, v); } get(k) { return this.#l.find(([a]) => a === k)?.[1] ?? null; } getAll(k) { return this.#l.filter(([a]) => a === k).map(([, v]) => v); } has(k) { return this.#l.some(([a]) => a === k); } delete(k) { this.#l = this.#l.filter(([a]) => a !== k); } *entries() { yield* this.#l; } [Symbol.iterator]() { return this.entries(); } }
  const bodyOf = (b, h) => {
    const type = (t) => { if (!h.has('content-type')) h.set('content-type', t); };
    if (b === null || b === undefined) return null;
    if (typeof b === 'string') { type('text/plain;charset=UTF-8'); return Buffer.from(b); }
    if (b instanceof URLSearchParams) { type('application/x-www-form-urlencoded;charset=UTF-8'); return Buffer.from(b.toString()); }
    if (b instanceof ArrayBuffer || ArrayBuffer.isView(b)) return Buffer.from(bytesOf(b));
    if (b instanceof FormData) { const mark = `----formdata-${Buffer.from(host.random(8)).toString('hex')}`; type(`multipart/form-data; boundary=${mark}`); return Buffer.concat([...[...b].flatMap(([k, v]) => [Buffer.from(`--${mark}\r\nContent-Disposition: form-data; name="${k}"\r\n\r\n`), Buffer.from(String(v)), Buffer.from('\r\n')]), Buffer.from(`--${mark}--\r\n`)]); }
    type('text/plain;charset=UTF-8');
    return Buffer.from(String(b));
  };
  class Body {
    #b; #used = false;
    _set(b) { this.#b = b; return this; } _get() { return this.#b; }
    get bodyUsed() { return this.#used; }
    get body() { const b = this.#b; if (!b) return null; const self = this; return Object.assign(require('stream').Readable.from([b]), { getReader() { let d = false; return { async read() { if (d) return { done: true, value: undefined }; d = true; self.#used = true; return { done: false, value: new Uint8Array(bytesOf(b)) }; }, releaseLock() {}, async cancel() {} }; } }); }
    async #take() { if (this.#used) throw new TypeError('Body is unusable: Body has already been read'); if (this.#b) this.#used = true; return this.#b ?? Buffer.alloc(0); }
    async text() { return new TextDecoder().decode(await this.#take()); } async json() { return JSON.parse(await this.text()); } async arrayBuffer() { return bytesOf(await this.#take()); } async bytes() { return new Uint8Array(await this.arrayBuffer()); } async blob() { return new Blob([await this.#take()], { type: this.headers.get('content-type') ?? '' }); }
  }
  class Request extends Body {
    constructor(input, o = {}) { super(); const from = input instanceof Request ? input : null; this.url = from ? from.url : new URL(String(input)).href; this.method = (o.method ?? from?.method ?? 'GET').toUpperCase(); this.headers = new HeaderList(o.headers ?? from?.headers); this.redirect = o.redirect ?? from?.redirect ?? 'follow'; this.signal = o.signal ?? from?.signal ?? null; const b = o.body !== undefined ? bodyOf(o.body, this.headers) : from?._get() ?? null; if (b && (this.method === 'GET' || this.method === 'HEAD')) throw new TypeError('Request with GET/HEAD method cannot have body.'); this._set(b); }
  }
  class Response extends Body {
    constructor(b, o = {}) { super(); this.status = o.status ?? 200; this.statusText = o.statusText ?? ''; this.headers = new HeaderList(o.headers); this.url = ''; this.redirected = false; this.type = 'default'; this._set(bodyOf(b, this.headers)); }
    get ok() { return this.status >= 200 && this.status < 300; }
    clone() { const r = new Response(null, this); r.url = this.url; return r._set(this._get()); }
    static json(v, o = {}) { const h = new HeaderList(o.headers); if (!h.has('content-type')) h.set('content-type', 'application/json'); return new Response(JSON.stringify(v), { ...o, headers: h }); }
    static error() { const r = new Response(); r.type = 'error'; r.status = 0; return r; }
    static redirect(u, s = 302) { return new Response(null, { status: s, headers: { location: String(u) } }); }
  }
  const failure = (why, code) => new TypeError('fetch failed', { cause: Object.assign(new Error(why), code ? { code } : {}) });
  const send = (r, url, method, body, headers) => new Promise((ok, no) => {
    if (r.signal?.aborted) { no(r.signal.reason); return; }
    let id;
    try { id = host.httpStart(method, url, [...headers].map(([k, v]) => [k, v]), body ? bytesOf(body) : null); } catch (e) { no(failure(String(e))); return; }
    pending.set(id, ([, err, status, reason, head, b]) => err ? no(failure(err, /denied by policy/.test(err) ? 'EACCES' : 'ECONNREFUSED')) : ok({ status, reason, head, body: b }));
    r.signal?.addEventListener('abort', () => { pending.delete(id); no(r.signal.reason); });
  });
  async function send2(input, o) {
    const r = new Request(input, o);
    let { url, method } = r, body = r._get();
    const headers = new HeaderList(r.headers);
    if (url.startsWith('data:')) { const m = /^data:([^,]*?)(;base64)?,(.*)$/s.exec(url); if (!m) throw failure('invalid data: URL'); return new Response(m[2] ? Buffer.from(decodeURIComponent(m[3]), 'base64') : Buffer.from(decodeURIComponent(m[3])), { headers: { 'content-type': m[1] || 'text/plain;charset=US-ASCII' } }); }
    if (!/^https?:/.test(url)) throw failure(`unknown scheme: ${new URL(url).protocol}`);
    for (const [k, v] of [['accept', '*/*'], ['user-agent', 'node'], ['accept-language', '*']]) if (!headers.has(k)) headers.set(k, v);
    for (let hop = 0; ; hop++) {
      const a = await send(r, url, method, body, headers);
      const next = [301, 302, 303, 307, 308].includes(a.status) ? a.head.find(([k]) => k.toLowerCase() === 'location')?.[1] : undefined;
      if (next !== undefined && r.redirect === 'error') throw failure('unexpected redirect');
      if (next !== undefined && r.redirect === 'follow') {
        if (hop >= 20) throw failure('redirect count exceeded');
        const to = new URL(next, url);
        if (to.origin !== new URL(url).origin) for (const k of ['authorization', 'cookie', 'proxy-authorization']) headers.delete(k);
        if ((a.status === 303 && method !== 'HEAD') || ((a.status === 301 || a.status === 302) && method === 'POST')) { method = 'GET'; body = null; headers.delete('content-type'); }
        url = to.href;
        continue;
      }
      const res = new Response(null, { status: a.status, statusText: a.reason, headers: a.head });
      res._set(Buffer.from(a.body)); res.url = url; res.redirected = hop > 0;
      return res;
    }
  }
  const clone = (v, seen = new Map()) => {
    if (typeof v === 'function' || typeof v === 'symbol') throw new DOMError(`${String(v)} could not be cloned.`, 'DataCloneError');
    if (typeof v !== 'object' || v === null) return v;
    if (seen.has(v)) return seen.get(v);
    const { types } = require('internal/inspect');
    const keep = (x) => { seen.set(v, x); return x; };
    if (types.isDate(v)) return keep(new Date(v.getTime()));
    if (types.isRegExp(v)) return keep(new RegExp(v.source, v.flags));
    if (types.isBoxedPrimitive(v)) return keep(Object(v.valueOf()));
    if (types.isArrayBuffer(v)) return keep(v.slice(0));
    if (ArrayBuffer.isView(v)) { const C = v instanceof Uint8Array ? Uint8Array : v.constructor; return keep(new C(clone(v.buffer, seen), v.byteOffset, types.isDataView(v) ? v.byteLength : v.length)); }
    if (types.isMap(v)) { const m = keep(new Map()); for (const [k, x] of v) m.set(clone(k, seen), clone(x, seen)); return m; }
    if (types.isSet(v)) { const s = keep(new Set()); for (const x of v) s.add(clone(x, seen)); return s; }
    if (v instanceof Error) { const C = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError }[v.name] ?? Error; const e = keep(new C(v.message)); hideProp(e, 'stack', v.stack); if ('cause' in v) hideProp(e, 'cause', clone(v.cause, seen)); return e; }
    if (types.isWeakMap(v) || types.isWeakSet(v) || types.isPromise(v)) throw new DOMError(`${Object.prototype.toString.call(v)} could not be cloned.`, 'DataCloneError');
    const o = keep(Array.isArray(v) ? new Array(v.length) : {});
    for (const k of Object.keys(v)) o[k] = clone(v[k], seen);
    return o;
  };
  const perf = { now: () => (host.hrtime() - info.origin) / 1e6, timeOrigin: 0, mark: (name) => ({ name, entryType: 'mark', startTime: perf.now(), duration: 0 }), measure: (name) => ({ name, entryType: 'measure', startTime: 0, duration: 0 }), getEntries: () => [], getEntriesByName: () => [], getEntriesByType: () => [], clearMarks() {}, clearMeasures() {}, toJSON: () => ({}) };
  // Numbers and dates in the way of en-US, without the tables of other places.
  const grouped = (n, o = {}) => {
    if (typeof n === 'bigint') return n.toString().replace(/\B(?=(\d{3})+$)/g, ',');
    if (Number.isNaN(n)) return 'NaN';
    if (o.style === 'percent') return grouped(n * 100, { maximumFractionDigits: 0, ...o, style: undefined }) + '%';
    const cur = o.style === 'currency' ? { USD: '$', EUR: '€', GBP: '£', JPY: '¥' }[o.currency] ?? `${o.currency}\u00a0` : '';
    const lo = o.minimumFractionDigits ?? (cur && o.currency !== 'JPY' ? Math.min(2, o.maximumFractionDigits ?? 2) : 0), hi = Math.max(lo, o.maximumFractionDigits ?? (cur ? o.currency === 'JPY' ? 0 : 2 : 3));
    const neg = n < 0 || Object.is(n, -0);
    if (!Number.isFinite(n)) return (neg ? '-' : '') + cur + '∞';
    let [i, f = ''] = Math.abs(n).toFixed(hi).split('.');
    while (f.length > lo && f.endsWith('0')) f = f.slice(0, -1);
    i = i.padStart(o.minimumIntegerDigits ?? 1, '0');
    if (o.useGrouping !== false) i = i.replace(/\B(?=(\d{3})+$)/g, ',');
    return (neg ? '-' : '') + cur + i + (f ? '.' + f : '');
  };
  const months = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December'], days = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
  const two = (n) => String(n).padStart(2, '0');
  const date = (d, o, dd, dt) => {
    if (Number.isNaN(d.getTime())) return 'Invalid Date';
    o = { ...o };
    if (o.dateStyle || o.timeStyle) {
      const ds = { full: { weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' }, long: { year: 'numeric', month: 'long', day: 'numeric' }, medium: { year: 'numeric', month: 'short', day: 'numeric' }, short: { year: '2-digit', month: 'numeric', day: 'numeric' } }[o.dateStyle];
      const ts = { full: { hour: 'numeric', minute: '2-digit', second: '2-digit' }, long: { hour: 'numeric', minute: '2-digit', second: '2-digit' }, medium: { hour: 'numeric', minute: '2-digit', second: '2-digit' }, short: { hour: 'numeric', minute: '2-digit' } }[o.timeStyle];
      o = { ...o, ...ds, ...ts };
    } else if (!['weekday', 'year', 'month', 'day', 'hour', 'minute', 'second'].some((k) => o[k])) { if (dd) Object.assign(o, { year: 'numeric', month: 'numeric', day: 'numeric' }); if (dt) Object.assign(o, { hour: 'numeric', minute: '2-digit', second: '2-digit' }); }
    const g = (k) => d[`getUTC${k}`]();
    const num = (v, s) => s === '2-digit' ? two(v % 100) : String(v);
    const parts = [];
    const wd = o.weekday ? (o.weekday === 'long' ? days[g('Day')] : days[g('Day')].slice(0, 3)) : '';
    if (o.month === 'long' || o.month === 'short') {
      const m = o.month === 'long' ? months[g('Month')] : months[g('Month')].slice(0, 3);
      const md = m + (o.day ? ' ' + num(g('Date'), o.day) : '');
      parts.push([wd, o.year ? `${md}${o.day ? ',' : ''} ${num(g('FullYear'), o.year)}` : md].filter(Boolean).join(', '));
    } else { const s = [o.month && num(g('Month') + 1, o.month), o.day && num(g('Date'), o.day), o.year && num(g('FullYear'), o.year)].filter(Boolean).join('/'); if (wd || s) parts.push([wd, s].filter(Boolean).join(', ')); }
    if (o.hour || o.minute || o.second) {
      const h12 = o.hour12 ?? (o.hourCycle ? o.hourCycle.startsWith('h1') : true), h = g('Hours');
      const hs = o.hour ? h12 ? num(h % 12 || 12, o.hour === '2-digit' ? '2-digit' : undefined) : two(h) : '';
      parts.push([hs, o.minute && two(g('Minutes')), o.second && two(g('Seconds'))].filter(Boolean).join(':') + (o.hour && h12 ? (h < 12 ? ' AM' : ' PM') : '') + (o.timeZoneName || o.timeStyle === 'full' || o.timeStyle === 'long' ? ' UTC' : ''));
    }
    return parts.join(o.dateStyle === 'full' || o.dateStyle === 'long' ? ' at ' : ', ');
  };
  const strength = (s) => [s.normalize('NFD').replace(/\p{Mn}/gu, '').toLowerCase(), s.normalize('NFD').toLowerCase(), s];
  const rank = (c) => /\p{L}/u.test(c) ? 3 : /\p{N}/u.test(c) ? 2 : /\s/.test(c) ? 0 : 1;
  const collate = (a, b, o = {}) => {
    if (a === b) return 0;
    const x = strength(a), y = strength(b);
    if (o.numeric) { const p = x[0].split(/(\d+)/), q = y[0].split(/(\d+)/); for (let i = 0; i < Math.min(p.length, q.length); i++) if (p[i] !== q[i]) { if (i % 2) { const d = Number(p[i]) - Number(q[i]); if (d) return d < 0 ? -1 : 1; } else return p[i] < q[i] ? -1 : 1; } if (p.length !== q.length) return p.length < q.length ? -1 : 1; }
    const u = [...x[0]], v = [...y[0]];
    for (let i = 0; i < Math.min(u.length, v.length); i++) if (u[i] !== v[i]) { const r = rank(u[i]) - rank(v[i]); return r ? (r < 0 ? -1 : 1) : u[i] < v[i] ? -1 : 1; }
    if (u.length !== v.length) return u.length < v.length ? -1 : 1;
    if (o.sensitivity === 'base') return 0;
    if (x[1] !== y[1]) return x[1] < y[1] ? -1 : 1;
    if (o.sensitivity === 'accent') return 0;
    for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] !== b[i]) return a[i] === a[i].toLowerCase() ? -1 : 1;
    return 0;
  };
  class NumberFormat { constructor(l, o = {}) { this.o = o; hideProp(this, 'format', (n) => grouped(n, o)); } resolvedOptions() { return { locale: 'en-US', ...this.o }; } formatToParts(n) { return [{ type: 'literal', value: this.format(n) }]; } }
  class DateTimeFormat { constructor(l, o = {}) { this.o = o; hideProp(this, 'format', (d) => date(d === undefined ? new Date() : new Date(d), o, true, false)); } resolvedOptions() { return { locale: 'en-US', calendar: 'gregory', numberingSystem: 'latn', timeZone: 'UTC' }; } }
  class Collator { constructor(l, o) { hideProp(this, 'compare', (a, b) => collate(String(a), String(b), o)); } resolvedOptions() { return { locale: 'en-US' }; } }
  class PluralRules { constructor(l, o = {}) { this.o = o; } select(n) { if (this.o.type === 'ordinal') { const t = n % 10, h = n % 100; return t === 1 && h !== 11 ? 'one' : t === 2 && h !== 12 ? 'two' : t === 3 && h !== 13 ? 'few' : 'other'; } return n === 1 ? 'one' : 'other'; } }
  class ListFormat { constructor(l, o = {}) { this.o = o; } format(l) { const a = [...l], w = this.o.type === 'disjunction' ? 'or' : 'and'; return a.length < 2 ? a.join('') : a.length === 2 ? `${a[0]} ${w} ${a[1]}` : `${a.slice(0, -1).join(', ')}, ${w} ${a[a.length - 1]}`; } }
  class Segmenter { constructor(l, o = {}) { this.o = o; } *segment(s) { let index = 0; for (const x of this.o.granularity === 'word' ? s.match(/[\p{L}\p{N}_']+|[^\p{L}\p{N}_']/gu) ?? [] : s) { yield { segment: x, index, input: s, isWordLike: /[\p{L}\p{N}]/u.test(x) }; index += x.length; } } }
  class RelativeTimeFormat { constructor(l, o = {}) { this.o = o; } format(n, u) { u = u.replace(/s$/, ''); if (this.o.numeric === 'auto' && u === 'day' && [-1, 0, 1].includes(n)) return ['yesterday', 'today', 'tomorrow'][n + 1]; const a = Math.abs(n); return n < 0 || Object.is(n, -0) ? `${grouped(a)} ${u}${a === 1 ? '' : 's'} ago` : `in ${grouped(a)} ${u}${a === 1 ? '' : 's'}`; } }
  const Intl = { NumberFormat, DateTimeFormat, Collator, PluralRules, ListFormat, Segmenter, RelativeTimeFormat, getCanonicalLocales: (l) => [l].flat(), supportedValuesOf: () => [] };
  for (const c of [NumberFormat, DateTimeFormat, Collator]) { c.supportedLocalesOf = (l) => [l].flat(); Intl[c.name] = new Proxy(c, { apply: (t, s, a) => new t(...a) }); }
  const patch = (o, k, f) => Object.defineProperty(o, k, { value: f, writable: true, configurable: true, enumerable: false });
  patch(Number.prototype, 'toLocaleString', function toLocaleString(l, o) { return grouped(Number(this), o); });
  patch(BigInt.prototype, 'toLocaleString', function toLocaleString() { return grouped(this.valueOf()); });
  patch(Date.prototype, 'toLocaleString', function toLocaleString(l, o) { return date(this, o, true, true); });
  patch(Date.prototype, 'toLocaleDateString', function toLocaleDateString(l, o) { return date(this, o, true, false); });
  patch(Date.prototype, 'toLocaleTimeString', function toLocaleTimeString(l, o) { return date(this, o, false, true); });
  patch(String.prototype, 'localeCompare', function localeCompare(b, l, o) { return collate(String(this), String(b), o); });
  const zone = (f) => function () { const t = f.call(this); return t.endsWith('+0000') ? t + ' (Coordinated Universal Time)' : t; };
  patch(Date.prototype, 'toString', zone(Date.prototype.toString));
  patch(Date.prototype, 'toTimeString', zone(Date.prototype.toTimeString));
  hideProp(Date.prototype.toString, 'name', 'toString');
  const seed = new BigUint64Array(2);
  // Random numbers come from the machine, which may fix them: the interpreter's own generator is a copy of the image's.
  patch(Math, 'random', function random() {
    if (seed[0] === 0n && seed[1] === 0n) seed.set(new BigUint64Array(host.random(16)));
    let s1 = seed[0];
    const s0 = seed[1];
    seed[0] = s0;
    s1 ^= s1 << 23n;
    seed[1] = BigInt.asUintN(64, s1) ^ s0 ^ (BigInt.asUintN(64, s1) >> 18n) ^ (s0 >> 5n);
    return Number(BigInt.asUintN(64, seed[1] + s0) >> 11n) / 2 ** 53;
  });
  hideProp(DOMError, 'name', 'DOMException');
  hideProp(HeaderList, 'name', 'Headers');
  hideProp(send2, 'name', 'fetch');
  exports.globals = { DOMException: DOMError, Event, CustomEvent, EventTarget, AbortSignal, AbortController, Headers: HeaderList, Blob, FormData, Request, Response, fetch: send2, structuredClone: (v) => clone(v), performance: perf, Intl };
});
for (const scheme of ['http', 'https']) {
  define(scheme, (require, exports, module) => {
    // The client half, over fetch. There is nothing to listen on.
    const { Readable, Writable } = require('stream');
    const request = (u, o, cb) => {
      if (typeof u === 'string' || u instanceof URL) { u = new URL(u); if (typeof o === 'function') { cb = o; o = {}; } o = { ...require('url').urlToHttpOptions(u), ...o }; } else { cb = o; o = u; }
      const parts = [];
      const headers = new Headers(o.headers ?? {});
      if (o.auth) headers.set('authorization', 'Basic ' + btoa(o.auth));
      const url = `${o.protocol ?? scheme + ':'}//${o.hostname ?? o.host ?? 'localhost'}${o.port ? ':' + o.port : ''}${o.path ?? '/'}`;
      const req = new Writable({ write(c, e, done) { parts.push(c); done(); }, final(done) {
        const method = (o.method ?? 'GET').toUpperCase();
        fetch(url, { method, headers, redirect: 'manual', body: parts.length ? require('buffer').Buffer.concat(parts) : undefined, signal: o.signal }).then((r) => {
          const res = Readable.from(r._get()?.length ? [r._get()] : [], { objectMode: false });
          Object.assign(res, { statusCode: r.status, statusMessage: r.statusText, headers: Object.fromEntries(r.headers), rawHeaders: [...r.headers].flat(), httpVersion: '1.1' });
          req.emit('response', res);
        }, (e) => req.emit('error', e.cause ?? e));
        done();
      } });
      Object.assign(req, { setHeader: (k, v) => headers.set(k, v), getHeader: (k) => headers.get(k) ?? undefined, removeHeader: (k) => headers.delete(k), setTimeout: () => req, abort: () => req.destroy(), flushHeaders() {}, setNoDelay() {} });
      if (cb) req.once('response', cb);
      return req;
    };
    module.exports = { request, get: (...a) => { const r = request(...a); r.end(); return r; }, Agent: class {}, globalAgent: {}, METHODS: ['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'], STATUS_CODES: { 200: 'OK', 201: 'Created', 204: 'No Content', 301: 'Moved Permanently', 302: 'Found', 304: 'Not Modified', 400: 'Bad Request', 401: 'Unauthorized', 403: 'Forbidden', 404: 'Not Found', 405: 'Method Not Allowed', 409: 'Conflict', 418: "I'm a Teapot", 429: 'Too Many Requests', 500: 'Internal Server Error', 502: 'Bad Gateway', 503: 'Service Unavailable', 504: 'Gateway Timeout' },
      createServer() { throw nodeError(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', `${scheme}.createServer is not available here: there are no sockets to listen on`); } };
  });
}
