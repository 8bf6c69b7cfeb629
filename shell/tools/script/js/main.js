// The beginning and the end of a run.
const uncaught = (e, kind) => {
  const { inspect } = require('internal/inspect');
  if (process.listenerCount(kind === 'unhandledRejection' ? 'uncaughtException' : 'uncaughtException')) {
    try { process.emit('uncaughtException', e, kind ?? 'uncaughtException'); return; } catch (again) { e = again; }
  }
  let text;
  if (e instanceof Error && typeof e.stack === 'string') {
    const extra = inspect(e);
    text = extra.startsWith('[') ? e.stack : extra;
    const at = /\n {4}at (?:.*\()?((?:\/|\[eval)[^:)]*):(\d+)(?::(\d+))?\)?/.exec(e.stack);
    if (at) {
      let line;
      try { line = (at[1].startsWith('[') ? info.source ?? '' : require('internal/loader').read(at[1])).split('\n')[at[2] - 1]; } catch { /* gone */ }
      if (line !== undefined && line.length < 2000) text = `${at[1]}:${at[2]}\n${line}\n${' '.repeat(Math.max(0, (at[3] ?? 1) - 1))}^\n\n${text}`;
    }
  } else if (e !== null && typeof e === 'object' || typeof e === 'function') text = `Uncaught:\n${inspect(e)}`;
  else text = `Uncaught ${inspect(e)}`;
  if (kind === 'unhandledRejection' && !(e instanceof Error)) text = `node:internal/process/promises:391\n    triggerUncaughtException(err, true /* fromPromise */);\n    ^\n\n[UnhandledPromiseRejection: This error originated either by throwing inside of an async function without a catch block, or by rejecting a promise which was not handled with .catch(). The promise rejected with the reason "${typeof e === 'string' ? e : inspect(e)}".] {\n  code: 'ERR_UNHANDLED_REJECTION'\n}`;
  host.write(2, `${text}\n\nNode.js ${process.version}\n`);
  process.exitCode = 1;
  if (!process._exiting) { process._exiting = true; try { process.emit('exit', 1); } catch { /* it has failed already */ } }
  host.exit(process.exitCode & 255 || 1);
};
const guarded = (fn) => (...a) => { try { return fn(...a); } catch (e) { uncaught(e); return undefined; } };
const rejections = new Map();
const hooks = {
  // begin takes what the program was called with.
  begin(given) {
    Object.assign(info, given);
    info.argv = [...given.argv]; info.execArgv = [...given.execArgv];
    info.env = Object.fromEntries(given.env.map((e) => { const i = e.indexOf('='); return [e.slice(0, i), e.slice(i + 1)]; }));
    info.origin = host.hrtime();
    process.exitCode = undefined;
    performance.timeOrigin = Date.now();
  },
  run: guarded(() => {
    const L = require('internal/loader'), path = require('path');
    for (const id of info.preload) L.makeRequire(Object.assign(new L.Module(), { filename: path.join(process.cwd(), '[eval]') }))(id);
    const global = (name) => {
      const m = new L.Module(name);
      m.filename = path.join(process.cwd(), name); m.path = process.cwd(); m.paths = L.Module._nodeModulePaths(process.cwd());
      for (const [k, v] of Object.entries({ module: m, exports: m.exports, require: L.makeRequire(m), __filename: name, __dirname: '.' })) hideProp(globalThis, k, v);
      for (const n of publicModules()) if (!n.includes('/') && !(n in globalThis)) Object.defineProperty(globalThis, n, { configurable: true, enumerable: false, get: () => require(n), set(v) { Object.defineProperty(globalThis, n, { value: v, writable: true, configurable: true, enumerable: false }); } });
    };
    if (info.mode === 'file') {
      let file;
      try { file = L.resolve(path.resolve(info.file), '/'); } catch (e) {
        if (e.code !== 'MODULE_NOT_FOUND') throw e;
        const err = new Error(`Cannot find module '${path.resolve(info.file)}'`);
        err.code = 'MODULE_NOT_FOUND'; err.requireStack = [];
        throw err;
      }
      info.argv[1] = file;
      const source = file.endsWith('.json') ? '' : L.read(file);
      if (info.check) { if (L.isModule(file, () => source)) return; host.compile(`(function (exports, require, module, __filename, __dirname) {${L.shebang(source)}\n})`, file, 'script'); return; }
      if (L.isModule(file, () => source)) watch(host.compile(L.moduleText(source, file), file, 'module')); else L.load(file, null, true);
      return;
    }
    const name = info.mode === 'stdin' ? '[stdin]' : '[eval]';
    if (info.type === 'module' || (info.type !== 'commonjs' && L.looksLikeModule(info.source))) {
      const file = path.join(process.cwd(), '[eval1]');
      watch(host.compile(L.moduleText(info.source, file), file, 'module'));
      return;
    }
    global(name);
    let r;
    try { r = host.compile(L.shebang(info.source), name, 'script'); } catch (e) {
      // The only way to await outside of a function in a script.
      if (!(e instanceof SyntaxError) || !/\bawait\b/.test(info.source)) throw e;
      watch(host.compile(L.moduleText(info.source, path.join(process.cwd(), '[eval1]')), path.join(process.cwd(), '[eval1]'), 'module'));
      return;
    }
    if (info.mode === 'print') console.log(r);
  }),
  ticks: guarded(runTicks),
  // settled is called when no microtask is left: what was rejected and is still nobody's ends the program.
  settled: guarded(() => {
    for (const [p, reason] of rejections) {
      rejections.delete(p);
      if (process.emit('unhandledRejection', reason, p)) continue;
      uncaught(reason, 'unhandledRejection');
    }
    return ticks.length > 0;
  }),
  turn() { try { return turn(); } catch (e) { uncaught(e); return 0; } },
  rejected(p, reason, handled) { if (handled) rejections.delete(p); else rejections.set(p, reason); },
  finish: guarded(() => {
    if (!process._beforeExit || timers.length || immediates.length) { process._beforeExit = true; process.emit('beforeExit', process.exitCode ?? 0); if (ticks.length || immediates.length || timers.some((t) => t._ref) || watches.length || pending.size || host.jobs()) { process._beforeExit = false; return true; } }
    if (awaited && host.promise(awaited)[0] === 0 && process.exitCode === undefined) { host.write(2, 'Warning: Detected unsettled top-level await\n'); process.exitCode = 13; }
    process.exit();
    return false;
  }),
  failed: guarded((e) => { throw e; }),
  signal(name, n) { if (!process.listenerCount(name)) return false; process.emit(name, name, n); return true; },
  resolve: (base, name) => require('internal/loader').esmResolve(base, name),
  source: (name) => require('internal/loader').esmSource(name),
  // grant gives the script the object tools: tools.name({...}) and, for names with slashes, tools.a.b({...}).
  grant() {
    const { stringify, parse } = JSON;
    const path = (name) => new Proxy(function tool() {}, {
      get: (t, key) => typeof key === 'symbol' || key === 'then' ? undefined : path(name === '' ? key : `${name}/${key}`),
      apply: (t, self, args) => {
        let answer;
        try { answer = host.tool(name, args.length === 0 || args[0] === undefined ? '{}' : stringify(args[0])); } catch (why) { throw typeof why === 'string' ? new Error(why) : why; }
        return parse(answer);
      },
    });
    hideProp(globalThis, 'tools', path(''));
  },
};
let awaited = null;
function watch(p) { awaited = p; if (p && typeof p.then === 'function') Promise.prototype.then.call(p, () => {}, (e) => { uncaught(e); }); }

