(host) => {
  // What the prelude uses is its own, whatever a script does to the globals.
  const { JSON, String, Error, Proxy, Object, Function } = globalThis;
  const { stringify, parse } = JSON;
  const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
  const call = host.call, print = host.print;
  const path = (name) => new Proxy(function tool() {}, {
    get: (t, key) => typeof key === 'symbol' || key === 'then' ? undefined : path(name === '' ? key : `${name}/${key}`),
    apply: (t, self, args) => {
      const given = args.length === 0 || args[0] === undefined ? '{}' : stringify(args[0]);
      let answer;
      try { answer = call(name, given); } catch (why) { throw new Error(String(why)); }
      if (answer === '' || answer === null) return null;
      return parse(answer);
    },
    set: () => false, defineProperty: () => false, deleteProperty: () => false, construct() { throw new Error('tools are called'); },
  });
  const show = (v, depth = 0) => {
    if (typeof v === 'string') return v;
    if (typeof v === 'bigint') return `${v}n`;
    if (v instanceof Error) return v.stack ? `${v.name}: ${v.message}\n${v.stack}` : String(v);
    try { const s = stringify(v, (k, x) => typeof x === 'bigint' ? `${x}n` : x); return s === undefined ? String(v) : s; } catch { return String(v); }
  };
  const log = (...a) => print(...a.map((v) => show(v)));
  const hide = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  const tools = path('');
  hide('tools', tools);
  hide('console', { log, info: log, warn: log, error: log, debug: log });
  return async (text) => {
    let f;
    try { f = new AsyncFunction('tools', text); } catch (e) { throw `${e.name}: ${e.message}`; }
    try {
      const v = await f(tools);
      return v === undefined ? undefined : stringify(v) ?? null;
    } catch (e) {
      throw e instanceof Error ? `${e.name}: ${e.message}${e.stack ? '\n' + e.stack : ''}` : `thrown: ${show(e)}`;
    }
  };
}
