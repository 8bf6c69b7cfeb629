define('url', (require, exports, module) => {
  const ports = { 'http:': '80', 'https:': '443', 'ws:': '80', 'wss:': '443', 'ftp:': '21' };
  const special = (p) => p in ports || p === 'file:';
  const enc = (s, set) => { let out = ''; for (const c of s) { const n = c.codePointAt(0); if (n <= 0x20 || n > 0x7e || set.includes(c)) { for (const b of new Uint8Array(host.bytes(c, 'utf8'))) out += '%' + b.toString(16).toUpperCase().padStart(2, '0'); } else out += c; } return out; };
  const invalid = (input, base) => { const e = nodeError(TypeError, 'ERR_INVALID_URL', 'Invalid URL'); e.input = input; if (base !== undefined) e.base = base; return e; };
  const dots = (segs, sp) => { const out = []; segs.forEach((s, i) => { const last = i === segs.length - 1; const d = s.toLowerCase().replaceAll('%2e', '.'); if (d === '..') { out.pop(); if (last) out.push(''); } else if (d === '.') { if (last) out.push(''); } else out.push(s); }); return out; };
  function hostOf(h, sp, bad) {
    if (h.startsWith('[')) { if (!/^\[[0-9a-fA-F:.]+\]$/.test(h)) throw bad(); return h.toLowerCase(); }
    if (!sp) { if (/[\0\t\n\r #/<>?@[\\\]^|]/.test(h)) throw bad(); return enc(h, ''); }
    try { h = decodeURIComponent(h); } catch { throw bad(); }
    h = h.toLowerCase();
    if (/[^\0-\x7f]/.test(h)) { const a = host.idna(h); if (a === null) throw bad(); h = a; }
    if (h === '' || /[\0-\x20#%/:<>?@[\\\]^`{|}\x7f]/.test(h)) throw bad();
    const parts = h.split('.');
    if (parts[parts.length - 1] === '' && parts.length > 1) parts.pop();
    if (/^(\d+|0x[0-9a-f]*)$/.test(parts[parts.length - 1])) {
      const nums = parts.map((p) => /^0x[0-9a-f]*$/.test(p) ? parseInt(p.slice(2) || '0', 16) : /^0[0-7]+$/.test(p) ? parseInt(p, 8) : /^\d+$/.test(p) ? Number(p) : NaN);
      if (nums.length > 4 || nums.some(Number.isNaN) || nums.slice(0, -1).some((n) => n > 255)) throw bad();
      let v = nums[nums.length - 1];
      if (v >= 256 ** (5 - nums.length)) throw bad();
      nums.slice(0, -1).forEach((n, i) => { v += n * 256 ** (3 - i); });
      return [24, 16, 8, 0].map((s) => Math.floor(v / 2 ** s) % 256).join('.');
    }
    return h;
  }
  function parse(input, base, original) {
    const bad = () => invalid(original, base?.href);
    let s = input.replace(/^[\0-\x20]+|[\0-\x20]+$/g, '').replace(/[\t\n\r]/g, '');
    const u = { protocol: '', username: '', password: '', hostname: '', port: '', path: '', search: '', hash: '', opaque: false, hasHost: false };
    let m = /#(.*)$/s.exec(s);
    if (m) { u.hash = m[1] ? '#' + enc(m[1], ' "<>`') : ''; s = s.slice(0, m.index); }
    m = /^([a-zA-Z][a-zA-Z0-9+.-]*):/.exec(s);
    let rest = s;
    if (m && !(base && special(base.protocol) && m[1].toLowerCase() + ':' === base.protocol && !/^[/\\]/.test(s.slice(m[0].length)))) { u.protocol = m[1].toLowerCase() + ':'; rest = s.slice(m[0].length); } else {
      if (!base) throw bad();
      if (m) rest = s.slice(m[0].length);
      if (base.opaque) { if (rest !== '' ) throw bad(); return { ...base, hash: u.hash }; }
      u.protocol = base.protocol;
      const sp = special(u.protocol);
      if (sp) rest = rest.replace(/\\/g, (c, i) => rest.indexOf('?') >= 0 && i > rest.indexOf('?') ? c : '/');
      if (!rest.startsWith('//')) {
        Object.assign(u, { username: base.username, password: base.password, hostname: base.hostname, port: base.port, hasHost: base.hasHost });
        const q = rest.indexOf('?');
        let p = q >= 0 ? rest.slice(0, q) : rest;
        u.search = q >= 0 ? (rest.slice(q + 1) ? '?' + enc(rest.slice(q + 1), sp ? ` "#<>'` : ' "#<>') : '') : p === '' ? base.search : '';
        if (p === '') u.path = base.path;
        else { p = enc(p, ' "#<>?`{}^'); u.path = p.startsWith('/') ? '/' + dots(p.slice(1).split('/')).join('/') : '/' + dots([...base.path.slice(1).split('/').slice(0, -1), ...p.split('/')]).join('/'); }
        return u;
      }
    }
    const sp = special(u.protocol);
    const q = rest.indexOf('?');
    let query = '';
    if (q >= 0) { query = rest.slice(q + 1); rest = rest.slice(0, q); }
    u.search = query ? '?' + enc(query, sp ? ` "#<>'` : ' "#<>') : '';
    if (sp) rest = rest.replaceAll('\\', '/');
    if (sp && u.protocol !== 'file:') rest = '//' + rest.replace(/^\/+/, '');
    if (rest.startsWith('//')) {
      u.hasHost = true;
      const slash = rest.indexOf('/', 2);
      let auth = slash >= 0 ? rest.slice(2, slash) : rest.slice(2);
      rest = slash >= 0 ? rest.slice(slash) : '';
      const at = auth.lastIndexOf('@');
      if (at >= 0) { const [, user, pass] = /^([^:]*):?(.*)$/s.exec(auth.slice(0, at)); const set = ' "#<>?`{}/:;=@[\\]^|'; u.username = enc(user, set); u.password = enc(pass, set); auth = auth.slice(at + 1); }
      m = /:(\d*)$/.exec(auth);
      if (m && !/^\[[^\]]*$/.test(auth)) { if (m[1] !== '') { if (Number(m[1]) > 65535) throw bad(); u.port = String(Number(m[1])); if (u.port === ports[u.protocol]) u.port = ''; } auth = auth.slice(0, m.index); } else if (/:[^\]]*$/.test(auth) && !auth.startsWith('[')) throw bad();
      if (u.protocol === 'file:' && (auth === '' || auth === 'localhost')) u.hostname = '';
      else { if (auth === '' && sp) throw bad(); u.hostname = auth === '' ? '' : hostOf(auth, sp, bad); }
    } else if (u.protocol === 'file:') u.hasHost = true;
    else if (!rest.startsWith('/')) { u.opaque = true; u.path = enc(rest, ''); return u; }
    const p = enc(rest, ' "#<>?`{}^');
    u.path = p === '' ? (sp ? '/' : '') : '/' + dots(p.replace(/^\//, '').split('/')).join('/');
    return u;
  }
  const form = (s) => { let out = ''; for (const b of new Uint8Array(host.bytes(String(s), 'utf8'))) { const c = String.fromCharCode(b); out += /[A-Za-z0-9*\-._]/.test(c) ? c : b === 32 ? '+' : '%' + b.toString(16).toUpperCase().padStart(2, '0'); } return out; };
  const unform = (s) => { s = s.replaceAll('+', ' '); if (!s.includes('%')) return s; const b = []; const src = new Uint8Array(host.bytes(s, 'utf8')); for (let i = 0; i < src.length; i++) { const h = src[i] === 37 ? String.fromCharCode(src[i + 1], src[i + 2]) : ''; if (/^[0-9a-fA-F]{2}$/.test(h)) { b.push(parseInt(h, 16)); i += 2; } else b.push(src[i]); } return host.text(new Uint8Array(b).buffer, 'utf8'); };
  class Params {
    #list = []; #url = null;
    constructor(init = '', url) {
      this.#url = url ?? null;
      if (typeof init === 'string') { for (const p of init.replace(/^\?/, '').split('&')) if (p) { const i = p.indexOf('='); this.#list.push(i < 0 ? [unform(p), ''] : [unform(p.slice(0, i)), unform(p.slice(i + 1))]); } } else if (init && typeof init[Symbol.iterator] === 'function') { for (const e of init) { const p = [...e]; if (p.length !== 2) throw nodeError(TypeError, 'ERR_INVALID_TUPLE', 'Each query pair must be an iterable [name, value] tuple'); this.#list.push(p.map(String)); } } else if (init) for (const [k, v] of Object.entries(init)) this.#list.push([k, String(v)]);
    }
    #changed() { this.#url?.(this.toString()); }
    get size() { return this.#list.length; }
    append(k, v) { this.#list.push([String(k), String(v)]); this.#changed(); }
    delete(k, v) { this.#list = this.#list.filter(([a, b]) => a !== String(k) || (v !== undefined && b !== String(v))); this.#changed(); }
    get(k) { return this.#list.find(([a]) => a === String(k))?.[1] ?? null; }
    getAll(k) { return this.#list.filter(([a]) => a === String(k)).map(([, b]) => b); }
    has(k, v) { return this.#list.some(([a, b]) => a === String(k) && (v === undefined || b === String(v))); }
    set(k, v) { const i = this.#list.findIndex(([a]) => a === String(k)); if (i < 0) this.append(k, v); else { this.#list[i][1] = String(v); this.#list = this.#list.filter(([a], j) => j <= i || a !== String(k)); this.#changed(); } }
    sort() { this.#list.sort(([a], [b]) => a < b ? -1 : a > b ? 1 : 0); this.#changed(); }
    forEach(fn, self) { for (const [k, v] of this.#list) fn.call(self, v, k, this); }
    *entries() { for (const [k, v] of this.#list) yield [k, v]; }
    *keys() { for (const [k] of this.#list) yield k; }
    *values() { for (const [, v] of this.#list) yield v; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#list.map(([k, v]) => `${form(k)}=${form(v)}`).join('&'); }
    get [Symbol.toStringTag]() { return 'URLSearchParams'; }
    [Symbol.for('nodejs.util.inspect.custom')](d, o, inspect) { const l = this.#list.map(([k, v]) => `${inspect(k)} => ${inspect(v)}`); return l.length ? `URLSearchParams { ${l.join(', ')} }` : 'URLSearchParams {}'; }
  }
  class Address {
    #u; #params;
    constructor(input, base) { input = String(input); const b = base === undefined ? undefined : base instanceof Address ? base.#u : parse(String(base), undefined, String(base)); this.#u = parse(input, b && { ...b, href: String(base) }, input); }
    static canParse(i, b) { try { new Address(i, b); return true; } catch { return false; } }
    static parse(i, b) { try { return new Address(i, b); } catch { return null; } }
    get href() { const u = this.#u; const auth = u.username || u.password ? `${u.username}${u.password ? ':' + u.password : ''}@` : ''; return `${u.protocol}${u.hasHost ? `//${auth}${this.host}` : ''}${u.path}${u.search}${u.hash}`; }
    set href(v) { this.#u = parse(String(v), undefined, String(v)); this.#params = undefined; }
    get origin() { return special(this.protocol) && this.protocol !== 'file:' ? `${this.protocol}//${this.host}` : 'null'; }
    get protocol() { return this.#u.protocol; } set protocol(v) { v = String(v).replace(/:.*$/, '').toLowerCase() + ':'; if (/^[a-z][a-z0-9+.-]*:$/.test(v) && special(v) === special(this.#u.protocol)) { this.#u.protocol = v; if (this.#u.port === ports[v]) this.#u.port = ''; } }
    get username() { return this.#u.username; } set username(v) { this.#u.username = enc(String(v), ' "#<>?`{}/:;=@[\\]^|'); }
    get password() { return this.#u.password; } set password(v) { this.#u.password = enc(String(v), ' "#<>?`{}/:;=@[\\]^|'); }
    get hostname() { return this.#u.hostname; } set hostname(v) { try { this.#u.hostname = hostOf(String(v), special(this.#u.protocol), () => new Error()); } catch { /* unchanged */ } }
    get port() { return this.#u.port; } set port(v) { v = String(v); if (v === '') this.#u.port = ''; else { const m = /^\d+/.exec(v); if (m && Number(m[0]) < 65536) this.#u.port = String(Number(m[0])) === ports[this.#u.protocol] ? '' : String(Number(m[0])); } }
    get host() { return this.#u.hostname + (this.#u.port ? ':' + this.#u.port : ''); } set host(v) { const m = /^(.*?)(?::(\d+))?$/.exec(String(v)); this.hostname = m[1]; if (m[2] !== undefined) this.port = m[2]; }
    get pathname() { return this.#u.path; } set pathname(v) { if (!this.#u.opaque) { v = enc(String(v), ' "#<>?`{}^'); this.#u.path = '/' + dots(v.replace(/^\//, '').split('/')).join('/'); } }
    get search() { return this.#u.search; } set search(v) { v = String(v).replace(/^\?/, ''); this.#u.search = v ? '?' + enc(v, ` "#<>'`) : ''; this.#params = undefined; }
    get hash() { return this.#u.hash; } set hash(v) { v = String(v).replace(/^#/, ''); this.#u.hash = v ? '#' + enc(v, ' "<>`') : ''; }
    get searchParams() { return this.#params ??= new Params(this.#u.search, (s) => { this.#u.search = s ? '?' + s : ''; }); }
    toString() { return this.href; } toJSON() { return this.href; }
    get [Symbol.toStringTag]() { return 'URL'; }
    [Symbol.for('nodejs.util.inspect.custom')](depth, opts, inspect) {
      if (depth < 0) return this.href;
      const o = {};
      for (const k of ['href', 'origin', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'searchParams', 'hash']) o[k] = this[k];
      return `URL ${inspect(o, opts)}`;
    }
  }
  for (const k of ['href', 'origin', 'protocol', 'username', 'password', 'host', 'hostname', 'port', 'pathname', 'search', 'searchParams', 'hash']) Object.defineProperty(Address.prototype, k, { enumerable: true });
  const fileURLToPath = (u) => {
    if (typeof u === 'string') u = new Address(u);
    if (u.protocol !== 'file:') throw nodeError(TypeError, 'ERR_INVALID_URL_SCHEME', 'The URL must be of scheme file');
    if (u.hostname !== '') throw nodeError(TypeError, 'ERR_INVALID_FILE_URL_HOST', 'File URL host must be "localhost" or empty on linux');
    return decodeURIComponent(u.pathname);
  };
  const pathToFileURL = (p) => { const r = require('path').resolve(p); const u = new Address('file:///'); u.pathname = (p.endsWith('/') && r !== '/' ? r + '/' : r).replaceAll('%', '%25').replaceAll('\\', '%5C').replaceAll('\n', '%0A').replaceAll('?', '%3F').replaceAll('#', '%23'); return u; };
  // The old interface.
  const legacy = (s, query) => {
    const m = /^(?:([a-zA-Z][a-zA-Z0-9+.-]*:))?(\/\/)?(?:([^/?#@]*)@)?([^/?#:]*)?(?::(\d+))?([^?#]*)(\?[^#]*)?(#.*)?$/.exec(s) ?? [];
    let [, protocol = null, slashes, auth = null, hostname = null, port = null, pathname, search = null, hash = null] = m;
    if (!slashes) { pathname = (hostname ?? '') + (port ? ':' + port : '') + (pathname ?? ''); hostname = null; port = null; }
    if (slashes && pathname === '') pathname = '/';
    return { protocol, slashes: slashes ? true : null, auth, host: hostname === null ? null : hostname + (port ? ':' + port : ''), port, hostname, hash, search, query: query ? require('querystring').parse((search ?? '').slice(1)) : search ? search.slice(1) : null, pathname: pathname || null, path: (pathname || '') + (search ?? '') || null, href: s };
  };
  const urlFormat = (o) => o instanceof Address ? o.href : typeof o === 'string' ? o : `${o.protocol ? o.protocol.replace(/:?$/, ':') : ''}${o.slashes || /^(https?|ftp|file):?$/.test(o.protocol ?? '') ? '//' : ''}${o.auth ? o.auth + '@' : ''}${o.host ?? ((o.hostname ?? '') + (o.port ? ':' + o.port : ''))}${o.pathname ? ((o.host || o.hostname) && o.pathname[0] !== '/' ? '/' : '') + o.pathname : ''}${o.search ? o.search.replace(/^\??/, '?') : o.query && Object.keys(o.query).length ? '?' + require('querystring').stringify(o.query) : ''}${o.hash ? o.hash.replace(/^#?/, '#') : ''}`;
  hideProp(Address, 'name', 'URL');
  hideProp(Params, 'name', 'URLSearchParams');
  module.exports = { URL: Address, URLSearchParams: Params, fileURLToPath, pathToFileURL, parse: legacy, format: urlFormat, resolve: (a, b) => { const u = new Address(b, new Address(a, 'resolve://')); return u.protocol === 'resolve:' ? u.pathname + u.search + u.hash : u.href; }, domainToASCII: (d) => host.idna(d) ?? '', domainToUnicode: (d) => d, urlToHttpOptions: (u) => ({ protocol: u.protocol, hostname: u.hostname, hash: u.hash, search: u.search, pathname: u.pathname, path: u.pathname + u.search, href: u.href, port: u.port ? Number(u.port) : '' }) };
});
define('querystring', (require, exports, module) => {
  const esc = (s) => encodeURIComponent(s).replace(/[']/g, '%27').replace(/%27/g, "'");
  const un = (s) => { try { return decodeURIComponent(s); } catch { return s; } };
  const prim = (v) => typeof v === 'string' ? v : typeof v === 'number' && Number.isFinite(v) || typeof v === 'boolean' || typeof v === 'bigint' ? String(v) : '';
  const stringify = (o, sep = '&', eq = '=', opt) => Object.entries(o ?? {}).flatMap(([k, v]) => [].concat(v).map((x) => (opt?.encodeURIComponent ?? esc)(k) + eq + (opt?.encodeURIComponent ?? esc)(prim(x)))).join(sep);
  const parse = (s, sep = '&', eq = '=') => { const o = Object.create(null); for (const p of String(s).split(sep)) { if (!p) continue; const i = p.indexOf(eq); const k = un((i < 0 ? p : p.slice(0, i)).replaceAll('+', ' ')), v = i < 0 ? '' : un(p.slice(i + eq.length).replaceAll('+', ' ')); if (k in o) { if (Array.isArray(o[k])) o[k].push(v); else o[k] = [o[k], v]; } else o[k] = v; } return o; };
  module.exports = { stringify, parse, encode: stringify, decode: parse, escape: esc, unescape: un };
});