const process = require('process');
{
  const { globals } = require('internal/web');
  const { Buffer, TextEncoder } = require('buffer');
  ({ TextDecoder, atob, btoa } = require('buffer'));
  ({ URL, URLSearchParams } = require('url'));
  const { setInterval, clearInterval, clearImmediate } = require('timers');
  ({ setTimeout, setImmediate, clearTimeout } = require('timers'));
  ({ Headers, performance, fetch, DOMException } = globals);
  console = require('console');
  Object.defineProperty(globalThis, Symbol.toStringTag, { value: 'global', configurable: true });
  for (const [k, v] of Object.entries({ ...globals, process, Buffer, URL, URLSearchParams, TextEncoder, TextDecoder, console, crypto: require('crypto').webcrypto })) hideProp(globalThis, k, v);
  Object.assign(globalThis, { global: globalThis, clearImmediate, setImmediate, clearInterval, clearTimeout, setInterval, setTimeout, queueMicrotask: (fn) => { if (typeof fn !== 'function') throw typeError('callback', 'of type function', fn); Promise.resolve().then(() => { try { fn(); } catch (e) { uncaught(e); } }); }, structuredClone: globals.structuredClone, atob, btoa, performance: globals.performance, fetch: globals.fetch });
  // What the interpreter's own errors look like: the message stands above the calls.
  Error.stackTraceLimit = 10;
  for (const n of ['fs', 'util', 'os', 'assert', 'stream', 'child_process', 'readline', 'zlib', 'internal/loader', 'module', 'http', 'querystring', 'path/posix', 'fs/promises']) require(n);
}
