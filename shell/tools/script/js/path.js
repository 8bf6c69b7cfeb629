define('path', (require, exports, module) => {
  const str = (p, name = 'path') => { if (typeof p !== 'string') throw typeError(name, 'of type string', p); return p; };
  const norm = (p, above) => {
    const out = [];
    for (const s of p.split('/')) {
      if (s === '' || s === '.') continue;
      if (s === '..') { if (out.length && out[out.length - 1] !== '..') out.pop(); else if (above) out.push('..'); } else out.push(s);
    }
    return out.join('/');
  };
  const path = {
    sep: '/', delimiter: ':',
    resolve(...parts) {
      let r = '';
      for (let i = parts.length - 1; i >= -1 && r[0] !== '/'; i--) {
        const p = i >= 0 ? str(parts[i], `paths[${i}]`) : require('process').cwd();
        if (p.length) r = r ? `${p}/${r}` : p;
      }
      return '/' + norm(r, false);
    },
    normalize(p) {
      if (str(p).length === 0) return '.';
      const abs = p[0] === '/', dir = p.endsWith('/');
      let r = norm(p, !abs);
      if (!r) return abs ? '/' : dir ? './' : '.';
      if (dir) r += '/';
      return abs ? '/' + r : r;
    },
    isAbsolute: (p) => str(p)[0] === '/',
    join(...parts) { const j = parts.map((p) => str(p)).filter((p) => p.length).join('/'); return j ? path.normalize(j) : '.'; },
    relative(from, to) {
      from = path.resolve(str(from, 'from')); to = path.resolve(str(to, 'to'));
      if (from === to) return '';
      const a = from === '/' ? [] : from.slice(1).split('/'), b = to === '/' ? [] : to.slice(1).split('/');
      let i = 0;
      while (i < a.length && i < b.length && a[i] === b[i]) i++;
      return [...a.slice(i).map(() => '..'), ...b.slice(i)].join('/');
    },
    toNamespacedPath: (p) => p,
    dirname(p) {
      str(p);
      if (p.length === 0) return '.';
      let e = p.length;
      while (e > 1 && p[e - 1] === '/') e--;
      const i = p.lastIndexOf('/', e - 1);
      if (i === -1) return '.';
      let j = i;
      while (j > 0 && p[j - 1] === '/') j--;
      return j === 0 ? '/' : p.slice(0, j);
    },
    basename(p, ext) {
      str(p);
      let e = p.length;
      while (e > 0 && p[e - 1] === '/') e--;
      let b = p.slice(p.lastIndexOf('/', e - 1) + 1, e);
      if (e === 0) return '';
      if (ext !== undefined && b !== str(ext, 'suffix') && b.endsWith(ext)) b = b.slice(0, b.length - ext.length);
      return b;
    },
    extname(p) { const b = path.basename(str(p)); const i = b.lastIndexOf('.'); return i <= 0 || b === '..' ? '' : b.slice(i); },
    format(o) { const dir = o.dir || o.root, base = o.base || `${o.name ?? ''}${o.ext ? (o.ext[0] === '.' ? '' : '.') + o.ext : ''}`; return dir ? (dir === o.root ? `${dir}${base}` : `${dir}/${base}`) : base; },
    parse(p) {
      const root = str(p)[0] === '/' ? '/' : '';
      const base = path.basename(p), ext = path.extname(p);
      let dir = path.dirname(p);
      if (dir === '.' && !p.startsWith('.')) dir = '';
      if (dir === '.' && !p.includes('/')) dir = '';
      return { root, dir: base === '' ? root : dir, base, ext, name: ext ? base.slice(0, -ext.length) : base };
    },
    matchesGlob: undefined,
  };
  delete path.matchesGlob;
  path.posix = path;
  path.win32 = path;
  module.exports = path;
});
define('path/posix', (r, e, m) => { m.exports = r('path'); });
