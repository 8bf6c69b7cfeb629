// Modules: node's rules for finding them, in both kinds.
const hidden = (n) => n.startsWith('internal/');
const publicModules = () => Object.keys(defs).filter((n) => !hidden(n) && n !== 'test').sort();
const builtin = (n) => n.startsWith('node:') ? n.slice(5) in defs && !hidden(n.slice(5)) : n in defs && !hidden(n) && n !== 'test';
define('internal/loader', (require, exports) => {
  const path = require('path'), url = require('url');
  const requireOwn = require;
  const read = (p) => host.text(host.readFile(p), 'utf8');
  const kind = (p) => { try { return (host.stat(p, true)[0] & 61440) === 16384 ? 'd' : 'f'; } catch { return ''; } };
  const packages = new Map();
  const packageAt = (dir) => { if (!packages.has(dir)) { let j = null; try { const t = read(`${dir === '/' ? '' : dir}/package.json`); try { j = JSON.parse(t); } catch (e) { throw nodeError(Error, 'ERR_INVALID_PACKAGE_CONFIG', `Invalid package config ${dir}/package.json.`); } } catch (e) { if (e instanceof Error) throw e; } packages.set(dir, j); } return packages.get(dir); };
  const scope = (file) => { for (let d = path.dirname(file); ; d = path.dirname(d)) { const p = packageAt(d); if (p) return [p, d]; if (d === '/' || d.endsWith('/node_modules')) return [null, d]; } };
  const asFile = (p) => { if (kind(p) === 'f') return p; for (const e of ['.js', '.json', '.node', '.cjs', '.mjs']) if (e !== '.cjs' && e !== '.mjs' && kind(p + e) === 'f') return p + e; return null; };
  const asDir = (p) => { if (kind(p) !== 'd') return null; const main = packageAt(p)?.main; if (typeof main === 'string') { const m = path.resolve(p, main); const f = asFile(m) ?? asFile(path.join(m, 'index')); if (f) return f; } return asFile(path.join(p, 'index')); };
  const target = (t, conds, star) => {
    if (typeof t === 'string') return star === undefined ? t : t.replaceAll('*', star);
    if (Array.isArray(t)) { for (const x of t) { const r = target(x, conds, star); if (r) return r; } return null; }
    if (t && typeof t === 'object') for (const [k, v] of Object.entries(t)) if (k === 'default' || conds.includes(k)) { const r = target(v, conds, star); if (r !== undefined) return r; }
    return t === null ? null : undefined;
  };
  const mapped = (map, sub, conds) => {
    if (typeof map === 'string' || Array.isArray(map) || !Object.keys(map).some((k) => k[0] === '.' || k[0] === '#')) return sub === '.' ? target(map, conds) : undefined;
    if (sub in map && !sub.includes('*')) return target(map[sub], conds);
    let best, star;
    for (const k of Object.keys(map)) { const i = k.indexOf('*'); if (i < 0) continue; const a = k.slice(0, i), b = k.slice(i + 1); if (sub.startsWith(a) && sub.endsWith(b) && sub.length >= k.length && (!best || k.length > best.length)) { best = k; star = sub.slice(a.length, sub.length - b.length); } }
    return best ? target(map[best], conds, star) : undefined;
  };
  const missing = (id, from, esm) => {
    if (esm) return nodeError(Error, 'ERR_MODULE_NOT_FOUND', /^[./]/.test(id) ? `Cannot find module '${path.resolve(path.dirname(from), id)}' imported from ${from}` : `Cannot find package '${id.split('/').slice(0, id[0] === '@' ? 2 : 1).join('/')}' imported from ${from}`);
    const e = new Error(`Cannot find module '${id}'${from ? `\nRequire stack:\n- ${from}` : ''}`);
    e.code = 'MODULE_NOT_FOUND'; e.requireStack = from ? [from] : [];
    return e;
  };
  function resolve(id, from, esm = false) {
    const conds = esm ? ['node', 'import', 'module-sync'] : ['node', 'require', 'module-sync'];
    const dir = path.dirname(from);
    if (id.startsWith('file:')) id = url.fileURLToPath(id);
    if (/^(\.{1,2}(\/|$)|\/)/.test(id)) {
      const p = path.resolve(dir, id);
      let r;
      if (esm) { r = kind(p) === 'f' ? p : null; if (!r && kind(p) === 'd') throw nodeError(Error, 'ERR_UNSUPPORTED_DIR_IMPORT', `Directory import '${p}' is not supported resolving ES modules imported from ${from}`); } else r = (/\/$|(^|\/)\.\.?$/.test(id) ? null : asFile(p)) ?? asDir(p) ?? asFile(p);
      if (!r) throw missing(id, from, esm);
      return host.realpath(r);
    }
    if (id[0] === '#') { const [p, d] = scope(from); const t = p?.imports && mapped(p.imports, id, conds); if (!t) throw nodeError(TypeError, 'ERR_PACKAGE_IMPORT_NOT_DEFINED', `Package import specifier "${id}" is not defined${p ? ` in package ${d}/package.json` : ''} imported from ${from}`); return t[0] === '.' ? host.realpath(path.resolve(d, t)) : resolve(t, from, esm); }
    const parts = id.split('/'), n = id[0] === '@' ? 2 : 1, name = parts.slice(0, n).join('/'), sub = ['.', ...parts.slice(n)].join('/');
    const [own, ownDir] = scope(from);
    const find = (d) => {
      const p = packageAt(d);
      if (p?.exports !== undefined && p.exports !== null) {
        const t = mapped(p.exports, sub, conds);
        if (!t) throw nodeError(Error, 'ERR_PACKAGE_PATH_NOT_EXPORTED', sub === '.' ? `No "exports" main defined in ${d}/package.json` : `Package subpath '${sub}' is not defined by "exports" in ${d}/package.json`);
        return host.realpath(path.resolve(d, t));
      }
      const f = path.join(d, sub);
      const r = sub === '.' ? asDir(d) : asFile(f) ?? (esm ? null : asDir(f));
      return r ? host.realpath(r) : null;
    };
    if (own?.name === name && own.exports) return find(ownDir);
    const dirs = [];
    for (let d = dir; ; d = path.dirname(d)) { if (path.basename(d) !== 'node_modules') dirs.push(path.join(d, 'node_modules')); if (d === '/') break; }
    for (const p of (process.env.NODE_PATH ?? '').split(':')) if (p && !esm) dirs.push(p);
    for (const d of dirs) { if (kind(path.join(d, name)) === '' && kind(path.join(d, name) + '.js') === '') continue; const r = kind(path.join(d, name)) === 'd' ? find(path.join(d, name)) : asFile(path.join(d, name)); if (r) return r; }
    throw missing(id, from, esm);
  }
  const looksLikeModule = (s) => /^\s*(import\s*(["'{*]|[\w$]+\s*(,|from\b))|export\s+(default\b|const\b|let\b|var\b|function\b|class\b|async\b|\{|\*))/m.test(s) || /\bimport\.meta\b/.test(s);
  const isModule = (file, source) => file.endsWith('.mjs') ? true : file.endsWith('.cjs') || file.endsWith('.json') ? false : (() => { const t = scope(file)[0]?.type; return t === 'module' ? true : t === 'commonjs' ? false : looksLikeModule(source()); })();
  const shebang = (s) => s.startsWith('#!') ? '//' + s.slice(2) : s.charCodeAt(0) === 0xfeff ? s.slice(1) : s;

  function Module(id = '', parent) { this.id = id; this.path = path.dirname(id); this.exports = {}; hideProp(this, 'parent', parent); this.filename = null; this.loaded = false; this.children = []; this.paths = []; }
  Module._cache = Object.create(null);
  Module._extensions = Object.assign(Object.create(null), {
    '.js': (m, f) => m._compile(read(f), f),
    '.json': (m, f) => { try { m.exports = JSON.parse(shebang(read(f))); } catch (e) { e.message = `${f}: ${e.message}`; throw e; } },
  });
  Module._resolveFilename = (id, parent) => builtin(id) ? id : resolve(id, parent?.filename ?? path.join(process.cwd(), '[eval]'));
  Module._load = (id, parent) => makeRequire(parent ?? new Module('.'))(id);
  Module._nodeModulePaths = (d) => { const l = []; for (; ; d = path.dirname(d)) { l.push(path.join(d, 'node_modules')); if (d === '/') return l; } };
  Module.wrap = (s) => `(function (exports, require, module, __filename, __dirname) { ${s}\n});`;
  Module.prototype.require = function (id) { return makeRequire(this)(id); };
  Module.prototype._compile = function (source, file) {
    const fn = host.compile(`(function (exports, require, module, __filename, __dirname) {${shebang(source)}\n})`, file, 'script');
    return fn.call(this.exports, this.exports, makeRequire(this), this, file, path.dirname(file));
  };
  const native = (id) => { const n = id.replace(/^node:/, ''); return requireOwn(n); };
  let depth = 0;
  function load(file, parent, main = false) {
    const have = Module._cache[file];
    if (have) { if (parent && !parent.children.includes(have)) parent.children.push(have); return have.exports; }
    const m = new Module(main ? '.' : file, parent);
    m.filename = file; m.path = path.dirname(file); m.paths = Module._nodeModulePaths(m.path);
    if (main) { mainModule = m; Object.defineProperty(process, 'mainModule', { value: m, configurable: true }); }
    Module._cache[file] = m;
    parent?.children.push(m);
    const ext = path.extname(file);
    let ok = false;
    if (++depth > 24) { depth = 0; throw new Error(`modules are nested too deep: ${file}`); }
    try {
      if (!(ext in Module._extensions) || ext === '.js') {
        const s = read(file);
        if (isModule(file, () => s)) throw nodeError(Error, 'ERR_REQUIRE_ESM', `require() of ES Module ${file} not supported.\nInstead change the require of ${path.basename(file)} to a dynamic import() which is available in all CommonJS modules.`);
        if (Module._extensions['.js'] === ownJS) m._compile(s, file); else Module._extensions['.js'](m, file);
      } else Module._extensions[ext](m, file);
      ok = true;
    } finally { depth = Math.max(0, depth - 1); if (!ok) delete Module._cache[file]; }
    m.loaded = true;
    return m.exports;
  }
  const ownJS = Module._extensions['.js'];
  let mainModule;
  function makeRequire(m) {
    const req = (id) => {
      if (typeof id !== 'string') throw typeError('id', 'of type string', id);
      if (id === '') throw nodeError(TypeError, 'ERR_INVALID_ARG_VALUE', "The argument 'id' must be a non-empty string. Received ''");
      if (builtin(id)) return native(id);
      if (id.startsWith('node:')) throw nodeError(Error, 'ERR_UNKNOWN_BUILTIN_MODULE', `No such built-in module: ${id}`);
      return load(resolve(id, m.filename ?? path.join(process.cwd(), '[eval]')), m);
    };
    req.resolve = Object.assign((id) => Module._resolveFilename(id, m), { paths: () => Module._nodeModulePaths(m.path) });
    Object.defineProperty(req, 'main', { value: mainModule, enumerable: true, writable: true });
    req.extensions = Module._extensions;
    req.cache = Module._cache;
    return req;
  }
  const createRequire = (f) => { const m = new Module(); m.filename = f instanceof URL || String(f).startsWith('file:') ? url.fileURLToPath(f) : f; m.path = path.dirname(m.filename); return makeRequire(m); };

  // Of ES modules the interpreter asks for a name and a source.
  const esmResolve = (base, id) => {
    if (builtin(id)) return id.startsWith('node:') ? id : `node:${id}`;
    if (id.startsWith('node:')) throw nodeError(Error, 'ERR_UNKNOWN_BUILTIN_MODULE', `No such built-in module: ${id}`);
    if (id.startsWith('data:')) return id;
    if (/^https?:/.test(id)) throw nodeError(Error, 'ERR_UNSUPPORTED_ESM_URL_SCHEME', `Only URLs with a scheme in: file, data, and node are supported by the default ESM loader. Received protocol '${id.slice(0, id.indexOf(':') + 1)}'`);
    const [p, q] = id.split(/(?=\?)/);
    return resolve(p, base.startsWith('/') ? base.split('?')[0] : path.join(process.cwd(), '[eval1]'), true) + (q ?? '');
  };
  const shared = Symbol.for('carrel.module');
  const wrap = (m, key, names) => {
    globalThis[shared] ?? hideProp(globalThis, shared, new Map());
    globalThis[shared].set(key, m);
    let out = `const m = globalThis[Symbol.for('carrel.module')].get(${JSON.stringify(key)});export default ${'m'};`;
    for (const n of names) if (/^[\p{ID_Start}$_][\p{ID_Continue}$]*$/u.test(n) && n !== 'default') out += `const _${n}=m[${JSON.stringify(n)}];export{_${n} as ${n}};`;
    return out;
  };
  const namesOf = (m) => m !== null && (typeof m === 'object' || typeof m === 'function') ? Object.keys(m) : [];
  const esmSource = (name) => {
    if (name.startsWith('node:')) { const m = native(name); return wrap(m, name, [...new Set([...namesOf(m), ...(name === 'node:process' ? ['stdin', 'stdout', 'stderr'] : []), ...(name === 'node:events' ? ['once', 'on'] : [])])].filter((n) => n !== 'default' && !(typeof m === 'function' && ['prototype', 'name', 'length'].includes(n)))); }
    if (name.startsWith('data:')) { const m = /^data:[^,]*?(;base64)?,(.*)$/s.exec(name); return m[1] ? atob(decodeURIComponent(m[2])) : decodeURIComponent(m[2]); }
    const file = name.split('?')[0];
    if (file.endsWith('.json')) { JSON.parse(read(file)); return wrap(JSON.parse(read(file)), name, []); }
    let s;
    try { s = read(file); } catch (e) { throw missing(file, 'the main module', true); }
    if (!isModule(file, () => s)) { const m = load(file); const names = namesOf(m); return m && m.__esModule && false ? '' : wrap(m, name, names); }
    return moduleText(s, name);
  };
  const moduleText = (s, name) => {
    s = shebang(s);
    if (!/\bimport\s*\.\s*meta\b/.test(s)) return s;
    const file = name.split('?')[0];
    const u = name.startsWith('/') ? url.pathToFileURL(file).href + name.slice(file.length) : name;
    resolvers.set(name, (id) => { const r = esmResolve(name, id); return r.startsWith('/') ? url.pathToFileURL(r).href : r; });
    globalThis[shared] ?? hideProp(globalThis, shared, new Map());
    globalThis[shared].set('meta:' + name, { url: u, filename: file, dirname: path.dirname(file), resolve: resolvers.get(name) });
    return `Object.assign(import.meta, globalThis[Symbol.for('carrel.module')].get(${JSON.stringify('meta:' + name)}), {dirname: ${JSON.stringify(path.dirname(file))}});` + s;
  };
  const resolvers = new Map();
  Object.assign(exports, { Module, createRequire, makeRequire, load, resolve, isModule, looksLikeModule, esmResolve, esmSource, moduleText, shebang, read });
});
