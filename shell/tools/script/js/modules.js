define('os', (require, exports, module) => {
  const signals = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGILL: 4, SIGTRAP: 5, SIGABRT: 6, SIGBUS: 7, SIGFPE: 8, SIGKILL: 9, SIGUSR1: 10, SIGSEGV: 11, SIGUSR2: 12, SIGPIPE: 13, SIGALRM: 14, SIGTERM: 15, SIGCHLD: 17, SIGCONT: 18, SIGSTOP: 19, SIGTSTP: 20, SIGTTIN: 21, SIGTTOU: 22 };
  module.exports = {
    EOL: '\n', devNull: '/dev/null', constants: { signals, errno: Object.fromEntries(Object.entries(errnos).map(([k, v]) => [k, -v[0]])), priority: {} },
    platform: () => 'linux', type: () => 'Linux', arch: () => 'x64', machine: () => 'x86_64', release: () => '6.1.0', version: () => '#1 SMP', endianness: () => 'LE',
    hostname: () => info.hostname, homedir: () => process.env.HOME || info.home, tmpdir: () => (process.env.TMPDIR || process.env.TMP || process.env.TEMP || '/tmp').replace(/(.)\/$/, '$1'),
    cpus: () => Array.from({ length: info.cpus }, () => ({ model: 'simulated', speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } })), availableParallelism: () => info.cpus,
    totalmem: () => info.memory, freemem: () => Math.max(0, info.memory - host.memory()), loadavg: () => [0, 0, 0], uptime: () => host.hrtime() / 1e9, networkInterfaces: () => ({}),
    userInfo: () => ({ uid: info.uid, gid: info.gid, username: info.user, homedir: info.home, shell: '/bin/bash' }), getPriority: () => 0, setPriority() {},
  };
});
define('crypto', (require, exports, module) => {
  const { Buffer, make } = require('buffer');
  const data = (d, enc) => typeof d === 'string' ? bytesOf(Buffer.from(d, enc)) : bytesOf(d);
  const out = (b, enc) => enc === undefined || enc === 'buffer' ? make(b) : make(b).toString(enc);
  const call = (fn) => { try { return fn(); } catch (e) { if (typeof e === 'string') throw new Error(e); throw e; } };
  class Hash extends require('stream').Transform {
    #id; #done = false;
    constructor(id) { super({ transform: (c, e, cb) => { this.update(c); cb(); }, flush: (cb) => { cb(null, this.digest()); } }); this.#id = id; }
    update(d, enc) {
      if (this.#done) throw nodeError(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called');
      if (typeof d !== 'string' && !ArrayBuffer.isView(d)) throw typeError('data', 'of type string or an instance of Buffer, TypedArray, or DataView', d);
      call(() => host.hashUpdate(this.#id, data(d, enc)));
      return this;
    }
    digest(enc) { if (this.#done) throw nodeError(Error, 'ERR_CRYPTO_HASH_FINALIZED', 'Digest already called'); this.#done = true; return out(call(() => host.hashSum(this.#id, false)), enc); }
    copy() { return new Hash(call(() => host.hashSum(this.#id, true))); }
  }
  const none = new ArrayBuffer(0);
  const random = (n) => make(host.random(n));
  const cryptoExports = {
    createHash: (a) => new Hash(call(() => host.hashNew(String(a).toLowerCase(), false, none))),
    createHmac: (a, key) => new Hash(call(() => host.hashNew(String(a).toLowerCase(), true, data(key)))),
    hash: (a, d, enc = 'hex') => cryptoExports.createHash(a).update(d).digest(enc),
    getHashes: () => ['md5', 'sha1', 'sha224', 'sha256', 'sha384', 'sha512', 'sha512-256'], getCiphers: () => [], getCurves: () => [],
    randomBytes(n, cb) { if (typeof n !== 'number') throw typeError('size', 'of type number', n); if (!(n >= 0 && n <= 2147483647)) throw nodeError(RangeError, 'ERR_OUT_OF_RANGE', `The value of "size" is out of range. It must be >= 0 && <= 2147483647. Received ${n}`); const b = random(n); if (cb) { setImmediate(() => cb(null, b)); return undefined; } return b; },
    randomFillSync(b) { new Uint8Array(b.buffer ?? b, b.byteOffset ?? 0, b.byteLength).set(random(b.byteLength)); return b; },
    randomFill(b, cb) { cryptoExports.randomFillSync(b); setImmediate(() => cb(null, b)); },
    randomInt(lo, hi, cb) { if (hi === undefined || typeof hi === 'function') { cb = hi; hi = lo; lo = 0; } if (!(hi > lo)) throw nodeError(RangeError, 'ERR_OUT_OF_RANGE', `The value of "max" is out of range. It must be greater than the value of "min" (${lo}). Received ${hi}`); const n = lo + Number(random(8).readBigUInt64LE() % BigInt(hi - lo)); if (cb) { setImmediate(() => cb(null, n)); return undefined; } return n; },
    randomUUID() { const b = random(16); b[6] = b[6] & 15 | 64; b[8] = b[8] & 63 | 128; const h = b.toString('hex'); return `${h.slice(0, 8)}-${h.slice(8, 12)}-${h.slice(12, 16)}-${h.slice(16, 20)}-${h.slice(20)}`; },
    timingSafeEqual(a, b) { if (a.byteLength !== b.byteLength) throw nodeError(RangeError, 'ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH', 'Input buffers must have the same byte length'); let d = 0; for (let i = 0; i < a.length; i++) d |= a[i] ^ b[i]; return d === 0; },
    pbkdf2Sync: (p, s, n, len, alg) => make(call(() => host.pbkdf2(data(p), data(s), n, len, String(alg).toLowerCase()))),
    pbkdf2(p, s, n, len, alg, cb) { const k = cryptoExports.pbkdf2Sync(p, s, n, len, alg); setImmediate(() => cb(null, k)); },
    getRandomValues: (a) => cryptoExports.randomFillSync(a), constants: {},
  };
  cryptoExports.webcrypto = { getRandomValues: cryptoExports.getRandomValues, randomUUID: cryptoExports.randomUUID, subtle: { digest: async (a, d) => { const b = cryptoExports.createHash((a.name ?? a).replace('-', '')).update(new Uint8Array(bytesOf(d))).digest(); return bytesOf(b); } } };
  for (const k of ['createCipheriv', 'createDecipheriv', 'createSign', 'createVerify', 'generateKeyPairSync', 'scryptSync', 'createDiffieHellman']) cryptoExports[k] = () => { throw nodeError(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', `crypto.${k} is not available here`); };
  module.exports = cryptoExports;
});
define('zlib', (require, exports, module) => {
  const { Buffer, make } = require('buffer');
  const { Transform } = require('stream');
  const run = (kind) => (d, o) => {
    const src = typeof d === 'string' ? bytesOf(Buffer.from(d)) : bytesOf(d);
    try { return make(host.zlib(kind, src, o?.level ?? -1, o?.maxOutputLength ?? 0)); } catch (e) {
      if (typeof e !== 'string') throw e;
      const [code, errno, text] = e.split('|');
      throw Object.assign(nodeError(Error, code, text), { errno: Number(errno) });
    }
  };
  const z = { constants: { Z_NO_COMPRESSION: 0, Z_BEST_SPEED: 1, Z_BEST_COMPRESSION: 9, Z_DEFAULT_COMPRESSION: -1, Z_SYNC_FLUSH: 2, Z_FINISH: 4 } };
  for (const [name, cls] of [['gzip', 'Gzip'], ['gunzip', 'Gunzip'], ['deflate', 'Deflate'], ['inflate', 'Inflate'], ['deflateRaw', 'DeflateRaw'], ['inflateRaw', 'InflateRaw'], ['unzip', 'Unzip']]) {
    const sync = run(name);
    z[`${name}Sync`] = sync;
    z[name] = (d, o, cb) => { if (typeof o === 'function') { cb = o; o = undefined; } let r, err = null; try { r = sync(d, o); } catch (e) { err = e; } setImmediate(() => err ? cb(err) : cb(null, r)); };
    z[`create${cls}`] = (o) => { const parts = []; return new Transform({ transform(c, e, cb) { parts.push(c); cb(); }, flush(cb) { try { cb(null, sync(Buffer.concat(parts), o)); } catch (e) { cb(e); } } }); };
  }
  z.crc32 = (d, v = 0) => host.crc32(typeof d === 'string' ? bytesOf(Buffer.from(d)) : bytesOf(d), v);
  module.exports = z;
});
define('child_process', (require, exports, module) => {
  const { make, Buffer } = require('buffer');
  const EventEmitter = require('events');
  const names = () => Object.fromEntries(Object.entries(require('os').constants.signals).map(([k, v]) => [v, k]));
  const stdio = (s) => { const l = Array.isArray(s) ? s : [s, s, s]; return [0, 1, 2].map((i) => l[i] ?? 'pipe'); };
  function start(file, args, o) {
    const io = stdio(o.stdio ?? (o.inherit ? ['pipe', 'pipe', 'inherit'] : 'pipe'));
    const input = o.input === undefined || o.input === null ? io[0] === 'inherit' ? null : new ArrayBuffer(0) : typeof o.input === 'string' ? bytesOf(Buffer.from(o.input)) : bytesOf(o.input);
    const cwd = o.cwd === undefined ? '' : o.cwd instanceof URL ? require('url').fileURLToPath(o.cwd) : o.cwd;
    const argv = o.shell ? [typeof o.shell === 'string' ? o.shell : '/bin/sh', '-c', [file, ...args].join(' ')] : [file, ...args];
    const env = Object.entries(o.env ?? process.env).filter(([, v]) => v !== undefined).map(([k, v]) => `${k}=${v}`);
    const how = io.slice(1).map((s) => s === 'inherit' || s === process.stdout || s === process.stderr || typeof s === 'number' ? 'inherit' : s === 'ignore' ? 'ignore' : 'pipe');
    const [status, sig, out, err] = host.run(argv.map(String), env, cwd, input, how[0], how[1], o.maxBuffer ?? 1 << 20);
    return { status, signal: sig ? names()[sig] ?? null : null, stdout: how[0] === 'pipe' ? make(out) : null, stderr: how[1] === 'pipe' ? make(err) : null, pid: process.pid + 1, how };
  }
  function spawnSync(file, args, o) {
    if (!Array.isArray(args)) { o = args; args = []; }
    o = { ...o };
    if (!o.shell && !host.which(String(file))) { const e = Object.assign(new Error(`spawnSync ${file} ENOENT`), { errno: -2, code: 'ENOENT', syscall: `spawnSync ${file}`, path: file, spawnargs: args }); return { error: e, status: null, signal: null, output: null, pid: 0, stdout: null, stderr: null }; }
    const r = start(file, args, o);
    const text = (b) => b && o.encoding && o.encoding !== 'buffer' ? b.toString(o.encoding) : b;
    const stdout = text(r.stdout), stderr = text(r.stderr);
    return { pid: r.pid, output: [null, stdout, stderr], stdout, stderr, status: r.signal ? null : r.status, signal: r.signal };
  }
  function checked(r, cmd, o) {
    if (r.error) throw Object.assign(r.error, r);
    if (r.status !== 0) { const err = r.stderr ? r.stderr.toString() : ''; const e = new Error(`Command failed: ${cmd}${err ? `\n${err}` : ''}`); throw Object.assign(e, r); }
    return r.stdout;
  }
  const show = (r) => { if (r.stderr?.length) process.stderr.write(r.stderr); };
  const execSync = (cmd, o = {}) => { const r = spawnSync(cmd, [], { ...o, shell: o.shell ?? true }); if (!o.stdio) show(r); return checked(r, cmd, o); };
  const execFileSync = (file, args, o) => { if (!Array.isArray(args)) { o = args; args = []; } const r = spawnSync(file, args, { ...o }); if (!o?.stdio) show(r); return checked(r, [file, ...args].join(' '), o); };
  // spawn runs the child when its input has been written, or in the next round of the loop when nobody writes; what it says comes after.
  function spawn(file, args, o) {
    if (!Array.isArray(args)) { o = args; args = []; }
    o = { ...o };
    const { Readable, Writable } = require('stream');
    const c = new EventEmitter();
    const io = stdio(o.stdio);
    Object.assign(c, { spawnfile: file, spawnargs: [file, ...args], pid: undefined, exitCode: null, signalCode: null, killed: false, connected: false, kill() { c.killed = true; return false; }, ref() {}, unref() {} });
    const parts = [];
    let wrote = false, ran = false;
    c.stdin = io[0] === 'pipe' ? new Writable({ write(d, e, cb) { wrote = true; parts.push(d); cb(); }, final(cb) { cb(); go(); } }) : null;
    c.stdout = io[1] === 'pipe' ? new Readable({ read() {} }) : null;
    c.stderr = io[2] === 'pipe' ? new Readable({ read() {} }) : null;
    c.stdio = [c.stdin, c.stdout, c.stderr];
    const go = () => {
      if (ran) return;
      ran = true;
      setImmediate(() => {
        if (!o.shell && !host.which(String(file))) { c.emit('error', Object.assign(new Error(`spawn ${file} ENOENT`), { errno: -2, code: 'ENOENT', syscall: `spawn ${file}`, path: file, spawnargs: args })); c.stdout?.push(null); c.stderr?.push(null); return; }
        const r = start(file, args, { ...o, input: io[0] === 'pipe' ? Buffer.concat(parts) : undefined, stdio: io, maxBuffer: 1 << 30 });
        c.pid = r.pid;
        c.emit('spawn');
        for (const [s, d] of [[c.stdout, r.stdout], [c.stderr, r.stderr]]) if (s) { if (d?.length) s.push(d); s.push(null); }
        c.exitCode = r.signal ? null : r.status; c.signalCode = r.signal;
        setImmediate(() => {
          c.emit('exit', c.exitCode, c.signalCode);
          let open = [c.stdout, c.stderr].filter((s) => s && !s.readableEnded && (s.listenerCount('data') || s.listenerCount('readable'))).length;
          const close = () => { if (open-- <= 0) c.emit('close', c.exitCode, c.signalCode); };
          for (const s of [c.stdout, c.stderr]) if (s && !s.readableEnded && (s.listenerCount('data') || s.listenerCount('readable'))) s.once('end', close);
          close();
        });
      });
    };
    setImmediate(() => setImmediate(() => { if (!wrote && !c.stdin?._piped) go(); }));
    if (c.stdin) c.stdin.on('pipe', () => { c.stdin._piped = true; });
    return c;
  }
  function execFile(file, args, o, cb) {
    if (typeof args === 'function') { cb = args; args = []; o = {}; } else if (!Array.isArray(args)) { cb = o; o = args; args = []; }
    if (typeof o === 'function') { cb = o; o = {}; }
    const c = spawn(file, args, { ...o });
    const out = [], err = [];
    c.stdout?.on('data', (d) => out.push(d)); c.stderr?.on('data', (d) => err.push(d));
    const text = (l) => o?.encoding === 'buffer' || o?.encoding === null ? Buffer.concat(l) : Buffer.concat(l).toString(o?.encoding);
    c.on('error', (e) => cb?.(Object.assign(e, { cmd: [file, ...args].join(' ') }), '', ''));
    c.on('close', (code, signal) => {
      const so = text(out), se = text(err);
      if (code === 0 && !signal) { cb?.(null, so, se); return; }
      const cmd = o?.shell ? file : [file, ...args].join(' ');
      cb?.(Object.assign(new Error(`Command failed: ${cmd}\n${se}`), { code, killed: false, signal, cmd, stdout: so, stderr: se }), so, se);
    });
    return c;
  }
  const exec = (cmd, o, cb) => { if (typeof o === 'function') { cb = o; o = {}; } return execFile(cmd, [], { ...o, shell: o?.shell ?? true }, cb); };
  const both = Symbol.for('nodejs.util.promisify.custom');
  const promise = (fn) => (...a) => { let c; const p = new Promise((ok, no) => { c = fn(...a, (e, stdout, stderr) => e ? no(Object.assign(e, { stdout, stderr })) : ok({ stdout, stderr })); }); p.child = c; return p; };
  exec[both] = promise(exec); execFile[both] = promise(execFile);
  module.exports = { spawn, spawnSync, exec, execSync, execFile, execFileSync, fork() { throw nodeError(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', 'child_process.fork is not available here'); } };
});
define('readline', (require, exports, module) => {
  const EventEmitter = require('events');
  const { StringDecoder } = require('string_decoder');
  class Interface extends EventEmitter {
    constructor(o, output) {
      super();
      if (!o.input && o.on) o = { input: o, output };
      this.input = o.input; this.output = o.output; this.terminal = !!o.terminal; this.line = ''; this.closed = false; this._prompt = o.prompt ?? '> '; this._queue = []; this._asked = null;
      const dec = new StringDecoder('utf8');
      let rest = '', cr = false;
      const feed = (s) => {
        if (cr && s[0] === '\n') s = s.slice(1);
        cr = s.endsWith('\r');
        const lines = (rest + s).split(/\r\n|\n|\r/);
        rest = lines.pop();
        for (const l of lines) this._line(l);
      };
      this._data = (c) => feed(typeof c === 'string' ? c : dec.write(c));
      this._end = () => { const t = dec.end(); if (t) feed(t); if (rest) { const l = rest; rest = ''; this._line(l); } this._ended = true; this._drain(); };
      this.input.on('data', this._data);
      this.input.on('end', this._end);
      this.input.on('error', (e) => { this.emit('error', e); });
      this.input.resume?.();
      if (o.signal) o.signal.addEventListener('abort', () => this.close());
    }
    _line(l) { this._queue.push(l); this._drain(); }
    _drain() {
      while (this._queue.length && !this.paused && (!this.closed || this._iterating)) {
        const l = this._queue.shift();
        if (this._asked) { const f = this._asked; this._asked = null; f(l); } else if (!this._deaf) this.emit('line', l); else { this._queue.unshift(l); return; }
      }
      if (this._ended && !this._queue.length && !this.closed) this.close();
    }
    setPrompt(p) { this._prompt = p; } getPrompt() { return this._prompt; } prompt() { this.output?.write(this._prompt); }
    question(q, o, cb) { if (typeof o === 'function') cb = o; if (this.closed) throw nodeError(Error, 'ERR_USE_AFTER_CLOSE', 'readline was closed'); this.output?.write(q); this._asked = cb; this._deaf = false; process.nextTick(() => this._drain()); }
    write(s) { if (s !== null && s !== undefined) this._data(String(s)); }
    pause() { this.paused = true; this.input.pause?.(); this.emit('pause'); return this; } resume() { this.paused = false; this.input.resume?.(); this.emit('resume'); process.nextTick(() => this._drain()); return this; }
    close() { if (this.closed) return; this.closed = true; this.input.off('data', this._data); this.input.off('end', this._end); this.input.pause?.(); this.emit('close'); }
    async* [Symbol.asyncIterator]() {
      const lines = [];
      let wake, over = this.closed;
      this.on('line', (l) => { lines.push(l); wake?.(); });
      this.on('close', () => { over = true; wake?.(); });
      try { for (;;) { while (lines.length) yield lines.shift(); if (over) return; await new Promise((ok) => { wake = ok; }); } } finally { this.close(); }
    }
  }
  exports.Interface = Interface;
  exports.createInterface = (o, out) => new Interface(o, out);
  exports.cursorTo = exports.moveCursor = exports.clearLine = exports.clearScreenDown = (s, ...a) => { const cb = a.find((x) => typeof x === 'function'); cb?.(); return true; };
  exports.emitKeypressEvents = () => {};
  // Lines that come before anyone asks are kept.
  class Asked extends Interface { constructor(o) { super(o); this._deaf = true; } on(t, f) { if (t === 'line') { this._deaf = false; process.nextTick(() => this._drain()); } return super.on(t, f); } question(q, o) { return new Promise((ok, no) => { try { super.question(q, (l) => { this._deaf = true; ok(l); }); } catch (e) { no(e); } }); } }
  exports.promises = { Interface: Asked, createInterface: (o) => new Asked(o) };
});
define('readline/promises', (r, e, m) => { m.exports = r('readline').promises; });
define('tty', (r, e) => { e.isatty = (fd) => host.tty(fd) !== null; e.ReadStream = class {}; e.WriteStream = class {}; });
define('perf_hooks', (r, e) => { e.performance = performance; e.PerformanceObserver = class { observe() {} disconnect() {} }; e.constants = {}; });
define('async_hooks', (r, e) => {
  e.AsyncLocalStorage = class { #v; run(v, fn, ...a) { const old = this.#v; this.#v = v; try { return fn(...a); } finally { this.#v = old; } } getStore() { return this.#v; } enterWith(v) { this.#v = v; } exit(fn, ...a) { return this.run(undefined, fn, ...a); } disable() { this.#v = undefined; } };
  e.AsyncResource = class { constructor(t) { this.type = t; } runInAsyncScope(fn, self, ...a) { return fn.apply(self, a); } emitDestroy() {} }; e.createHook = () => ({ enable() {}, disable() {} }); e.executionAsyncId = () => 1; e.triggerAsyncId = () => 0;
});
define('vm', (r, e) => {
  const run = (code, name) => host.compile(String(code), name ?? 'evalmachine.<anonymous>', 'script');
  e.runInThisContext = (c, o) => run(c, typeof o === 'string' ? o : o?.filename);
  e.Script = class { constructor(c, o) { this.c = String(c); this.o = o; host.compile(`(function(){${this.c}\n})`, o?.filename ?? 'evalmachine.<anonymous>', 'script'); } runInThisContext() { return e.runInThisContext(this.c, this.o); } runInNewContext(s) { return e.runInNewContext(this.c, s, this.o); } runInContext(s) { return e.runInNewContext(this.c, s, this.o); } };
  e.createContext = (o = {}) => o; e.isContext = () => true;
  // A context is an object around the code, not another world.
  e.runInNewContext = e.runInContext = (c, s = {}) => { const p = new Proxy(s, { has: (t, k) => k !== '$c' && k !== 'eval', get: (t, k) => k === Symbol.unscopables ? undefined : k in t ? t[k] : globalThis[k] }); return new Function('$s', '$c', 'with ($s) { return eval($c) }')(p, String(c)); };
});
define('v8', (r, e) => { e.getHeapStatistics = () => ({ total_heap_size: host.memory(), used_heap_size: host.memory(), heap_size_limit: 512 << 20 }); e.serialize = (v) => r('buffer').Buffer.from(JSON.stringify(v)); e.deserialize = (b) => JSON.parse(b.toString()); });
define('diagnostics_channel', (r, e) => { const c = {}; e.channel = (n) => c[n] ??= { name: n, hasSubscribers: false, publish() {}, subscribe() {}, unsubscribe() {} }; });
define('constants', (r, e, m) => { m.exports = { ...r('fs').constants, ...r('os').constants.signals }; });
define('worker_threads', (r, e) => { e.isMainThread = true; e.parentPort = null; e.workerData = null; e.threadId = 0; e.Worker = class { constructor() { throw nodeError(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', 'worker_threads are not available here'); } }; });
for (const name of ['net', 'dgram', 'dns', 'tls', 'cluster', 'http2', 'inspector', 'repl']) define(name, (r, e, m) => { m.exports = new Proxy({}, { get: (t, k) => typeof k === 'symbol' || k in t || k === 'then' || k === 'default' ? t[k] : () => { throw nodeError(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', `${name}.${k} is not available here: there are no sockets; use fetch`); } }); });
define('module', (require, exports, module) => { const { Module, createRequire } = require('internal/loader'); module.exports = Module; Object.assign(Module, { createRequire, builtinModules: publicModules(), isBuiltin: (n) => builtin(n), Module, syncBuiltinESMExports() {} }); });
define('punycode', (r, e) => { e.toASCII = (d) => host.idna(d) ?? d; e.toUnicode = (d) => d; });
define('test', (require, exports, module) => {
  // node:test, as far as small suites go: TAP-like lines and an exit status.
  const queue = [];
  let count = 0, failed = 0, depth = 0, started = false;
  const run = async (t, indent) => {
    const pad = '    '.repeat(indent);
    const before = queue.length;
    void before;
    const ctx = { name: t.name, diagnostic: (m) => console.log(`${pad}# ${m}`), skip: () => { t.skip = true; }, todo: () => { t.todo = true; }, test: (n, o, f) => { if (typeof o === 'function') f = o; return run({ name: n, fn: f }, indent + 1); }, mock: {}, signal: undefined };
    let ok = true, err;
    if (!t.skip && t.fn) try { await t.fn(ctx); } catch (e) { ok = false; err = e; }
    if (indent === 0) count++;
    if (!ok && !t.todo) failed++;
    console.log(`${pad}${ok ? 'ok' : 'not ok'} ${count} - ${t.name}${t.skip ? ' # SKIP' : t.todo ? ' # TODO' : ''}`);
    if (err) console.log(`${pad}  ---\n${pad}  error: ${err?.message ?? err}\n${pad}  ...`);
  };
  const begin = () => { if (started) return; started = true; setImmediate(async () => { console.log('TAP version 13'); while (queue.length) await run(queue.shift(), 0); console.log(`1..${count}\n# tests ${count}\n# pass ${count - failed}\n# fail ${failed}`); if (failed) process.exitCode = 1; }); };
  const make = (extra) => (n, o, f) => { if (typeof n === 'function') { f = n; n = f.name || '<anonymous>'; } if (typeof o === 'function') { f = o; o = {}; } queue.push({ name: n, fn: f, ...o, ...extra }); begin(); };
  const test = make({});
  const hooks = { beforeEach: [], afterEach: [] };
  const it = make({});
  const describe = (n, o, f) => { if (typeof o === 'function') f = o; depth++; f?.(); depth--; };
  module.exports = Object.assign(test, { test, it, describe, suite: describe, before: (f) => queue.push({ name: 'before', fn: f }), after() {}, beforeEach: (f) => hooks.beforeEach.push(f), afterEach: (f) => hooks.afterEach.push(f) });
  for (const f of [test, it]) { f.skip = make({ skip: true }); f.todo = make({ todo: true }); f.only = f; }
});
