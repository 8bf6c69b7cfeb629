// The runner of JavaScript and TypeScript cells. Package kernel starts it; see its doc for the
// protocol. A cell runs in a context that keeps its variables, by the rules of Node's own REPL: a
// promise at the top may be awaited, and the last expression's value is the cell's value.
"use strict";
const fs = require("fs");
const repl = require("repl");
const path = require("path");
const util = require("util");
const stream = require("stream");
const { createRequire } = require("module");
const { StringDecoder } = require("string_decoder");

const typescript = process.argv[2] === "typescript";
const home = createRequire(path.join(process.cwd(), "cell.js"));
process.argv.length = 1;

function say(line) {
  let raw = Buffer.from(JSON.stringify(line) + "\n");
  while (raw.length) {
    try {
      raw = raw.subarray(fs.writeSync(4, raw));
    } catch (err) {
      if (err.code !== "EAGAIN") process.exit(1);
    }
  }
}

// transpiler returns a function from TypeScript to JavaScript.
function transpiler() {
  const { stripTypeScriptTypes } = require("module");
  for (const name of ["typescript", "/usr/share/nodejs/typescript", "/usr/lib/node_modules/typescript",
    "/usr/local/lib/node_modules/typescript"]) {
    try {
      const ts = home(name);
      const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext,
        verbatimModuleSyntax: true };
      return (code) => {
        const out = ts.transpileModule(code, { compilerOptions: options, reportDiagnostics: true });
        for (const d of out.diagnostics) {
          const text = ts.flattenDiagnosticMessageText(d.messageText, "\n");
          throw new SyntaxError(`TS${d.code}: ${text}`);
        }
        return out.outputText;
      };
    } catch (err) {
      if (err.code !== "MODULE_NOT_FOUND") throw err;
    }
  }
  if (stripTypeScriptTypes) return (code) => stripTypeScriptTypes(code, { mode: "transform" });
  throw new Error("the image has no TypeScript: install it with npm install -g typescript");
}

// printer is a stream whose text goes out at once as the cell's. Node's own would keep in memory what
// a slow reader has not taken.
function printer(type, fd) {
  const decoder = new StringDecoder("utf8");
  const made = new stream.Writable({ decodeStrings: true, write(chunk, encoding, done) {
    const text = decoder.write(chunk);
    if (text) say({ type, text });
    done();
  } });
  made.fd = fd;
  return made;
}
for (const [name, fd] of [["stdout", 1], ["stderr", 2]]) {
  Object.defineProperty(process, name, { value: printer(name, fd), configurable: true, writable: true });
}
const printing = new console.Console(process.stdout, process.stderr);
globalThis.console = printing;

const quiet = new stream.Writable({ write(chunk, encoding, done) { done(); } });
const server = repl.start({ input: new stream.PassThrough(), output: quiet, terminal: false,
  prompt: "", useGlobal: false, breakEvalOnSigint: true });
const context = server.context;
// What a cell throws comes to the REPL's domain, also later than the cell's own end.
if (server._domain) {
  server._domain.removeAllListeners("error");
  server._domain.on("error", thrown);
}
// The REPL's own console prints to the REPL's output, which nobody reads.
Object.defineProperty(context, "console", { value: printing, configurable: true, writable: true });
context.require = home;
context.module = { exports: {} };
context.exports = context.module.exports;
context.display = (value) => show(value, false);

// forms gives the forms of a value: those it names itself by symbols or as a plain MIME bundle.
function forms(value) {
  if (value && typeof value === "object") {
    const own = value[Symbol.for("Jupyter.display")];
    if (typeof own === "function") return own.call(value);
  }
  const data = { "text/plain": typeof value === "string" ? value : util.inspect(value) };
  if (value && typeof value === "object" && Object.getPrototypeOf(value) !== null) {
    const plain = Object.getPrototypeOf(Object.getPrototypeOf(value) || {}) === null;
    if (plain || Array.isArray(value)) {
      try {
        const text = JSON.stringify(value);
        if (text && text.length < 1 << 20) data["application/json"] = JSON.parse(text);
      } catch { /* it refers to itself: the text is all */ }
    }
  }
  return data;
}

function show(value, main) {
  say({ type: "result", main, data: forms(value) });
}

