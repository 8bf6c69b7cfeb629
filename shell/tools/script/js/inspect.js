// util.inspect, as node formats values.
define('internal/inspect', (require, exports) => {
  const custom = Symbol.for('nodejs.util.inspect.custom');
  const defaults = { depth: 2, showHidden: false, colors: false, breakLength: 80, compact: 3, maxArrayLength: 100, maxStringLength: 10000,
    sorted: false, getters: false, numericSeparator: false, customInspect: true };
  const styles = { special: 36, number: 33, bigint: 33, boolean: 33, undefined: 90, null: 1, string: 32, symbol: 32, date: 35, regexp: 31 };
  const closers = { 1: 22 };
  const OBJECT = 0, ARRAY = 1, EXTRAS = 2;
  const hasOwn = (o, k) => Object.prototype.hasOwnProperty.call(o, k);
  const classOf = (v) => Object.prototype.toString.call(v).slice(8, -1);
  const brand = (fn) => (v) => { try { fn(v); return true; } catch { return false; } };
  const getter = (proto, name) => { const g = Object.getOwnPropertyDescriptor(proto, name).get; return (v) => g.call(v); };
  const TypedArray = Object.getPrototypeOf(Uint8Array);
  const typedTag = getter(TypedArray.prototype, Symbol.toStringTag);
  const errProto = Error.prototype;
  const types = {
    isMap: brand(getter(Map.prototype, 'size')), isSet: brand(getter(Set.prototype, 'size')),
    isDate: brand((v) => Date.prototype.getTime.call(v)),
    isRegExp: (v) => typeof v === 'object' && v !== null && brand((x) => { getter(RegExp.prototype, 'global')(x); if (x === RegExp.prototype) throw 0; })(v),
    isTypedArray: (v) => typedTag(v) !== undefined, isUint8Array: (v) => typedTag(v) === 'Uint8Array',
    isArrayBuffer: brand(getter(ArrayBuffer.prototype, 'byteLength')), isAnyArrayBuffer: brand(getter(ArrayBuffer.prototype, 'byteLength')),
    isDataView: brand(getter(DataView.prototype, 'byteLength')), isArrayBufferView: (v) => ArrayBuffer.isView(v),
    isPromise: (v) => typeof v === 'object' && v !== null && host.promise(v)[0] >= 0,
    isProxy: (v) => v !== null && (typeof v === 'object' || typeof v === 'function') && host.proxy(v)[0],
    isWeakMap: brand((v) => WeakMap.prototype.has.call(v, {})), isWeakSet: brand((v) => WeakSet.prototype.has.call(v, {})),
    isNativeError: (v) => typeof v === 'object' && v !== null && (v instanceof Error || classOf(v) === 'Error'),
    isAsyncFunction: (v) => typeof v === 'function' && /^Async/.test(classOf(v)),
    isGeneratorFunction: (v) => typeof v === 'function' && /GeneratorFunction$/.test(classOf(v)),
    isGeneratorObject: (v) => classOf(v) === 'Generator', isMapIterator: (v) => classOf(v) === 'Map Iterator', isSetIterator: (v) => classOf(v) === 'Set Iterator',
    isNumberObject: (v) => typeof v === 'object' && brand((x) => Number.prototype.valueOf.call(x))(v),
    isStringObject: (v) => typeof v === 'object' && brand((x) => String.prototype.valueOf.call(x))(v),
    isBooleanObject: (v) => typeof v === 'object' && brand((x) => Boolean.prototype.valueOf.call(x))(v),
    isSymbolObject: (v) => typeof v === 'object' && brand((x) => Symbol.prototype.valueOf.call(x))(v),
    isBigIntObject: (v) => typeof v === 'object' && brand((x) => BigInt.prototype.valueOf.call(x))(v),
    isArgumentsObject: (v) => classOf(v) === 'Arguments' && !(Symbol.toStringTag in v),
    isModuleNamespaceObject: (v) => typeof v === 'object' && v !== null && Object.getPrototypeOf(v) === null && hasOwn(v, Symbol.toStringTag) && v[Symbol.toStringTag] === 'Module',
  };
  types.isBoxedPrimitive = (v) => types.isNumberObject(v) || types.isStringObject(v) || types.isBooleanObject(v) || types.isSymbolObject(v) || types.isBigIntObject(v);
  for (const n of ['Uint8ClampedArray', 'Int8Array', 'Uint16Array', 'Int16Array', 'Uint32Array', 'Int32Array', 'Float32Array', 'Float64Array', 'BigInt64Array', 'BigUint64Array']) {
    types['is' + n] = (v) => typedTag(v) === n;
  }

  const stylize = (ctx, s, style) => {
    if (!ctx.colors || styles[style] === undefined) return s;
    const c = styles[style];
    return `\x1b[${c}m${s}\x1b[${closers[c] ?? 39}m`;
  };
  const meta = { '\b': '\\b', '\t': '\\t', '\n': '\\n', '\f': '\\f', '\r': '\\r', '\\': '\\\\', '\v': '\\x0B' };
  const quote = (s) => {
    let q = "'";
    if (s.includes("'")) {
      if (!s.includes('"')) q = '"';
      else if (!s.includes('`') && !s.includes('${')) q = '`';
    }
    let out = '';
    for (let i = 0; i < s.length; i++) {
      const c = s[i], n = s.charCodeAt(i);
      if (c === q && q === "'") out += "\\'";
      else if (meta[c]) out += meta[c];
      else if (n < 32 || (n >= 127 && n <= 159)) out += '\\x' + n.toString(16).toUpperCase().padStart(2, '0');
      else if (n >= 0xd800 && n <= 0xdfff) {
        const m = s.charCodeAt(i + 1);
        if (n <= 0xdbff && m >= 0xdc00 && m <= 0xdfff) { out += c + s[++i]; } else out += '\\u' + n.toString(16).toUpperCase();
      } else out += c;
    }
    return q + out + q;
  };
  const wide = (c) => c >= 0x1100 && (c <= 0x115f || (c >= 0x2e80 && c <= 0x3247) || (c >= 0x3250 && c <= 0x4dbf) || (c >= 0x4e00 && c <= 0xa4c6) ||
    (c >= 0xa960 && c <= 0xa97c) || (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) || (c >= 0xfe30 && c <= 0xfe6b) || (c >= 0xff01 && c <= 0xff60) ||
    (c >= 0x1f300 && c <= 0x1f64f) || (c >= 0x1f900 && c <= 0x1f9ff) || (c >= 0x20000 && c <= 0x3fffd));
  const strip = (s) => s.replace(/\x1b\[[0-9;]*[A-Za-z]/g, '');
  const width = (s) => {
    if (/^[\x20-\x7e]*$/.test(s)) return s.length;
    let n = 0;
    for (const ch of strip(s).normalize('NFC')) {
      const c = ch.codePointAt(0);
      if (wide(c)) n += 2;
      else if (c >= 32 && !(c >= 0x7f && c < 0xa0) && !/\p{Mn}|\p{Me}|\p{Cf}/u.test(ch)) n++;
    }
    return n;
  };

  function formatNumber(n) { return Object.is(n, -0) ? '-0' : `${n}`; }
  function formatPrimitive(ctx, v) {
    if (typeof v === 'string') {
      let tail = '';
      if (v.length > ctx.maxStringLength) {
        const rest = v.length - ctx.maxStringLength;
        v = v.slice(0, ctx.maxStringLength);
        tail = `... ${rest} more character${rest > 1 ? 's' : ''}`;
      }
      if (ctx.compact !== true && v.length > 16 && v.length > ctx.breakLength - ctx.indentationLvl - 4) {
        return v.split(/(?<=\n)/).map((l) => stylize(ctx, quote(l), 'string')).join(` +\n${' '.repeat(ctx.indentationLvl + 2)}`) + tail;
      }
      return stylize(ctx, quote(v), 'string') + tail;
    }
    if (typeof v === 'number') return stylize(ctx, formatNumber(v), 'number');
    if (typeof v === 'bigint') return stylize(ctx, `${v}n`, 'bigint');
    if (typeof v === 'boolean') return stylize(ctx, `${v}`, 'boolean');
    if (v === undefined) return stylize(ctx, 'undefined', 'undefined');
    return stylize(ctx, Symbol.prototype.toString.call(v), 'symbol');
  }
  function constructorName(obj, ctx, protoProps) {
    const original = obj;
    for (let o = obj; o !== null && o !== undefined; o = Object.getPrototypeOf(o)) {
      const d = Object.getOwnPropertyDescriptor(o, 'constructor');
      if (d !== undefined && typeof d.value === 'function' && d.value.name !== '' && instance(original, d.value)) return String(d.value.name);
    }
    return null;
  }
  const instance = (o, c) => { try { return o instanceof c; } catch { return false; } };
  function prefix(constructor, tag, fallback, size = '') {
    if (constructor === null) {
      return tag !== '' && fallback !== tag ? `[${fallback}${size}: null prototype] [${tag}] ` : `[${fallback}${size}: null prototype] `;
    }
    return tag !== '' && constructor !== tag ? `${constructor}${size} [${tag}] ` : `${constructor}${size} `;
  }
  function keysOf(v, hidden) {
    let keys;
    const symbols = Object.getOwnPropertySymbols(v);
    if (hidden) { keys = Object.getOwnPropertyNames(v); return keys.concat(symbols); }
    try { keys = Object.keys(v); } catch { keys = Object.getOwnPropertyNames(v); }
    return symbols.length ? keys.concat(symbols.filter((s) => Object.prototype.propertyIsEnumerable.call(v, s))) : keys;
  }
  const isIndex = (k) => typeof k === 'string' && /^(0|[1-9][0-9]*)$/.test(k) && Number(k) < 4294967295;
  const otherKeys = (v, hidden) => keysOf(v, hidden).filter((k) => !isIndex(k));

  function formatValue(ctx, v, depth, typed) {
    if (v === null) return stylize(ctx, 'null', 'null');
    if (typeof v !== 'object' && typeof v !== 'function') return formatPrimitive(ctx, v);
    const [proxied, target] = host.proxy(v);
    const shown = v;
    if (proxied) {
      let t = target;
      for (let [p, n] = host.proxy(t); p; [p, n] = host.proxy(t)) t = n;
      if (t === null) return '<Revoked Proxy>';
      v = t;
    }
    if (ctx.customInspect) {
      const f = v[custom];
      if (typeof f === 'function' && f !== inspect && !(v.constructor && v.constructor.prototype === v && f === undefined)) {
        const left = ctx.depth === null ? null : ctx.depth - depth;
        const { stylize: _, seen, budget, indentationLvl, currentDepth, circular, ...user } = ctx;
        const r = f.call(shown, left, { ...user, depth: left, stylize: (s, st) => stylize(ctx, s, st) }, inspect);
        if (r !== shown) {
          if (typeof r !== 'object' || r === null) return typeof r === 'string' ? r.replaceAll('\n', `\n${' '.repeat(ctx.indentationLvl)}`) : formatValue(ctx, r, depth);
          return formatValue(ctx, r, depth);
        }
      }
    }
    if (ctx.seen.includes(v)) {
      let i = 1;
      if (ctx.circular === undefined) { ctx.circular = new Map(); ctx.circular.set(v, 1); } else {
        i = ctx.circular.get(v);
        if (i === undefined) { i = ctx.circular.size + 1; ctx.circular.set(v, i); }
      }
      return stylize(ctx, `[Circular *${i}]`, 'special');
    }
    return formatRaw(ctx, v, depth, typed);
  }

  function functionBase(v, constructor, tag) {
    const text = Function.prototype.toString.call(v);
    if (text.startsWith('class') && text.endsWith('}')) {
      const name = hasOwn(v, 'name') && v.name;
      let base = `[class ${name || '(anonymous)'}`;
      if (constructor !== 'Function' && constructor !== null) base += ` [${constructor}]`;
      if (tag !== '' && constructor !== tag) base += ` [${tag}]`;
      if (constructor !== null) { const s = Object.getPrototypeOf(v).name; if (s) base += ` extends ${s}`; } else base += ' extends null';
      return base + ']';
    }
    const type = types.isAsyncFunction(v) || types.isGeneratorFunction(v) ? classOf(v) : 'Function';
    let base = `[${type}`;
    if (constructor === null) base += ' (null prototype)';
    base += v.name === '' || v.name === undefined ? ' (anonymous)' : `: ${String(v.name)}`;
    base += ']';
    if (constructor !== type && constructor !== null) base += ` ${constructor}`;
    if (tag !== '' && constructor !== tag) base += ` [${tag}]`;
    return base;
  }
  function formatError(ctx, err, constructor, tag, keys) {
    let name = err.name != null ? String(err.name) : 'Error';
    let stack = err.stack ? String(err.stack) : Error.prototype.toString.call(err);
    if (!ctx.showHidden && keys.length !== 0) {
      for (const n of ['name', 'message', 'stack']) {
        const i = keys.indexOf(n);
        if (i !== -1 && (typeof err[n] !== 'string' || stack.includes(err[n]))) keys.splice(i, 1);
      }
    }
    if ('cause' in err && hasOwn(err, 'cause') && !keys.includes('cause')) keys.push('cause');
    if (Array.isArray(err.errors) && hasOwn(err, 'errors') && !keys.includes('errors')) keys.push('errors');
    if (constructor === null || (name.endsWith('Error') && stack.startsWith(name) && (stack.length === name.length || stack[name.length] === ':' || stack[name.length] === '\n'))) {
      const p = prefix(constructor, tag, 'Error').slice(0, -1);
      if (name !== p) stack = p.includes(name) ? `${p}${stack.slice(name.length)}` : `${p} [${name}]${stack.slice(name.length)}`;
    }
    const start = stack.indexOf('\n    at');
    if (start === -1) stack = `[${stack}]`;
    if (ctx.indentationLvl !== 0) stack = stack.replaceAll('\n', `\n${' '.repeat(ctx.indentationLvl)}`);
    return stack;
  }

  function formatRaw(ctx, v, depth, typed) {
    let keys, formatter = () => [], braces, base = '', noEntries = true, extras = OBJECT;
    const constructor = constructorName(v, ctx);
    let tag = '';
    try { tag = v[Symbol.toStringTag]; } catch { tag = ''; }
    if (typeof tag !== 'string' || (tag !== '' && (ctx.showHidden ? hasOwn : (o, k) => Object.prototype.propertyIsEnumerable.call(o, k))(v, Symbol.toStringTag))) tag = '';
    if ((Symbol.iterator in v && !types.isArgumentsObject(v)) || constructor === null) {
      noEntries = false;
      if (Array.isArray(v)) {
        const p = constructor !== 'Array' || tag !== '' ? prefix(constructor, tag, 'Array', `(${v.length})`) : '';
        keys = otherKeys(v, ctx.showHidden);
        braces = [`${p}[`, ']'];
        if (v.length === 0 && keys.length === 0) return `${braces[0]}]`;
        extras = EXTRAS;
        formatter = formatArray;
      } else if (types.isSet(v)) {
        keys = keysOf(v, ctx.showHidden);
        const p = prefix(constructor, tag, 'Set', `(${getter(Set.prototype, 'size')(v)})`);
        formatter = (c, s, d) => formatEntries(c, Set.prototype.values.call(s), s.size, (x) => formatValue(c, x, d));
        if (v.size === 0 && keys.length === 0) return `${p}{}`;
        braces = [`${p}{`, '}'];
      } else if (types.isMap(v)) {
        keys = keysOf(v, ctx.showHidden);
        const p = prefix(constructor, tag, 'Map', `(${getter(Map.prototype, 'size')(v)})`);
        formatter = (c, m, d) => formatEntries(c, Map.prototype.entries.call(m), m.size, ([k, x]) => `${formatValue(c, k, d)} => ${formatValue(c, x, d)}`);
        if (v.size === 0 && keys.length === 0) return `${p}{}`;
        braces = [`${p}{`, '}'];
      } else if (types.isTypedArray(v)) {
        keys = otherKeys(v, false);
        const p = prefix(constructor, tag, typedTag(v), `(${v.length})`);
        braces = [`${p}[`, ']'];
        if (v.length === 0 && keys.length === 0) return `${braces[0]}]`;
        formatter = (c, a) => { const out = []; const n = Math.min(c.maxArrayLength, a.length); for (let i = 0; i < n; i++) out.push(formatPrimitive(c, a[i])); more(out, a.length - n); return out; };
        extras = EXTRAS;
      } else if (types.isMapIterator(v) || types.isSetIterator(v)) {
        keys = keysOf(v, ctx.showHidden);
        braces = [`[${tag}] {`, '}'];
        formatter = () => [];
      } else noEntries = true;
    }
    if (noEntries) {
      keys = keysOf(v, ctx.showHidden);
      braces = ['{', '}'];
      if (types.isArgumentsObject(v)) {
        braces[0] = '[Arguments] {';
        if (keys.length === 0) return '[Arguments] {}';
      } else if (typeof v === 'function') {
        base = functionBase(v, constructor, tag);
        if (keys.length === 0) return stylize(ctx, base, 'special');
      } else if (types.isRegExp(v)) {
        base = RegExp.prototype.toString.call(v);
        const p = prefix(constructor, tag, 'RegExp');
        if (p !== 'RegExp ') base = p + base;
        if (keys.length === 0) return stylize(ctx, base, 'regexp');
      } else if (types.isDate(v)) {
        base = Number.isNaN(Date.prototype.getTime.call(v)) ? Date.prototype.toString.call(v) : Date.prototype.toISOString.call(v);
        const p = prefix(constructor, tag, 'Date');
        if (p !== 'Date ') base = p + base;
        if (keys.length === 0) return stylize(ctx, base, 'date');
      } else if (types.isNativeError(v)) {
        base = formatError(ctx, v, constructor, tag, keys);
        if (keys.length === 0) return base;
      } else if (types.isAnyArrayBuffer(v)) {
        const p = prefix(constructor, tag, 'ArrayBuffer');
        if (typed === undefined) formatter = (c, b) => {
          const u = new Uint8Array(b), n = Math.min(Math.max(0, c.maxArrayLength), u.length);
          const hex = Array.from(u.subarray(0, n), (x) => x.toString(16).padStart(2, '0')).join(' ');
          const rest = u.length - n;
          return [`[Uint8Contents]: <${hex}${rest > 0 ? ` ... ${rest} more byte${rest > 1 ? 's' : ''}` : ''}>`];
        };
        else if (keys.length === 0) return `${p}{ byteLength: ${v.byteLength} }`;
        braces[0] = `${p}{`;
        keys.unshift('byteLength');
      } else if (types.isDataView(v)) {
        braces[0] = `${prefix(constructor, tag, 'DataView')}{`;
        keys.unshift('byteLength', 'byteOffset', 'buffer');
      } else if (types.isPromise(v)) {
        braces[0] = `${prefix(constructor, tag, 'Promise')}{`;
        formatter = (c, p, d) => {
          const [state, result] = host.promise(p);
          if (state === 0) return [stylize(c, '<pending>', 'special')];
          c.indentationLvl += 2;
          const s = formatValue(c, result, d);
          c.indentationLvl -= 2;
          return [state === 2 ? `${stylize(c, '<rejected>', 'special')} ${s}` : s];
        };
      } else if (types.isWeakSet(v) || types.isWeakMap(v)) {
        braces[0] = `${prefix(constructor, tag, types.isWeakSet(v) ? 'WeakSet' : 'WeakMap')}{`;
        formatter = (c) => [stylize(c, '<items unknown>', 'special')];
      } else if (types.isModuleNamespaceObject(v)) {
        braces[0] = `[${tag || 'Module'}: null prototype] {`;
      } else if (types.isBoxedPrimitive(v)) {
        const kind = ['Number', 'String', 'Boolean', 'BigInt', 'Symbol'].find((n) => types[`is${n}Object`](v));
        if (kind === 'String') keys = keys.filter((k) => !isIndex(k));
        base = `[${kind}`;
        if (kind !== constructor) base += constructor === null ? ' (null prototype)' : ` (${constructor})`;
        base += `: ${formatPrimitive({ ...ctx, colors: false }, v.valueOf())}]`;
        if (tag !== '' && tag !== constructor) base += ` [${tag}]`;
        if (keys.length === 0) return stylize(ctx, base, kind.toLowerCase());
      } else if (constructor === 'Object') {
        if (tag !== '') braces[0] = `${prefix(constructor, tag, 'Object')}{`;
        if (keys.length === 0) return `${braces[0]}}`;
      } else {
        if (keys.length === 0) return `${prefix(constructor, tag, 'Object')}{}`;
        braces[0] = `${prefix(constructor, tag, 'Object')}{`;
      }
    }
    if (ctx.depth !== null && depth > ctx.depth) {
      const name = prefix(constructor, tag, Array.isArray(v) ? 'Array' : 'Object').slice(0, -1);
      return stylize(ctx, constructor !== null ? `[${name}]` : `[${name}]`, 'special');
    }
    depth += 1;
    ctx.seen.push(v);
    ctx.currentDepth = depth;
    let output;
    output = formatter(ctx, v, depth);
    for (const k of keys) output.push(formatProperty(ctx, v, depth, k, extras));
    if (ctx.circular !== undefined) {
      const i = ctx.circular.get(v);
      if (i !== undefined) {
        const ref = stylize(ctx, `<ref *${i}>`, 'special');
        if (ctx.compact !== true) base = base === '' ? ref : `${ref} ${base}`; else braces[0] = `${ref} ${braces[0]}`;
      }
    }
    ctx.seen.pop();
    if (ctx.sorted) {
      const cmp = ctx.sorted === true ? undefined : ctx.sorted;
      if (extras === OBJECT) output.sort(cmp);
    }
    return reduce(ctx, output, base, braces, extras, depth, v);
  }
  const more = (out, n) => { if (n > 0) out.push(`... ${n} more item${n > 1 ? 's' : ''}`); };
  function formatArray(ctx, v, depth) {
    const out = [];
    let holes = 0, i = 0;
    const flush = () => { if (holes) out.push(stylize(ctx, `<${holes} empty item${holes > 1 ? 's' : ''}>`, 'undefined')); holes = 0; };
    if (v.length > 1e6 && Object.keys(v).length < v.length) { // sparse
      let next = 0;
      for (const k of Object.keys(v).filter(isIndex).map(Number)) {
        if (out.length >= ctx.maxArrayLength) { more(out, v.length - next); return out; }
        holes = k - next; flush();
        out.push(formatProperty(ctx, v, depth, String(k), ARRAY));
        next = k + 1;
      }
      holes = v.length - next; flush();
      return out;
    }
    for (; i < v.length && out.length < ctx.maxArrayLength; i++) {
      if (hasOwn(v, i)) { flush(); if (out.length >= ctx.maxArrayLength) break; out.push(formatProperty(ctx, v, depth, String(i), ARRAY)); } else holes++;
    }
    flush();
    more(out, v.length - i);
    return out;
  }
  function formatEntries(ctx, iter, size, fn) {
    const out = [], n = Math.min(ctx.maxArrayLength, size);
    ctx.indentationLvl += 2;
    let i = 0;
    for (const e of iter) { if (i++ >= n) break; out.push(fn(e)); }
    more(out, size - n);
    ctx.indentationLvl -= 2;
    return out;
  }
  function formatProperty(ctx, v, depth, key, type) {
    let str;
    const desc = Object.getOwnPropertyDescriptor(v, key) ?? { value: v[key], configurable: true, enumerable: true };
    if (desc.value !== undefined) {
      ctx.indentationLvl += 2;
      str = formatValue(ctx, desc.value, depth);
      ctx.indentationLvl -= 2;
    } else if (desc.get !== undefined) {
      const label = desc.set !== undefined ? 'Getter/Setter' : 'Getter';
      str = stylize(ctx, `[${label}]`, 'special');
      if (ctx.getters) {
        try {
          const val = desc.get.call(v);
          ctx.indentationLvl += 2;
          str = val === null || typeof val !== 'object' ? `[${label}: ${formatValue(ctx, val, depth)}]` : `[${label}] ${formatValue(ctx, val, depth)}`;
          ctx.indentationLvl -= 2;
        } catch (e) { str = `[${label}: <Inspection threw (${e.message})>]`; }
      }
    } else if (desc.set !== undefined) str = stylize(ctx, '[Setter]', 'special');
    else str = stylize(ctx, 'undefined', 'undefined');
    if (type === ARRAY) return str;
    let name;
    if (typeof key === 'symbol') name = `[${stylize(ctx, Symbol.prototype.toString.call(key), 'symbol')}]`;
    else if (key === '__proto__') name = "['__proto__']";
    else if (desc.enumerable === false) name = `[${key}]`;
    else if (/^[a-zA-Z_][a-zA-Z_0-9]*$/.test(key)) name = key;
    else name = stylize(ctx, quote(key), 'string');
    return `${name}: ${str}`;
  }
  const total = (ctx, list, start) => { let n = list.length + start; for (const s of list) n += ctx.colors ? strip(s).length : s.length; return n; };
  function reduce(ctx, output, base, braces, extras, depth, v) {
    if (ctx.compact !== true) {
      if (typeof ctx.compact === 'number' && ctx.compact >= 1) {
        const entries = output.length;
        if (extras === EXTRAS && entries > 6) output = group(ctx, output, v);
        if (ctx.currentDepth - depth < ctx.compact && entries === output.length) {
          const start = output.length + ctx.indentationLvl + braces[0].length + base.length + 10;
          if (total(ctx, output, start) <= ctx.breakLength && output.length * 2 + start <= ctx.breakLength && (base === '' || !base.includes('\n'))) {
            const joined = output.join(', ');
            if (!joined.includes('\n')) return `${base ? `${base} ` : ''}${braces[0]} ${joined} ${braces[1]}`;
          }
        }
      }
      const ind = `\n${' '.repeat(ctx.indentationLvl)}`;
      return `${base ? `${base} ` : ''}${braces[0]}${ind}  ${output.join(`,${ind}  `)}${ind}${braces[1]}`;
    }
    const ok = total(ctx, output, 0) + output.length <= ctx.breakLength && (base === '' || !base.includes('\n'));
    if (ok) return `${braces[0]}${base ? ` ${base}` : ''} ${output.join(', ')} ${braces[1]}`;
    const ind = `\n${' '.repeat(ctx.indentationLvl)}`;
    const ln = base === '' && braces[0].length === 1 ? ' ' : `${base ? ` ${base}` : ''}\n${ind}  `;
    return `${braces[0]}${ln}${output.join(`,${ind}  `)} ${braces[1]}`;
  }
  function group(ctx, output, v) {
    let sum = 0, max = 0, i = 0, n = output.length;
    if (ctx.maxArrayLength < output.length) n--;
    const lens = new Array(n);
    for (; i < n; i++) { const l = width(output[i]); lens[i] = l; sum += l + 2; if (max < l) max = l; }
    const actual = max + 2;
    if (actual * 3 + ctx.indentationLvl < ctx.breakLength && (sum / actual > 5 || max <= 6)) {
      const bias = Math.sqrt(actual - sum / output.length), biased = Math.max(actual - 3 - bias, 1);
      const columns = Math.min(Math.round(Math.sqrt(2.5 * biased * n) / biased), Math.floor((ctx.breakLength - ctx.indentationLvl) / actual), ctx.compact * 4, 15);
      if (columns <= 1) return output;
      const tmp = [], widths = [];
      for (let c = 0; c < columns; c++) {
        let w = 0;
        for (let j = c; j < n; j += columns) if (lens[j] > w) w = lens[j];
        widths.push(w + 2);
      }
      let start = true;
      if (v !== undefined) for (let k = 0; k < output.length; k++) if (typeof v[k] !== 'number' && typeof v[k] !== 'bigint') { start = false; break; }
      for (let r = 0; r < n; r += columns) {
        const end = Math.min(r + columns, n);
        let str = '', j = r;
        for (; j < end - 1; j++) {
          const pad = widths[j - r] + output[j].length - lens[j];
          str += start ? `${output[j]}, `.padStart(pad) : `${output[j]}, `.padEnd(pad);
        }
        str += start ? output[j].padStart(widths[j - r] + output[j].length - lens[j] - 2) : output[j];
        tmp.push(str);
      }
      if (ctx.maxArrayLength < output.length) tmp.push(output[n]);
      return tmp;
    }
    return output;
  }

  function inspect(v, opts, ...legacy) {
    const ctx = { ...defaults, seen: [], indentationLvl: 0, currentDepth: 0, circular: undefined, stylize };
    if (typeof opts === 'boolean') { ctx.showHidden = opts; if (legacy[0] !== undefined) ctx.depth = legacy[0]; if (legacy[1] !== undefined) ctx.colors = legacy[1]; } else if (opts) {
      for (const k of Object.keys(opts)) if (k in defaults || k === 'stylize') ctx[k] = opts[k];
    }
    if (ctx.maxArrayLength === null) ctx.maxArrayLength = Infinity;
    if (ctx.maxStringLength === null) ctx.maxStringLength = Infinity;
    if (ctx.depth === Infinity || ctx.depth === undefined) ctx.depth = ctx.depth === undefined ? 2 : null;
    return formatValue(ctx, v, 0);
  }
  inspect.custom = custom;
  inspect.defaultOptions = defaults;
  inspect.colors = Object.assign(Object.create(null), { bold: [1, 22], red: [31, 39], green: [32, 39], yellow: [33, 39], blue: [34, 39], cyan: [36, 39] });
  inspect.styles = {};

  const userToString = (v) => {
    if (typeof v !== 'object' || v === null) return true;
    if (hasOwn(v, 'toString') && typeof v.toString === 'function') return true;
    if (types.isNativeError(v)) return true;
    if (types.isDate(v)) return true;
    let o = v;
    while ((o = Object.getPrototypeOf(o)) !== null) if (hasOwn(o, 'toString')) break;
    if (o === null) return false;
    const c = o.constructor;
    return typeof c === 'function' && !/\[native code\]/.test(Function.prototype.toString.call(c));
  };
  function formatWithOptions(opts, ...args) {
    const first = args[0];
    let at = 0, str = '', join = '';
    if (typeof first === 'string') {
      if (args.length === 1) return first;
      let last = 0, n = 1;
      at = 1;
      for (let i = 0; i < first.length - 1; i++) {
        if (first[i] !== '%') continue;
        const c = first[i + 1];
        if (c === '%') { str += first.slice(last, i + 1); last = i + 2; i++; continue; }
        if (n >= args.length) continue;
        let t;
        const a = args[n];
        switch (c) {
          case 's':
            if (typeof a === 'number') t = formatNumber(a);
            else if (typeof a === 'bigint') t = `${a}n`;
            else if (typeof a !== 'object' || a === null || userToString(a)) t = String(a);
            else t = inspect(a, { ...opts, depth: 0, colors: false, compact: 3 });
            break;
          case 'j': try { t = JSON.stringify(a); } catch (e) { if (!/circular/i.test(e.message)) throw e; t = '[Circular]'; } break;
          case 'd': t = typeof a === 'bigint' ? `${a}n` : typeof a === 'symbol' ? 'NaN' : formatNumber(Number(a)); break;
          case 'O': t = inspect(a, opts); break;
          case 'o': t = inspect(a, { ...opts, showHidden: true, showProxy: true, depth: 4 }); break;
          case 'i': t = typeof a === 'bigint' ? `${a}n` : typeof a === 'symbol' ? 'NaN' : formatNumber(parseInt(a)); break;
          case 'f': t = typeof a === 'symbol' ? 'NaN' : formatNumber(parseFloat(a)); break;
          case 'c': t = ''; break;
          default: continue;
        }
        str += first.slice(last, i) + t;
        last = i + 2;
        i++;
        n++;
      }
      if (last === 0 && n === 1) { str = first; } else str += first.slice(last);
      at = n;
      join = ' ';
    }
    for (; at < args.length; at++) {
      const v = args[at];
      str += join + (typeof v === 'string' ? v : inspect(v, { ...opts, compact: 3 }));
      join = ' ';
    }
    return str;
  }
  Object.assign(exports, { inspect, formatWithOptions, format: (...a) => formatWithOptions(undefined, ...a), types, width, strip });
});
