// The process, its loop and what is timed by it.
const info = { argv: [], env: {}, execArgv: [] };
const ticks = [], immediates = [], timers = [], watches = [];
let clockSeq = 0, refs = 0;

define('process', (require, exports, module) => {
  const EventEmitter = require('events');
  class process extends EventEmitter { get [Symbol.toStringTag]() { return 'process'; } }
  const p = new process();
  let env;
  Object.assign(p, {
    title: 'node', version: 'v20.19.0', versions: { node: '20.19.0', quickjs: '0.11.0', v8: '0.0.0', modules: '115' }, arch: 'x64', platform: 'linux', release: { name: 'node', lts: 'Iron' }, config: { variables: {} },
    features: {}, exitCode: undefined, argv0: 'node',
    cwd: () => sys('uv_cwd', undefined, undefined, () => host.cwd()),
    chdir(d) { sys('chdir', d, undefined, () => host.chdir(d)); },
    exit(code) {
      if (code !== undefined) p.exitCode = code;
      if (!p._exiting) { p._exiting = true; p.emit('exit', p.exitCode ?? 0); }
      host.exit(status(p.exitCode));
    },
    reallyExit: (c) => host.exit(status(c)), abort() { host.exit(134); },
    kill(pid, sig = 'SIGTERM') { const n = typeof sig === 'number' ? sig : require('os').constants.signals[sig]; if (n === undefined) throw nodeError(TypeError, 'ERR_UNKNOWN_SIGNAL', `Unknown signal: ${sig}`); sys('kill', undefined, undefined, () => host.kill(pid, n)); return true; },
    nextTick(fn, ...args) { if (typeof fn !== 'function') throw typeError('callback', 'of type function', fn); ticks.push([fn, args]); },
    uptime: () => host.hrtime() / 1e9,
    hrtime: Object.assign((prev) => { const n = host.hrtime(); let s = Math.floor(n / 1e9), ns = n % 1e9; if (prev) { s -= prev[0]; ns -= prev[1]; if (ns < 0) { s--; ns += 1e9; } } return [s, ns]; }, { bigint: () => BigInt(host.hrtime()) }),
    memoryUsage: Object.assign(() => { const n = host.memory(); return { rss: n, heapTotal: n, heapUsed: n, external: 0, arrayBuffers: 0 }; }, { rss: () => host.memory() }),
    cpuUsage: () => ({ user: Math.floor(host.hrtime() / 1e3), system: 0 }), resourceUsage: () => ({ userCPUTime: Math.floor(host.hrtime() / 1e3), systemCPUTime: 0, maxRSS: host.memory() / 1024 }),
    getuid: () => info.uid, geteuid: () => info.uid, getgid: () => info.gid, getegid: () => info.gid, getgroups: () => [info.gid],
    umask: () => info.umask, emitWarning(w, type = 'Warning', code) {
      if (typeof type === 'object') ({ type = 'Warning', code } = type);
      const e = w instanceof Error ? w : Object.assign(new Error(w), { name: String(type) });
      if (code) e.code = code;
      p.nextTick(() => { if (p.listenerCount('warning')) p.emit('warning', e); else p.stderr.write(`(node:${p.pid}) ${code ? `[${code}] ` : ''}${e.name}: ${e.message}\n(Use \`node --trace-warnings ...\` to show where the warning was created)\n`); });
    },
    setUncaughtExceptionCaptureCallback() {}, hasUncaughtExceptionCaptureCallback: () => false, binding() { throw nodeError(Error, 'ERR_INVALID_MODULE', 'No such module'); },
    getBuiltinModule: (n) => builtin(n) ? require(n.replace(/^node:/, '')) : undefined, allowedNodeEnvironmentFlags: new Set(),
  });
  const status = (c) => c === undefined || c === null ? 0 : (typeof c === 'string' ? Number(c) : c) & 255;
  for (const k of ['pid', 'ppid', 'argv', 'execPath', 'execArgv']) Object.defineProperty(p, k, { get: () => info[k], set: (v) => { info[k] = v; }, enumerable: true, configurable: true });
  Object.defineProperty(p, 'env', { enumerable: true, get: () => env ??= new Proxy({ ...info.env }, { set(t, k, v) { t[k] = String(v); return true; }, defineProperty(t, k, d) { d.value = String(d.value); return Reflect.defineProperty(t, k, { configurable: true, enumerable: true, writable: true, ...d }); } }) });
  const output = (fd) => {
    const { Writable } = require('stream');
    const w = new Writable({ decodeStrings: false, write(c, enc, cb) { try { sys('write', undefined, undefined, () => host.write(fd, typeof c === 'string' ? c : bytesOf(c))); cb(); } catch (e) { cb(e); } } });
    w.write = function (c, enc, cb) {
      if (typeof enc === 'function') { cb = enc; enc = undefined; }
      if (typeof c !== 'string' && !(c instanceof Uint8Array)) throw typeError('chunk', 'of type string or an instance of Buffer, TypedArray, or DataView', c);
      if (typeof c === 'string' && enc && require('buffer').encodingOf(enc) !== 'utf8') c = require('buffer').Buffer.from(c, enc);
      host.write(fd, typeof c === 'string' ? c : bytesOf(c));
      if (cb) p.nextTick(cb);
      return true;
    };
    w.fd = fd; w._type = 'pipe'; w.destroySoon = w.end;
    const size = host.tty(fd);
    if (size) { w.isTTY = true; [w.columns, w.rows] = size; w.getWindowSize = () => size; w.hasColors = () => true; w.getColorDepth = () => 8; w.cursorTo = w.clearLine = w.moveCursor = () => true; }
    return w;
  };
  const input = () => {
    const r = require('fs').createReadStream(null, { fd: 0, autoClose: false });
    const read = r._read;
    // Reading waits until nothing else is to be done: it stops everything.
    r._read = function (n) { watches.push(() => read.call(this, n)); };
    r.fd = 0;
    if (host.tty(0)) { r.isTTY = true; r.setRawMode = () => r; }
    r.ref = r.unref = () => r;
    return r;
  };
  for (const [k, make] of [['stdout', () => output(1)], ['stderr', () => output(2)], ['stdin', input]]) {
    let s;
    Object.defineProperty(p, k, { get: () => s ??= make(), set: (v) => { s = v; }, enumerable: true, configurable: true });
  }
  module.exports = p;
});

