// Scripts may give the globals' names to things of their own, in the same scope: these are the ones that the library uses.
const { Object, Array, String, Number, Boolean, Symbol, BigInt, Math, JSON, Reflect, Proxy, Promise, Map, Set, WeakMap, WeakSet, Date, RegExp, Function, Error, TypeError, RangeError,
  SyntaxError, EvalError, ReferenceError, URIError, AggregateError, ArrayBuffer, SharedArrayBuffer, DataView, Uint8Array, Uint16Array, BigUint64Array, parseInt, parseFloat, isNaN, isFinite,
  encodeURIComponent, decodeURIComponent, eval: evaluate } = globalThis;
let setTimeout, setImmediate, clearTimeout, URL, URLSearchParams, Headers, performance, fetch, console, btoa, atob, TextDecoder, DOMException;
// What every other module stands on: errors with codes, text encodings, events.
const hideProp = (o, name, value) => Object.defineProperty(o, name, { value, writable: true, configurable: true, enumerable: false });
const codeSymbol = Symbol.for('node.code');
function nodeError(Base, code, message) {
  const e = new Base(message);
  e.code = code;
  hideProp(e, codeSymbol, true);
  hideProp(e, 'toString', function () { return `${this.name} [${code}]: ${this.message}`; });
  return e;
}
const errnos = { EPERM: [-1, 'operation not permitted'], ENOENT: [-2, 'no such file or directory'], EINTR: [-4, 'interrupted system call'], EIO: [-5, 'i/o error'],
  EBADF: [-9, 'bad file descriptor'], EAGAIN: [-11, 'resource temporarily unavailable'], ENOMEM: [-12, 'not enough memory'], EACCES: [-13, 'permission denied'],
  EEXIST: [-17, 'file already exists'], EXDEV: [-18, 'cross-device link not permitted'], ENOTDIR: [-20, 'not a directory'], EISDIR: [-21, 'illegal operation on a directory'],
  EINVAL: [-22, 'invalid argument'], EMFILE: [-24, 'too many open files'], EFBIG: [-27, 'file too large'], ENOSPC: [-28, 'no space left on device'], ESPIPE: [-29, 'invalid seek'],
  EROFS: [-30, 'read-only file system'], EPIPE: [-32, 'broken pipe'], ENAMETOOLONG: [-36, 'name too long'], ENOTEMPTY: [-39, 'directory not empty'],
  ELOOP: [-40, 'too many symbolic links encountered'], ENOTSUP: [-95, 'operation not supported on socket'], ECONNREFUSED: [-111, 'connection refused'] };
// sys calls the host; a failure comes as the name of an error number.
function sys(call, path, dest, fn) {
  try { return fn(); } catch (name) {
    if (typeof name !== 'string') throw name;
    const [errno, text] = errnos[name] ?? [-1, name];
    const code = errnos[name] ? name : 'EIO';
    const e = new Error(`${code}: ${text}, ${call}${path !== undefined && path !== null ? ` '${path}'` : ''}${dest !== undefined ? ` -> '${dest}'` : ''}`);
    e.errno = errno; e.code = code; e.syscall = call;
    if (typeof path === 'string') e.path = path;
    if (dest !== undefined) e.dest = dest;
    throw e;
  }
}
function typeError(name, want, got) {
  const { inspect } = require('internal/inspect');
  let have;
  if (got === null || got === undefined) have = ` Received ${got}`;
  else if (typeof got === 'function') have = ` Received function ${got.name}`;
  else if (typeof got === 'object') have = got.constructor?.name ? ` Received an instance of ${got.constructor.name}` : ` Received ${inspect(got, { depth: -1 })}`;
  else {
    let s = inspect(got, { colors: false });
    if (s.length > 28) s = s.slice(0, 25) + '...';
    have = ` Received type ${typeof got} (${s})`;
  }
  return nodeError(TypeError, 'ERR_INVALID_ARG_TYPE', `The ${/[ .]/.test(name) ? `"${name}" property` : `"${name}" argument`} must be ${want}.${have}`);
}
// bytesOf is what a host function is given of a view: an ArrayBuffer with nothing else in it.
const bytesOf = (v) => v instanceof ArrayBuffer ? v : v.byteOffset === 0 && v.byteLength === v.buffer.byteLength ? v.buffer : v.buffer.slice(v.byteOffset, v.byteOffset + v.byteLength);
const utf8 = (v) => host.text(bytesOf(v), 'utf8');

