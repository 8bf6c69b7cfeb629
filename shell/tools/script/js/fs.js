define('fs', (require, exports, module) => {
  const { Buffer, make, encodingOf } = require('buffer');
  const constants = { F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1, O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_EXCL: 128, O_TRUNC: 512, O_APPEND: 1024,
    S_IFMT: 61440, S_IFREG: 32768, S_IFDIR: 16384, S_IFCHR: 8192, S_IFIFO: 4096, S_IFLNK: 40960, COPYFILE_EXCL: 1, COPYFILE_FICLONE: 2 };
  const flagNames = { 'r': 0, 'rs': 0, 'r+': 2, 'rs+': 2, 'w': 577, 'wx': 705, 'xw': 705, 'w+': 578, 'wx+': 706, 'xw+': 706, 'a': 1089, 'ax': 1217, 'a+': 1090, 'ax+': 1218, 'as': 1089, 'as+': 1090 };
  const flagsOf = (f, other) => {
    if (f === undefined || f === null) return flagNames[other];
    if (typeof f === 'number') return f;
    if (flagNames[f] === undefined) throw nodeError(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument 'flags' is invalid. Received ${require('internal/inspect').inspect(f)}`);
    return flagNames[f];
  };
  const modeOf = (m, other) => m === undefined || m === null ? other : typeof m === 'string' ? parseInt(m, 8) : m;
  const pathOf = (p, name = 'path') => {
    if (typeof p === 'string') { /* as it is */ } else if (p instanceof URL) p = require('url').fileURLToPath(p); else if (p instanceof Uint8Array) p = utf8(p);
    else throw typeError(name, 'of type string or an instance of Buffer or URL', p);
    if (p.includes('\0')) throw nodeError(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument '${name}' must be a string, Uint8Array, or URL without null bytes. Received ${require('internal/inspect').inspect(p)}`);
    return p;
  };
  const fdOf = (fd) => { if (typeof fd !== 'number') throw typeError('fd', 'of type number', fd); return fd; };
  const opts = (o, more) => typeof o === 'string' ? { ...more, encoding: o } : { ...more, ...(o ?? {}) };
  const dataOf = (d, o) => {
    if (typeof d === 'string') { const e = encodingOf(o?.encoding); return e === 'utf8' ? d : bytesOf(Buffer.from(d, e)); }
    if (ArrayBuffer.isView(d)) return bytesOf(d);
    throw typeError('data', 'of type string or an instance of Buffer, TypedArray, or DataView', d);
  };
  const withEnc = (b, enc) => enc === undefined || enc === null || enc === 'buffer' ? make(b) : enc === 'utf8' || enc === 'utf-8' ? host.text(b, 'utf8') : make(b).toString(enc);

  class Stats {
    constructor(r) {
      [this.mode, this.size, this.ino, this.nlink, this.uid, this.gid, this.mtimeMs] = r;
      this.dev = 1; this.rdev = 0; this.blksize = 4096; this.blocks = Math.ceil(this.size / 512);
      this.atimeMs = this.ctimeMs = this.birthtimeMs = this.mtimeMs;
      for (const k of ['atime', 'mtime', 'ctime', 'birthtime']) Object.defineProperty(this, k, { value: new Date(this[`${k}Ms`]), enumerable: true, writable: true, configurable: true });
    }
    isFile() { return (this.mode & 61440) === 32768; } isDirectory() { return (this.mode & 61440) === 16384; } isSymbolicLink() { return (this.mode & 61440) === 40960; }
    isCharacterDevice() { return (this.mode & 61440) === 8192; } isBlockDevice() { return false; } isFIFO() { return (this.mode & 61440) === 4096; } isSocket() { return false; }
  }
  const bigStats = (s) => { const b = Object.create(Stats.prototype); for (const [k, v] of Object.entries(s)) b[k] = typeof v === 'number' ? BigInt(Math.trunc(v)) : v; b.mode = BigInt(s.mode); for (const f of ['isFile', 'isDirectory', 'isSymbolicLink']) { const r = s[f](); Object.defineProperty(b, f, { value: () => r }); } return b; };
  const kind = Symbol('type');
  class Dirent {
    constructor(name, parent, type) { this.name = name; this.parentPath = parent; this.path = parent; this[kind] = type; }
    isFile() { return this[kind] === 'f'; } isDirectory() { return this[kind] === 'd'; } isSymbolicLink() { return this[kind] === 'l'; }
    isCharacterDevice() { return this[kind] === 'c'; } isBlockDevice() { return false; } isFIFO() { return this[kind] === 'p'; } isSocket() { return false; }
  }
  const stat = (call, p, follow, o) => {
    p = pathOf(p);
    try { const s = new Stats(sys(call, p, undefined, () => host.stat(p, follow))); return o?.bigint ? bigStats(s) : s; } catch (e) { if (o?.throwIfNoEntry === false && e.code === 'ENOENT') return undefined; throw e; }
  };
  const join = (a, b) => a.endsWith('/') ? a + b : `${a}/${b}`;
  const one = (call, fn) => (p, ...a) => { p = pathOf(p); return sys(call, p, undefined, () => fn(p, ...a)); };
  const two = (call, fn, n1 = 'oldPath', n2 = 'newPath') => (a, b, ...r) => { a = pathOf(a, n1); b = pathOf(b, n2); sys(call, a, b, () => fn(a, b, ...r)); };
  const time = (t) => t instanceof Date ? t.getTime() / 1000 : Number(t);

  const fs = {
    constants, ...constants, Stats, Dirent,
    readFileSync(p, o) {
      o = opts(o);
      if (o.encoding) encodingOf(o.encoding);
      if (typeof p === 'number') return withEnc(sys('read', undefined, undefined, () => host.readAll(p)), o.encoding);
      p = pathOf(p);
      let call = 'open';
      try { return withEnc(host.readFile(p), o.encoding); } catch (n) { if (n === 'EISDIR') { call = 'read'; return sys(call, undefined, undefined, () => { throw n; }); } return sys(call, p, undefined, () => { throw n; }); }
    },
    writeFileSync(p, d, o) {
      o = opts(o);
      d = dataOf(d, o);
      if (typeof p === 'number') { sys('write', undefined, undefined, () => host.write(p, d)); return; }
      p = pathOf(p);
      sys('open', p, undefined, () => host.writeFile(p, d, flagsOf(o.flag, 'w'), modeOf(o.mode, 0o666)));
    },
    appendFileSync(p, d, o) { fs.writeFileSync(p, d, { ...opts(o), flag: opts(o).flag ?? 'a' }); },
    openSync(p, f, m) { p = pathOf(p); return sys('open', p, undefined, () => host.open(p, flagsOf(f, 'r'), modeOf(m, 0o666))); },
    closeSync(fd) { sys('close', undefined, undefined, () => host.close(fdOf(fd))); },
    readSync(fd, b, off, len, pos) {
      if (off !== null && typeof off === 'object') ({ offset: off, length: len, position: pos } = off);
      off ??= 0; len ??= b.byteLength - off;
      const r = sys('read', undefined, undefined, () => host.read(fdOf(fd), len, typeof pos === 'bigint' ? Number(pos) : pos ?? -1));
      new Uint8Array(b.buffer, b.byteOffset, b.byteLength).set(new Uint8Array(r), off);
      return r.byteLength;
    },
    writeSync(fd, b, off, len, pos) {
      if (typeof b === 'string') { if (typeof off === 'number') pos = off; b = Buffer.from(b, typeof len === 'string' ? len : undefined); off = 0; len = b.length; }
      if (off !== null && typeof off === 'object') ({ offset: off, length: len, position: pos } = off);
      off ??= 0; len ??= b.byteLength - off;
      return sys('write', undefined, undefined, () => host.pwrite(fdOf(fd), b.buffer.slice(b.byteOffset + off, b.byteOffset + off + len), pos ?? -1));
    },
    readvSync(fd, list, pos) { let n = 0; for (const b of list) { const r = fs.readSync(fd, b, 0, b.byteLength, pos == null ? null : pos + n); n += r; if (r < b.byteLength) break; } return n; },
    writevSync(fd, list, pos) { let n = 0; for (const b of list) n += fs.writeSync(fd, b, 0, b.byteLength, pos == null ? null : pos + n); return n; },
    fsyncSync() {}, fdatasyncSync() {},
    fstatSync(fd) { return new Stats(sys('fstat', undefined, undefined, () => host.fstat(fdOf(fd)))); },
    ftruncateSync(fd, n = 0) { sys('ftruncate', undefined, undefined, () => host.ftruncate(fdOf(fd), n)); },
    statSync: (p, o) => stat('stat', p, true, o), lstatSync: (p, o) => stat('lstat', p, false, o),
    existsSync(p) { try { host.stat(pathOf(p), true); return true; } catch { return false; } },
    accessSync(p, m = 0) { p = pathOf(p); sys('access', p, undefined, () => host.access(p, m)); },
    readdirSync(p, o) {
      o = opts(o);
      p = pathOf(p);
      const out = [];
      const walk = (dir, rel) => {
        for (const [name, type] of sys('scandir', dir, undefined, () => host.readdir(dir))) {
          out.push(o.withFileTypes ? new Dirent(name, dir, type) : o.encoding === 'buffer' ? Buffer.from(rel + name) : rel + name);
          if (o.recursive && type === 'd') walk(join(dir, name), `${rel}${name}/`);
        }
      };
      if (!o.recursive) { walk(p, ''); return out; }
      const queue = [[p, '']]; // breadth first, as node does
      while (queue.length) {
        const [dir, rel] = queue.shift();
        for (const [name, type] of sys('scandir', dir, undefined, () => host.readdir(dir))) {
          out.push(o.withFileTypes ? new Dirent(name, dir, type) : rel + name);
          if (type === 'd') queue.push([join(dir, name), `${rel}${name}/`]);
        }
      }
      return out;
    },
    opendirSync(p) { const list = fs.readdirSync(p, { withFileTypes: true }); return { path: p, readSync: () => list.shift() ?? null, read: async () => list.shift() ?? null, closeSync() {}, async close() {}, async* [Symbol.asyncIterator]() { yield* list; } }; },
    mkdirSync(p, o) { p = pathOf(p); o = typeof o === 'object' && o !== null ? o : { mode: o }; const r = sys('mkdir', p, undefined, () => host.mkdir(p, modeOf(o.mode, 0o777), !!o.recursive)); return o.recursive ? r ?? undefined : undefined; },
    mkdtempSync(prefix) {
      const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
      const p = pathOf(prefix, 'prefix') + Array.from(new Uint8Array(host.random(6)), (b) => letters[b % 62]).join('');
      sys('mkdtemp', `${prefix}XXXXXX`, undefined, () => host.mkdir(p, 0o700, false));
      return p;
    },
    rmdirSync(p, o) { p = pathOf(p); if (o?.recursive) { fs.rmSync(p, { recursive: true }); return; } sys('rmdir', p, undefined, () => host.rmdir(p)); },
    rmSync(p, o = {}) {
      p = pathOf(p);
      const s = fs.lstatSync(p, { throwIfNoEntry: false });
      if (!s) { if (o?.force) return; stat('rm', p, false); }
      if (s.isDirectory() && !o?.recursive) { const e = nodeError(Error, 'ERR_FS_EISDIR', `Path is a directory: rm returned EISDIR (is a directory) ${p}`); e.name = 'SystemError'; e.errno = 21; e.syscall = 'rm'; e.path = p; throw e; }
      sys('rm', p, undefined, () => host.rm(p));
    },
    unlinkSync: one('unlink', (p) => host.unlink(p)),
    renameSync: two('rename', (a, b) => host.rename(a, b)),
    linkSync: two('link', (a, b) => host.link(a, b), 'existingPath'),
    symlinkSync: two('symlink', (a, b) => host.symlink(a, b), 'target', 'path'),
    readlinkSync: one('readlink', (p) => host.readlink(p)),
    realpathSync: one('realpath', (p) => host.realpath(p)),
    chmodSync: one('chmod', (p, m) => host.chmod(p, modeOf(m))), fchmodSync() {}, lchmodSync() {},
    chownSync: one('chown', (p, u, g) => host.chown(p, u, g)), lchownSync: one('lchown', (p, u, g) => host.chown(p, u, g)), fchownSync() {},
    utimesSync: one('utime', (p, a, m) => host.utimes(p, time(m) * 1000)), lutimesSync: one('lutime', (p, a, m) => host.utimes(p, time(m) * 1000)), futimesSync() {},
    truncateSync: one('open', (p, n = 0) => host.truncate(p, n)),
    copyFileSync(a, b, m = 0) {
      a = pathOf(a, 'src'); b = pathOf(b, 'dest');
      sys('copyfile', a, b, () => { const s = host.stat(a, true); host.writeFile(b, host.readFile(a), m & 1 ? flagNames.wx : flagNames.w, s[0] & 0o777); });
    },
    cpSync(a, b, o = {}) {
      a = pathOf(a, 'src'); b = pathOf(b, 'dest');
      const copy = (from, to) => {
        if (o.filter && !o.filter(from, to)) return;
        const s = o.dereference ? fs.statSync(from) : fs.lstatSync(from);
        if (s.isDirectory()) {
          if (!o.recursive) throw nodeError(Error, 'ERR_FS_EISDIR', `Recursive option not enabled, cannot copy a directory: cp returned EISDIR (${from} is a directory (not copied)) ${from}`);
          fs.mkdirSync(to, { recursive: true });
          for (const n of fs.readdirSync(from)) copy(join(from, n), join(to, n));
        } else if (s.isSymbolicLink()) {
          fs.rmSync(to, { force: true });
          fs.symlinkSync(fs.readlinkSync(from), to);
        } else {
          if (o.force === false && fs.existsSync(to)) { if (o.errorOnExist) throw nodeError(Error, 'ERR_FS_CP_EEXIST', `Target already exists: cp returned EEXIST (${to} already exists) ${to}`); return; }
          fs.mkdirSync(require('path').dirname(to), { recursive: true });
          fs.copyFileSync(from, to);
        }
      };
      copy(a, b);
    },
    watch() { throw nodeError(Error, 'ERR_FEATURE_UNAVAILABLE_ON_PLATFORM', 'fs.watch is not available here'); },
    watchFile() { return fs.watch(); }, unwatchFile() {},
  };
  fs.realpathSync.native = fs.realpathSync;

  const promises = { constants };
  for (const name of Object.keys(fs).filter((k) => k.endsWith('Sync'))) {
    const sync = fs[name], base = name.slice(0, -4);
    // Callbacks and promises come later, as they do in node, though the work is done at once.
    fs[base] = function (...args) {
      const cb = args.pop();
      if (typeof cb !== 'function') throw typeError('cb', 'of type function', cb);
      let r, err = null;
      try { r = sync(...args); } catch (e) { if (e instanceof TypeError) throw e; err = e; }
      setImmediate(() => {
        if (base === 'exists') cb(r); else if (err) cb(err); else if (base === 'read' || base === 'write') cb(null, r, args[1]); else if (r === undefined) cb(null); else cb(null, r);
      });
    };
    if (!/^(exists|f[a-z]+|read|write|readv|writev|close|open)$/.test(base)) promises[base] = (...args) => later(() => {
      const p = args[0];
      if (p instanceof FileHandle) args[0] = p.fd;
      return sync(...args);
    });
  }
  const later = (fn) => new Promise((ok, no) => {
    let r, err, failed = false;
    try { r = fn(); } catch (e) { err = e; failed = true; }
    setImmediate(() => failed ? no(err) : ok(r));
  });
  class FileHandle extends require('events') {
    constructor(fd) { super(); this.fd = fd; }
    async close() { fs.closeSync(this.fd); this.fd = -1; this.emit('close'); }
    read(b, ...a) { return later(() => { if (b === undefined || !ArrayBuffer.isView(b)) { const o = b ?? {}; b = o.buffer ?? Buffer.alloc(16384); a = [o.offset, o.length, o.position]; } return { bytesRead: fs.readSync(this.fd, b, ...a), buffer: b }; }); }
    write(b, ...a) { return later(() => ({ bytesWritten: fs.writeSync(this.fd, b, ...a), buffer: b })); }
    readFile(o) { return later(() => fs.readFileSync(this.fd, o)); }
    writeFile(d, o) { return later(() => fs.writeFileSync(this.fd, d, o)); }
    appendFile(d, o) { return this.writeFile(d, o); }
    stat() { return later(() => fs.fstatSync(this.fd)); }
    truncate(n) { return later(() => fs.ftruncateSync(this.fd, n)); }
    async sync() {} async datasync() {} async chmod() {} async utimes() {}
    readLines() { return require('readline').createInterface({ input: fs.createReadStream(null, { fd: this.fd }) }); }
    createReadStream(o) { return fs.createReadStream(null, { ...o, fd: this.fd }); }
    createWriteStream(o) { return fs.createWriteStream(null, { ...o, fd: this.fd }); }
    async [Symbol.asyncDispose]() { await this.close(); }
  }
  promises.open = (p, f, m) => later(() => new FileHandle(fs.openSync(p, f, m)));
  promises.opendir = (p) => later(() => fs.opendirSync(p));
  fs.exists = (p, cb) => { const r = fs.existsSync(p); setImmediate(() => cb(r)); };
  Object.defineProperty(fs, 'promises', { value: promises, enumerable: true });

  fs.createReadStream = (p, o) => {
    const { Readable } = require('stream');
    o = opts(o);
    let fd = o.fd ?? null, at = o.start ?? -1, left = o.end === undefined ? Infinity : o.end - (o.start ?? 0) + 1;
    const construct = fd !== null ? undefined : (cb) => { try { fd = fs.openSync(p, o.flags ?? 'r', o.mode); r.fd = fd; r.emit('open', fd); r.emit('ready'); cb(); } catch (e) { cb(e); } };
    const r = new Readable({ highWaterMark: o.highWaterMark ?? 65536, encoding: o.encoding, construct, read(n) {
      try {
        const b = Buffer.alloc(Math.min(n, left, 65536));
        const got = b.length ? fs.readSync(fd, b, 0, b.length, at) : 0;
        if (at >= 0) at += got;
        left -= got;
        r.bytesRead += got;
        this.push(got ? b.subarray(0, got) : null);
      } catch (e) { this.destroy(e); }
    }, destroy(e, cb) { if (fd !== null && o.autoClose !== false && fd > 2) try { fs.closeSync(fd); } catch { /* closed */ } fd = null; cb(e); } });
    r.path = p; r.bytesRead = 0;
    return r;
  };
  fs.createWriteStream = (p, o) => {
    const { Writable } = require('stream');
    o = opts(o);
    let fd = o.fd ?? null, at = o.start ?? -1;
    const open = () => { if (fd === null) { fd = fs.openSync(p, o.flags ?? 'w', o.mode); w.fd = fd; w.emit('open', fd); w.emit('ready'); } };
    const w = new Writable({ defaultEncoding: o.encoding, construct(cb) { try { open(); cb(); } catch (e) { cb(e); } },
      write(b, enc, cb) { try { const n = fs.writeSync(fd, b, 0, b.length, at); if (at >= 0) at += n; w.bytesWritten += n; cb(); } catch (e) { cb(e); } },
      destroy(e, cb) { if (fd !== null && o.autoClose !== false && fd > 2) try { fs.closeSync(fd); } catch { /* closed */ } fd = null; cb(e); } });
    w.path = p; w.bytesWritten = 0;
    return w;
  };
  module.exports = fs;
});
define('fs/promises', (require, exports, module) => { module.exports = require('fs').promises; });