define('timers', (require, exports) => {
  const check = (fn) => { if (typeof fn !== 'function') throw typeError('callback', 'of type function', fn); };
  class Timeout {
    constructor(fn, ms, args, every) { ms = Number(ms); this._idleTimeout = ms >= 1 && ms <= 2147483647 ? Math.trunc(ms) : 1; this._onTimeout = fn; this._repeat = every ? this._idleTimeout : null; this._destroyed = false; for (const [k, v] of [['_args', args], ['_seq', 0], ['_at', 0], ['_ref', true]]) hideProp(this, k, v); schedule(this); }
    ref() { this._ref = true; return this; } unref() { this._ref = false; return this; } hasRef() { return this._ref; }
    refresh() { drop(this); schedule(this); return this; } close() { clear(this); return this; }
    [Symbol.toPrimitive]() { ids.set(this._seq, this); return this._seq; }
    [Symbol.dispose ?? Symbol('dispose')]() { clear(this); }
  }
  const ids = new Map();
  const schedule = (t) => {
    t._at = host.hrtime() / 1e6 + t._idleTimeout; t._seq = ++clockSeq;
    let lo = 0, hi = timers.length; // ordered by time, then by age
    while (lo < hi) { const m = (lo + hi) >> 1; if (timers[m]._at <= t._at) lo = m + 1; else hi = m; }
    timers.splice(lo, 0, t);
  };
  const drop = (t) => { const i = timers.indexOf(t); if (i >= 0) timers.splice(i, 1); };
  const clear = (t) => { if (typeof t === 'number' || typeof t === 'string') { const x = ids.get(Number(t)); ids.delete(Number(t)); t = x; } if (t instanceof Timeout) { t._destroyed = true; drop(t); } };
  class Immediate { constructor(fn, args) { this._onImmediate = fn; hideProp(this, '_args', args); immediates.push(this); } ref() { return this; } unref() { return this; } hasRef() { return true; } }
  exports.setTimeout = (fn, ms, ...a) => { check(fn); return new Timeout(fn, ms, a, false); };
  exports.setInterval = (fn, ms, ...a) => { check(fn); return new Timeout(fn, ms, a, true); };
  exports.setImmediate = (fn, ...a) => { check(fn); return new Immediate(fn, a); };
  exports.clearTimeout = exports.clearInterval = clear;
  exports.clearImmediate = (i) => { if (i) i._onImmediate = null; };
  const aborted = (s) => Object.assign(new Error('The operation was aborted', { cause: s.reason }), { name: 'AbortError', code: 'ABORT_ERR' });
  const promised = (start, stop) => (ms, v, o) => new Promise((ok, no) => {
    if (o?.signal?.aborted) { no(aborted(o.signal)); return; }
    const t = start(() => ok(v), ms);
    o?.signal?.addEventListener('abort', () => { stop(t); no(aborted(o.signal)); });
  });
  exports.promises = { setTimeout: promised(exports.setTimeout, clear), setImmediate: (v) => new Promise((ok) => exports.setImmediate(() => ok(v))), async* setInterval(ms, v) { for (;;) { await exports.promises.setTimeout(ms); yield v; } }, scheduler: { wait: (ms) => exports.promises.setTimeout(ms), yield: () => exports.promises.setImmediate() } };
  exports.setTimeout[Symbol.for('nodejs.util.promisify.custom')] = exports.promises.setTimeout;
  exports.setImmediate[Symbol.for('nodejs.util.promisify.custom')] = exports.promises.setImmediate;
});
define('timers/promises', (r, e, m) => { m.exports = r('timers').promises; });

