define('util', (require, exports, module) => {
  const { inspect, format, formatWithOptions, types, strip } = require('internal/inspect');
  const { isDeepStrictEqual } = require('internal/compare');
  const custom = Symbol.for('nodejs.util.promisify.custom');
  const promisify = (fn) => {
    if (typeof fn !== 'function') throw typeError('original', 'of type function', fn);
    if (fn[custom]) return fn[custom];
    const p = function (...a) { return new Promise((ok, no) => Reflect.apply(fn, this, [...a, (e, v) => e ? no(e) : ok(v)])); };
    Object.setPrototypeOf(p, Object.getPrototypeOf(fn));
    return Object.defineProperties(p, Object.getOwnPropertyDescriptors(fn));
  };
  promisify.custom = custom;
  const warned = new Set();
  const codes = { reset: [0, 0], bold: [1, 22], dim: [2, 22], italic: [3, 23], underline: [4, 24], inverse: [7, 27], black: [30, 39], red: [31, 39], green: [32, 39], yellow: [33, 39], blue: [34, 39], magenta: [35, 39], cyan: [36, 39], white: [37, 39], gray: [90, 39], grey: [90, 39], bgRed: [41, 49], bgGreen: [42, 49], bgBlue: [44, 49] };
  module.exports = {
    inspect, format, formatWithOptions, types, promisify, isDeepStrictEqual, stripVTControlCharacters: strip,
    callbackify: (fn) => function (...a) { const cb = a.pop(); fn.apply(this, a).then((v) => process.nextTick(cb, null, v), (e) => process.nextTick(cb, e)); },
    inherits(c, s) { Object.defineProperty(c, 'super_', { value: s, writable: true, configurable: true }); Object.setPrototypeOf(c.prototype, s.prototype); },
    deprecate(fn, msg, code) { let done = false; return function (...a) { if (!done && !warned.has(code)) { done = true; if (code) warned.add(code); process.emitWarning(msg, 'DeprecationWarning', code); } return new.target ? Reflect.construct(fn, a, new.target) : Reflect.apply(fn, this, a); }; },
    debuglog: (set) => Object.assign((...a) => { if ((process.env.NODE_DEBUG ?? '').split(',').includes(set)) process.stderr.write(`${set.toUpperCase()} ${process.pid}: ${format(...a)}\n`); }, { enabled: false }),
    styleText(f, text) { for (const x of [f].flat().reverse()) { if (!codes[x]) throw nodeError(TypeError, 'ERR_INVALID_ARG_VALUE', `The argument 'format' must be one of: ${Object.keys(codes).join(', ')}. Received ${inspect(x)}`); text = `\x1b[${codes[x][0]}m${text}\x1b[${codes[x][1]}m`; } return text; },
    parseArgs, TextEncoder: require('buffer').TextEncoder, TextDecoder: require('buffer').TextDecoder, toUSVString: (s) => String(s).toWellFormed(),
    isArray: Array.isArray, isString: (x) => typeof x === 'string', isFunction: (x) => typeof x === 'function', isRegExp: types.isRegExp, isDate: types.isDate, isError: (e) => e instanceof Error, isObject: (o) => o !== null && typeof o === 'object',
    isNull: (x) => x === null, isUndefined: (x) => x === undefined, isNumber: (x) => typeof x === 'number', isBoolean: (x) => typeof x === 'boolean', isBuffer: (b) => require('buffer').Buffer.isBuffer(b), isPrimitive: (x) => x === null || (typeof x !== 'object' && typeof x !== 'function'),
    MIMEType: undefined,
  };
  delete module.exports.MIMEType;
  function parseArgs({ args = process.argv.slice(2), options = {}, strict = true, allowPositionals = !strict, tokens: want } = {}) {
    const values = Object.create(null), positionals = [];
    const set = (name, v) => { if (options[name]?.multiple) (values[name] ??= []).push(v); else values[name] = v; };
    const byShort = (c) => Object.keys(options).find((k) => options[k].short === c);
    const take = (name, shown, inline, i) => {
      const o = options[name];
      if (!o && strict) throw nodeError(TypeError, 'ERR_PARSE_ARGS_UNKNOWN_OPTION', `Unknown option '${shown}'${allowPositionals ? `. To specify a positional argument starting with a '-', place it at the end of the command after '--', as in '-- "${shown}"` : ''}`);
      if (o?.type === 'string') {
        if (inline !== undefined) { set(name, inline); return i; }
        const v = args[i + 1];
        if (v === undefined || (strict && v.startsWith('-') && v.length > 1)) {
          if (strict) throw nodeError(TypeError, 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE', v === undefined ? `Option '${o.short ? `-${o.short}, ` : ''}--${name} <value>' argument missing` : `Option '${shown}' argument is ambiguous.\nDid you forget to specify the option argument for '${shown}'?\nTo specify an option argument starting with a dash use '${shown.startsWith('--') ? `${shown}=-XYZ` : `--${name}=-XYZ`}'.`);
          set(name, true); return i;
        }
        set(name, v); return i + 1;
      }
      if (inline !== undefined && strict) throw nodeError(TypeError, 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE', `Option '${shown}' does not take an argument`);
      set(name, inline ?? true);
      return i;
    };
    for (let i = 0; i < args.length; i++) {
      const a = args[i];
      if (a === '--') { positionals.push(...args.slice(i + 1)); break; }
      if (a.startsWith('--')) { const eq = a.indexOf('='); const name = eq > 0 ? a.slice(2, eq) : a.slice(2); i = take(name, `--${name}`, eq > 0 ? a.slice(eq + 1) : undefined, i); } else if (a.length > 1 && a[0] === '-') {
        for (let j = 1; j < a.length; j++) {
          const name = byShort(a[j]) ?? a[j];
          if (options[name]?.type === 'string' && j + 1 < a.length) { set(name, a.slice(j + 1)); break; }
          i = take(name, `-${a[j]}`, undefined, i);
        }
      } else {
        if (!allowPositionals) throw nodeError(TypeError, 'ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL', `Unexpected argument '${a}'. This command does not take positional arguments`);
        positionals.push(a);
      }
    }
    for (const [k, o] of Object.entries(options)) if (o.default !== undefined && values[k] === undefined) values[k] = o.default;
    return { values, positionals };
  }
});
define('util/types', (r, e, m) => { m.exports = r('util').types; });
define('internal/compare', (require, exports) => {
  const { types } = require('internal/inspect');
  function equal(a, b, strict, seen) {
    if (a === b) return a !== 0 || !strict || Object.is(a, b);
    if (strict) { if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return Number.isNaN(a) && Number.isNaN(b); if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false; } else {
      if (a === null || typeof a !== 'object') return (b === null || typeof b !== 'object') && (a == b || (Number.isNaN(a) && Number.isNaN(b)));
      if (b === null || typeof b !== 'object') return false;
    }
    const ta = Object.prototype.toString.call(a);
    if (ta !== Object.prototype.toString.call(b)) return false;
    if (Array.isArray(a)) { if (!Array.isArray(b) || a.length !== b.length) return false; }
    if (types.isDate(a)) { if (!types.isDate(b) || a.getTime() !== b.getTime()) return false; } else if (types.isRegExp(a)) { if (!types.isRegExp(b) || String(a) !== String(b) || a.lastIndex !== b.lastIndex) return false; } else if (a instanceof Error) { if (a.message !== b.message || a.name !== b.name) return false; } else if (ArrayBuffer.isView(a) && !types.isDataView(a)) { if (a.length !== b.length) return false; for (let i = 0; i < a.length; i++) if (!(strict ? Object.is(a[i], b[i]) : a[i] == b[i])) return false; return true; } else if (types.isArrayBuffer(a)) { return equal(new Uint8Array(a), new Uint8Array(b), strict, seen); } else if (types.isBoxedPrimitive(a)) { if (!types.isBoxedPrimitive(b) || !Object.is(a.valueOf(), b.valueOf())) return false; } else if (types.isWeakMap(a) || types.isWeakSet(a) || types.isPromise(a)) return false;
    for (const [x, y] of seen) if (x === a && y === b) return true;
    seen.push([a, b]);
    try {
      if (types.isSet(a)) {
        if (!types.isSet(b) || a.size !== b.size) return false;
        for (const x of a) if (!b.has(x) && !(typeof x === 'object' || !strict ? [...b].some((y) => equal(x, y, strict, seen)) : false)) return false;
      } else if (types.isMap(a)) {
        if (!types.isMap(b) || a.size !== b.size) return false;
        for (const [k, x] of a) { if (b.has(k)) { if (!equal(x, b.get(k), strict, seen)) return false; } else if (![...b].some(([j, y]) => equal(k, j, strict, seen) && equal(x, y, strict, seen))) return false; }
      }
      const keys = (o) => Object.keys(o).concat(strict ? Object.getOwnPropertySymbols(o).filter((s) => Object.prototype.propertyIsEnumerable.call(o, s)) : []);
      const ka = keys(a);
      if (ka.length !== keys(b).length) return false;
      for (const k of ka) if (!Object.prototype.propertyIsEnumerable.call(b, k) || !equal(a[k], b[k], strict, seen)) return false;
      return true;
    } finally { seen.pop(); }
  }
  exports.isDeepEqual = (a, b) => equal(a, b, false, []);
  exports.isDeepStrictEqual = (a, b) => equal(a, b, true, []);
});
define('assert', (require, exports, module) => {
  const { inspect } = require('internal/inspect');
  const { isDeepEqual, isDeepStrictEqual } = require('internal/compare');
  const show = (v) => inspect(v, { compact: false, customInspect: false, depth: 1000, maxArrayLength: Infinity, showHidden: false, sorted: true, getters: true });
  const simple = (v) => v === null || (typeof v !== 'object' && typeof v !== 'function');
  const heads = { deepStrictEqual: 'Expected values to be strictly deep-equal:', strictEqual: 'Expected values to be strictly equal:', deepEqual: 'Expected values to be loosely deep-equal:', notStrictEqual: 'Expected "actual" to be strictly unequal to:', notDeepStrictEqual: 'Expected "actual" not to be strictly deep-equal to:' };
  class AssertionError extends Error {
    constructor(o) {
      const { actual, expected, operator } = o;
      let m = o.message;
      if (m === undefined) {
        if (operator === 'strictEqual' && simple(actual) && simple(expected) && !String(actual).includes('\n')) m = `${heads.strictEqual}\n\n${show(actual)} !== ${show(expected)}\n`;
        else if (operator === 'strictEqual' || operator === 'deepStrictEqual') m = `${heads[operator]}\n${diff(show(actual).split('\n'), show(expected).split('\n'))}`;
        else if (operator === 'notStrictEqual' || operator === 'notDeepStrictEqual') m = `${heads[operator]}${simple(actual) ? ' ' : '\n\n'}${show(actual)}${simple(actual) ? '' : '\n'}`;
        else if (operator === 'deepEqual') m = `${heads.deepEqual}\n\n${show(actual)}\n\nshould loosely deep-equal\n\n${show(expected)}`;
        else if (operator === 'notDeepEqual') m = `${show(actual)}\n\nshould not loosely deep-equal\n\n${show(expected)}`;
        else m = `${inspect(actual)} ${operator} ${inspect(expected)}`;
      }
      super(String(m));
      this.generatedMessage = o.message === undefined;
      this.code = 'ERR_ASSERTION'; this.actual = actual; this.expected = expected; this.operator = operator;
      hideProp(this, 'name', 'AssertionError');
      hideProp(this, codeSymbol, true);
      if (typeof this.stack === 'string') hideProp(this, 'stack', this.stack.replace(/^Error|^AssertionError(?! \[)/, 'AssertionError [ERR_ASSERTION]'));
    }
    toString() { return `${this.name} [${this.code}]: ${this.message}`; }
  }
  function diff(a, b) {
    const out = ['+ actual - expected', ''];
    let i = 0, j = 0;
    while (i < a.length || j < b.length) {
      if (i < a.length && j < b.length && a[i].replace(/,$/, '') === b[j].replace(/,$/, '')) { out.push(`  ${a[i]}`); i++; j++; continue; }
      const k = i < a.length ? b.indexOf(a[i], j) : -1, l = j < b.length ? a.indexOf(b[j], i) : -1;
      if (l >= 0 && (k < 0 || l - i <= k - j)) while (i < l) out.push(`+ ${a[i++]}`);
      else if (k >= 0) while (j < k) out.push(`- ${b[j++]}`);
      else { if (i < a.length) out.push(`+ ${a[i++]}`); if (j < b.length) out.push(`- ${b[j++]}`); }
    }
    return out.join('\n');
  }
  const fail = (actual, expected, message, operator) => { if (message instanceof Error) throw message; throw new AssertionError({ actual, expected, message, operator }); };
  const assert = (v, ...m) => ok(v, m, 'assert');
  const ok = (v, m, name) => {
    if (v) return;
    if (m.length === 0 && v === undefined && name === 'none') fail(v, true, 'No value argument passed to `assert.ok()`', '==');
    if (m[0] === undefined) { const e = new AssertionError({ actual: v, expected: true, message: 'The expression evaluated to a falsy value', operator: '==' }); e.generatedMessage = true; throw e; }
    fail(v, true, m[0], '==');
  };
  const matches = (e, want, msg, fn) => {
    if (want === undefined) return;
    if (typeof want === 'function') {
      if (want.prototype !== undefined && e instanceof want) return;
      if (Error.isPrototypeOf(want) || want === Error) throw e;
      if (want.call({}, e) === true) return;
      fail(e, want, msg ?? `The ${want.name ? `"${want.name}" ` : ''}validation function is expected to return "true". Received ${inspect(want.call({}, e))}\n\nCaught error:\n\n${e}`, fn);
    }
    if (want instanceof RegExp) { if (want.test(String(e))) return; fail(e, want, msg ?? `The input did not match the regular expression ${inspect(want)}. Input:\n\n${inspect(String(e))}\n`, fn); }
    for (const k of [...Object.keys(want), ...(want instanceof Error ? ['name', 'message'] : [])]) {
      if (typeof e[k] === 'string' && want[k] instanceof RegExp && want[k].test(e[k])) continue;
      if (!isDeepStrictEqual(e?.[k], want[k])) fail(e, want, msg ?? `Expected values to be strictly deep-equal:\n${diff(show({ [k]: e?.[k] }).split('\n'), show({ [k]: want[k] }).split('\n'))}`, fn);
    }
  };
  const settle = (want, msg) => typeof want === 'string' ? [undefined, want] : [want, msg];
  Object.assign(assert, {
    AssertionError, ok: (v, ...m) => ok(v, m, 'ok'),
    fail: (m = 'Failed') => { if (m instanceof Error) throw m; const e = new AssertionError({ message: m, operator: 'fail' }); throw e; },
    equal: (a, b, m) => { if (!(a == b || (Number.isNaN(a) && Number.isNaN(b)))) fail(a, b, m, '=='); },
    notEqual: (a, b, m) => { if (a == b) fail(a, b, m, '!='); },
    strictEqual: (a, b, m) => { if (!Object.is(a, b)) fail(a, b, m, 'strictEqual'); },
    notStrictEqual: (a, b, m) => { if (Object.is(a, b)) fail(a, b, m, 'notStrictEqual'); },
    deepEqual: (a, b, m) => { if (!isDeepEqual(a, b)) fail(a, b, m, 'deepEqual'); },
    notDeepEqual: (a, b, m) => { if (isDeepEqual(a, b)) fail(a, b, m, 'notDeepEqual'); },
    deepStrictEqual: (a, b, m) => { if (!isDeepStrictEqual(a, b)) fail(a, b, m, 'deepStrictEqual'); },
    notDeepStrictEqual: (a, b, m) => { if (isDeepStrictEqual(a, b)) fail(a, b, m, 'notDeepStrictEqual'); },
    match: (s, re, m) => { if (typeof s !== 'string' || !re.test(s)) fail(s, re, m ?? `The input did not match the regular expression ${inspect(re)}. Input:\n\n${inspect(s)}\n`, 'match'); },
    doesNotMatch: (s, re, m) => { if (re.test(s)) fail(s, re, m ?? `The input was expected to not match the regular expression ${inspect(re)}. Input:\n\n${inspect(s)}\n`, 'doesNotMatch'); },
    throws(fn, want, msg) {
      if (typeof fn !== 'function') throw typeError('fn', 'of type function', fn);
      [want, msg] = settle(want, msg);
      try { fn(); } catch (e) { matches(e, want, msg, 'throws'); return; }
      fail(undefined, want, `Missing expected exception${want?.name ? ` (${want.name})` : ''}${msg ? `: ${msg}` : '.'}`, 'throws');
    },
    doesNotThrow(fn, want, msg) { [want, msg] = settle(want, msg); try { fn(); } catch (e) { fail(e, want, `Got unwanted exception${msg ? `: ${msg}` : '.'}\nActual message: "${e?.message}"`, 'doesNotThrow'); } },
    async rejects(p, want, msg) { [want, msg] = settle(want, msg); try { await (typeof p === 'function' ? p() : p); } catch (e) { matches(e, want, msg, 'rejects'); return; } fail(undefined, want, `Missing expected rejection${want?.name ? ` (${want.name})` : ''}${msg ? `: ${msg}` : '.'}`, 'rejects'); },
    async doesNotReject(p, want, msg) { [want, msg] = settle(want, msg); try { await (typeof p === 'function' ? p() : p); } catch (e) { fail(e, want, `Got unwanted rejection${msg ? `: ${msg}` : '.'}\nActual message: "${e?.message}"`, 'doesNotReject'); } },
    ifError(e) { if (e !== null && e !== undefined) fail(e, null, `ifError got unwanted exception: ${e instanceof Error ? e.message : inspect(e)}`, 'ifError'); },
  });
  assert.strict = Object.assign((v, ...m) => ok(v, m, 'strict'), assert, { equal: assert.strictEqual, deepEqual: assert.deepStrictEqual, notEqual: assert.notStrictEqual, notDeepEqual: assert.notDeepStrictEqual });
  assert.strict.strict = assert.strict;
  module.exports = assert;
});
define('assert/strict', (r, e, m) => { m.exports = r('assert').strict; });