// fail reports what a cell threw. Lines of this runner are not the user's.
function fail(err) {
  if (err && err.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED") err = interruption();
  if (err instanceof Error || (err && typeof err.stack === "string")) {
    const lines = String(err.stack).split("\n");
    const cut = lines.findIndex((l) => /node:(vm|repl|domain)|carrel-kernel/.test(l));
    const stack = (cut < 0 ? lines : lines.slice(0, cut)).join("\n");
    say({ type: "error", name: String(err.name), value: String(err.message), traceback: stack });
  } else {
    const text = util.inspect(err);
    say({ type: "error", name: "Error", value: text, traceback: `Uncaught ${text}` });
  }
}

// dynamic turns the import statements at the top of a cell into awaited calls: a REPL's input is a
// script, which can't import.
function dynamic(code) {
  const from = "\\s*(['\"][^'\"\\n]+['\"])\\s*;?[ \\t]*$";
  const as = (names) => names.replace(/\sas\s/g, ": ");
  return code
    .replace(new RegExp(`^import\\s+\\*\\s+as\\s+([\\w$]+)\\s+from${from}`, "gm"),
      "var $1 = await import($2);")
    .replace(new RegExp(`^import\\s+([\\w$]+)\\s*,\\s*(\\{[^}]*\\})\\s*from${from}`, "gm"),
      (m, name, names, mod) => `var { default: ${name}, ${as(names).slice(1)} = await import(${mod});`)
    .replace(new RegExp(`^import\\s+(\\{[^}]*\\})\\s*from${from}`, "gm"),
      (m, names, mod) => `var ${as(names)} = await import(${mod});`)
    .replace(new RegExp(`^import\\s+([\\w$]+)\\s+from${from}`, "gm"),
      "var { default: $1 } = await import($2);")
    .replace(new RegExp(`^import${from}`, "gm"), "await import($1);")
    .replace(/^export\s+(?=(?:const|let|var|function|class|async)\b)/gm, "");
}

let base = {};
let count = 0;
let end = null; // ends the running cell

function run(request) {
  for (const name of Object.keys(request.base || {})) {
    if (base[name] !== request.base[name]) process.env[name] = request.base[name];
  }
  base = request.base || base;
  const before = {};
  for (const [name, value] of Object.entries(request.env || {})) {
    before[name] = process.env[name];
    process.env[name] = value;
  }
  say({ type: "count", count: ++count });
  end = (err, value, failed) => {
    end = null;
    if (failed) fail(err);
    else if (value !== undefined) show(value, true);
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    say({ type: "done", id: request.id });
  };
  const mine = end;
  const once = (...args) => { if (end === mine) mine(...args); };
  // While code runs, Node itself breaks it off at SIGINT. It leaves the signal without a handler.
  process.removeListener("SIGINT", interrupted);
  try {
    let code = request.code;
    if (typescript) {
      run.transpile = run.transpile || transpiler();
      code = transpiled(code);
    }
    server.eval(dynamic(code) + "\n", context, `cell-${count}.js`, (err, value) => {
      once(err && err.err ? err.err : err, value, err !== null && err !== undefined);
    });
  } catch (err) {
    once(err, undefined, true);
  } finally {
    process.on("SIGINT", interrupted);
  }
}

// transpiled makes JavaScript of a TypeScript cell. As for Node's REPL, a cell in braces is an object if it
// can be one.
function transpiled(code) {
  if (/^\s*\{[^]*\}\s*$/.test(code)) {
    try {
      return run.transpile(`(${code.trim()})`);
    } catch { /* it is a block */ }
  }
  return run.transpile(code);
}

// thrown takes an error that no call of ours returned.
function thrown(err) {
  if (end) end(err && err.err ? err.err : err, undefined, true);
  else process.stderr.write(util.inspect(err) + "\n");
}

function interruption() {
  const err = new Error("the cell was interrupted");
  err.name = "KeyboardInterrupt";
  err.stack = `${err.name}: ${err.message}`;
  return err;
}

function interrupted() {
  if (end) {
    end(interruption(), undefined, true);
  }
}
process.on("SIGINT", interrupted);
for (const event of ["uncaughtException", "unhandledRejection"]) process.on(event, thrown);

let input = "";
const requests = fs.createReadStream(null, { fd: 3, encoding: "utf8" });
requests.on("data", (chunk) => {
  input += chunk;
  for (let i; (i = input.indexOf("\n")) >= 0;) {
    const raw = input.slice(0, i);
    input = input.slice(i + 1);
    run(JSON.parse(raw));
  }
});
requests.on("end", () => process.exit(0));
say({ type: "ready" });