// runTicks does what was put off to the end of the current operation.
function runTicks() { while (ticks.length) { const [fn, args] = ticks.shift(); fn(...args); } }
// turn does one round of the loop: -1 when nothing is left, else how many milliseconds to wait first. Go calls it.
function turn() {
  const now = host.hrtime() / 1e6;
  if (timers.length && timers[0]._at <= now) {
    const t = timers.shift();
    if (t._repeat !== null) { t._at = now + t._repeat; let i = timers.length; while (i > 0 && timers[i - 1]._at > t._at) i--; timers.splice(i, 0, t); } else t._destroyed = true;
    t._onTimeout(...t._args);
    return 0;
  }
  if (immediates.length) {
    if (!turn.batch) turn.batch = immediates.splice(0);
    const i = turn.batch.shift();
    if (!turn.batch.length) turn.batch = undefined;
    if (i?._onImmediate) i._onImmediate(...i._args);
    return 0;
  }
  if (turn.batch) { const i = turn.batch.shift(); if (!turn.batch.length) turn.batch = undefined; if (i?._onImmediate) i._onImmediate(...i._args); return 0; }
  const done = host.poll();
  if (done !== null) { pending.get(done[0])?.(done); pending.delete(done[0]); return 0; }
  if (watches.length) { watches.shift()(); return 0; }
  const waits = timers.some((t) => t._ref);
  if (!waits && pending.size === 0) return -1;
  return Math.max(0.001, timers.length ? timers[0]._at - now : 1e9);
}
const pending = new Map();