define('events', (require, exports, module) => {
  class EventEmitter {
    constructor() { this.#init(); }
    #init() { if (this._events === undefined || this._events === Object.getPrototypeOf(this)._events) { this._events = Object.create(null); this._eventsCount = 0; } this._maxListeners ??= undefined; }
    static init(o) { if (o._events === undefined || o._events === Object.getPrototypeOf(o)._events) { o._events = Object.create(null); o._eventsCount = 0; } }
    setMaxListeners(n) { this._maxListeners = n; return this; }
    getMaxListeners() { return this._maxListeners ?? EventEmitter.defaultMaxListeners; }
    emit(type, ...args) {
      const list = this._events?.[type];
      if (!list || list.length === 0) {
        if (type === 'error') {
          const e = args[0];
          if (e instanceof Error) throw e;
          throw nodeError(Error, 'ERR_UNHANDLED_ERROR', `Unhandled error. (${require('internal/inspect').inspect(e)})`);
        }
        return false;
      }
      for (const l of list.slice()) Reflect.apply(l, this, args);
      return true;
    }
    _add(type, fn, first) {
      if (typeof fn !== 'function') throw typeError('listener', 'of type function', fn);
      EventEmitter.init(this);
      if (this._events.newListener) this.emit('newListener', type, fn.listener ?? fn);
      const list = this._events[type];
      if (!list) { this._events[type] = [fn]; this._eventsCount++; } else if (first) list.unshift(fn); else list.push(fn);
      return this;
    }
    on(type, fn) { return this._add(type, fn, false); }
    addListener(type, fn) { return this.on(type, fn); }
    prependListener(type, fn) { return this._add(type, fn, true); }
    _once(type, fn) {
      if (typeof fn !== 'function') throw typeError('listener', 'of type function', fn);
      const self = this;
      const w = function (...args) { self.removeListener(type, w); return Reflect.apply(fn, self, args); };
      w.listener = fn;
      return w;
    }
    once(type, fn) { return this.on(type, this._once(type, fn)); }
    prependOnceListener(type, fn) { return this.prependListener(type, this._once(type, fn)); }
    removeListener(type, fn) {
      const list = this._events?.[type];
      if (!list) return this;
      const i = list.findLastIndex((l) => l === fn || l.listener === fn);
      if (i < 0) return this;
      const next = list.slice();
      next.splice(i, 1);
      if (next.length) this._events[type] = next; else { delete this._events[type]; this._eventsCount--; }
      if (this._events.removeListener) this.emit('removeListener', type, fn);
      return this;
    }
    off(type, fn) { return this.removeListener(type, fn); }
    removeAllListeners(type) {
      if (type === undefined) { this._events = Object.create(null); this._eventsCount = 0; } else if (this._events?.[type]) { delete this._events[type]; this._eventsCount--; }
      return this;
    }
    listeners(type) { return (this._events?.[type] ?? []).map((l) => l.listener ?? l); }
    rawListeners(type) { return (this._events?.[type] ?? []).slice(); }
    listenerCount(type) { return this._events?.[type]?.length ?? 0; }
    eventNames() { return Reflect.ownKeys(this._events ?? {}); }
  }
  // Old code calls it as a function: EventEmitter.call(this).
  const callable = new Proxy(EventEmitter, { apply(_, self) { EventEmitter.init(self); } });
  EventEmitter.prototype.constructor = callable;
  for (const k of Object.getOwnPropertyNames(EventEmitter.prototype)) if (k !== 'constructor') Object.defineProperty(EventEmitter.prototype, k, { enumerable: true });
  EventEmitter.defaultMaxListeners = 10;
  EventEmitter.EventEmitter = callable;
  EventEmitter.once = (em, type, opts) => new Promise((ok, no) => {
    const onError = (e) => { em.off(type, onEvent); no(e); };
    const onEvent = (...a) => { em.off('error', onError); ok(a); };
    if (em.addEventListener) { em.addEventListener(type, (e) => ok([e]), { once: true }); return; }
    em.once(type, onEvent);
    if (type !== 'error') em.once('error', onError);
  });
  EventEmitter.on = async function* (em, type) {
    const queue = [];
    let wake;
    em.on(type, (...a) => { queue.push(a); wake?.(); });
    em.on('error', (e) => { queue.push(e); wake?.(); });
    for (;;) {
      while (queue.length) { const x = queue.shift(); if (x instanceof Error) throw x; yield x; }
      await new Promise((ok) => { wake = ok; });
    }
  };
  EventEmitter.listenerCount = (em, type) => em.listenerCount(type);
  module.exports = callable;
});

// Stacks as V8 writes them: the message above, this library's own calls left out, and the usual messages in V8's words.
const reworded = [
  [/^cannot read property '(.*)' of (null|undefined)$/, (m) => `Cannot read properties of ${m[2]} (reading '${m[1]}')`],
  [/^cannot set property '(.*)' of (null|undefined)$/, (m) => `Cannot set properties of ${m[2]} (setting '${m[1]}')`],
  [/^cannot read property of (null|undefined)$/, (m) => `Cannot read properties of ${m[1]}`],
  [/^'(.*)' is not defined$/, (m) => `${m[1]} is not defined`],
  [/^'(.*)' is read-only$/, () => 'Assignment to constant variable.'],
  [/^(.*) is not initialized$/, (m) => `Cannot access '${m[1]}' before initialization`],
  [/^value is not iterable$/, () => 'object is not iterable (cannot read property Symbol(Symbol.iterator))'],
  [/^class constructors must be invoked with 'new'$/, () => "Class constructor cannot be invoked without 'new'"],
  [/^invalid array length$/, () => 'Invalid array length'],
  [/^circular reference$/, () => 'Converting circular structure to JSON'],
  [/^(cannot|can't) (convert|mix) BigInt.*$/i, (m) => m[2] === 'mix' ? 'Cannot mix BigInt and other types, use explicit conversions' : m[0]],
  [/^cannot convert bigint to number$/i, () => 'Cannot mix BigInt and other types, use explicit conversions'],
  [/^toFixed\(\).*$/, () => 'toFixed() digits argument must be between 0 and 100'],
  [/^invalid repeat count$/, (m) => 'Invalid count value'],
  [/^object is not extensible$/, () => 'Cannot add property, object is not extensible'],
];
const errorPrepare = (e, frames) => {
  if (typeof e.message === 'string' && Object.prototype.hasOwnProperty.call(e, 'message')) {
    for (const [re, to] of reworded) {
      const m = re.exec(e.message);
      if (m) { hideProp(e, 'message', to(m)); break; }
    }
  }
  let out = '';
  for (const f of frames) {
    const file = f.getFileName();
    if (file === null || file === undefined || file === 'node:internal') continue;
    if (file === '<input>' && out === '' && e instanceof SyntaxError) continue;
    const name = f.getFunctionName();
    const at = `${file}:${f.getLineNumber()}:${f.getColumnNumber()}`;
    out += name && name !== '<anonymous>' && name !== '<eval>' ? `\n    at ${name} (${at})` : `\n    at ${at}`;
  }
  return mark + out;
};
// The message is put above when somebody looks, as V8 and node do it: constructors give errors their name after they were made.
const mark = '\0stack';
const rawStack = Object.getOwnPropertyDescriptor(Error.prototype, 'stack');
const stacks = new WeakMap();
Object.defineProperty(Error.prototype, 'stack', {
  configurable: true, enumerable: false,
  get() {
    if (stacks.has(this)) return stacks.get(this);
    let raw = rawStack.get.call(this);
    if (raw === null || raw === undefined) { if (!(this instanceof Error) || this === Error.prototype) return undefined; raw = mark; }
    if (typeof raw !== 'string' || !raw.startsWith(mark)) return raw;
    const frames = raw.slice(mark.length);
    let text;
    try { text = Error.prototype.toString.call(this); } catch { text = 'Error'; }
    if (this[codeSymbol] && typeof this.code === 'string') text = text.replace(this.name, `${this.name} [${this.code}]`);
    text += frames;
    stacks.set(this, text);
    return text;
  },
  set(v) { Object.defineProperty(this, 'stack', { value: v, writable: true, configurable: true, enumerable: false }); },
});
Error.prepareStackTrace = errorPrepare;