define('console', (require, exports, module) => {
  const { formatWithOptions, inspect, width } = require('internal/inspect');
  class Console {
    #indent = ''; #counts = new Map(); #times = new Map(); #out; #err;
    constructor(o, e) {
      this.#out = o?.stdout ?? o; this.#err = o?.stderr ?? e ?? this.#out;
      for (const k of Object.getOwnPropertyNames(Console.prototype)) if (k !== 'constructor') Object.defineProperty(this, k, { value: this[k].bind(this), writable: true, configurable: true, enumerable: true });
    }
    #write(err, s) {
      if (this.#indent) s = s.replace(/^/gm, this.#indent);
      const to = err ? this.#err : this.#out;
      if (to) { to.write(s + '\n'); return; }
      const own = err ? process.stderr : process.stdout; // somebody may have replaced write
      own.write(s + '\n');
    }
    #opts(err) { return err || this.#out ? undefined : process.stdout.isTTY ? { colors: true } : undefined; }
    log(...a) { this.#write(false, a.length === 1 && typeof a[0] === 'string' ? a[0] : formatWithOptions(this.#opts(false), ...a)); }
    info(...a) { this.log(...a); } debug(...a) { this.log(...a); }
    error(...a) { this.#write(true, formatWithOptions(undefined, ...a)); } warn(...a) { this.error(...a); }
    trace(...a) { const e = { name: 'Trace', message: formatWithOptions(undefined, ...a) }; this.error(`Trace${e.message ? `: ${e.message}` : ''}\n${(new Error().stack ?? '').split('\n').slice(2).join('\n')}`); }
    dir(v, o) { this.#write(false, inspect(v, { customInspect: false, ...this.#opts(false), ...o })); } dirxml(...a) { this.log(...a); }
    assert(ok, ...a) { if (!ok) { if (typeof a[0] === 'string') a[0] = `Assertion failed: ${a[0]}`; else a.unshift('Assertion failed'); this.warn(...a); } }
    count(l = 'default') { const n = (this.#counts.get(`${l}`) ?? 0) + 1; this.#counts.set(`${l}`, n); this.log(`${l}: ${n}`); } countReset(l = 'default') { this.#counts.delete(`${l}`); }
    group(...a) { if (a.length) this.log(...a); this.#indent += '  '; } groupCollapsed(...a) { this.group(...a); } groupEnd() { this.#indent = this.#indent.slice(0, -2); }
    time(l = 'default') { this.#times.set(`${l}`, host.hrtime()); }
    #took(l) { const t = this.#times.get(`${l}`); if (t === undefined) { process.emitWarning(`No such label '${l}' for console.timeEnd()`); return undefined; } const ms = (host.hrtime() - t) / 1e6; return ms >= 1000 ? `${(ms / 1000).toFixed(3)}s` : `${Number(ms.toFixed(3))}ms`; }
    timeEnd(l = 'default') { const t = this.#took(l); if (t) this.log(`${l}: ${t}`); this.#times.delete(`${l}`); } timeLog(l = 'default', ...a) { const t = this.#took(l); if (t) this.log(`${l}: ${t}`, ...a); }
    table(data, cols) {
      if (data === null || typeof data !== 'object') { this.log(data); return; }
      const fmt = (v) => inspect(v, { maxArrayLength: 3, breakLength: Infinity, depth: v !== null && typeof v === 'object' && !Array.isArray(v) && Object.keys(v).length > 2 ? -1 : 0 });
      const rows = [], keys = [];
      let values = false;
      const iter = data instanceof Map || data instanceof Set;
      const entries = data instanceof Map ? [...data].map(([k, v], i) => [i, { Key: k, Values: v }]) : data instanceof Set ? [...data].map((v, i) => [i, v]) : Object.entries(data);
      if (data instanceof Map) cols = ['Key', 'Values'];
      for (const [k, v] of entries) {
        const row = { index: `${k}`, cells: {} };
        if (v !== null && typeof v === 'object') { for (const c of cols ?? Object.keys(v)) if (Object.prototype.hasOwnProperty.call(v, c)) { row.cells[c] = fmt(v[c]); if (!keys.includes(c)) keys.push(c); } else if (!keys.includes(c)) keys.push(c); } else { row.value = fmt(v); values = true; }
        rows.push(row);
      }
      const head = [iter ? '(iteration index)' : '(index)', ...(cols ?? keys), ...(values ? ['Values'] : [])];
      const table = rows.map((r) => [r.index, ...(cols ?? keys).map((c) => r.cells[c] ?? ''), ...(values ? [r.value ?? ''] : [])]);
      const w = head.map((h, i) => Math.max(width(h), ...table.map((r) => width(r[i]))) + 2);
      const line = (l, m, r) => l + w.map((n) => '─'.repeat(n)).join(m) + r;
      const cell = (s, n) => ` ${s}${' '.repeat(n - width(s) - 1)}`;
      const row = (r) => '│' + r.map((s, i) => cell(s, w[i])).join('│') + '│';
      this.log([line('┌', '┬', '┐'), row(head), line('├', '┼', '┤'), ...table.map(row), line('└', '┴', '┘')].join('\n'));
    }
  }
  const c = new Console();
  Object.defineProperty(c, 'Console', { value: Console, writable: true, configurable: true });
  module.exports = c;
});
