// The runner of JavaScript cells for a Node that is not real: without a REPL, and with its three
// streams only. Package kernel starts it; see its doc for the protocol. Cells are scripts of the same
// global scope, so their variables stay. A cell with an await at the top becomes a function.
"use strict";
const fs = require("fs");
const util = require("util");
const vm = require("vm");
const mark = process.argv[2];
process.argv.length = 1;

function say(line) {
  let raw = Buffer.from(mark + JSON.stringify(line) + "\n");
  while (raw.length) raw = raw.subarray(fs.writeSync(1, raw));
}

for (const [method, type] of Object.entries({ log: "stdout", info: "stdout", debug: "stdout", error: "stderr",
  warn: "stderr", trace: "stderr" })) {
  console[method] = (...args) => say({ type, text: util.format(...args) + "\n" });
}
for (const name of ["stdout", "stderr"]) {
  process[name].write = (text) => { say({ type: name, text: String(text) }); return true; };
}
globalThis.require = require;
globalThis.module = { exports: {} };
globalThis.exports = globalThis.module.exports;
globalThis.display = (value) => show(value, false);

function forms(value) {
  if (value && typeof value === "object") {
    const own = value[Symbol.for("Jupyter.display")];
    if (typeof own === "function") return own.call(value);
  }
  const data = { "text/plain": typeof value === "string" ? value : util.inspect(value) };
  const proto = value && typeof value === "object" && Object.getPrototypeOf(value);
  if (Array.isArray(value) || (proto && Object.getPrototypeOf(proto) === null)) {
    try {
      const text = JSON.stringify(value);
      if (text && text.length < 1 << 20) data["application/json"] = JSON.parse(text);
    } catch { /* it refers to itself: the text is all */ }
  }
  return data;
}

function show(value, main) { say({ type: "result", main, data: forms(value) }); }

function fail(err) {
  if (err instanceof Error || (err && typeof err.stack === "string")) {
    const head = `${err.name}: ${err.message}`;
    const lines = String(err.stack).split("\n");
    const cut = lines.findIndex((l) => /quick\.js|node:/.test(l));
    const stack = (cut < 0 ? lines : lines.slice(0, cut)).join("\n");
    say({ type: "error", name: String(err.name), value: String(err.message),
      traceback: stack.startsWith(head) ? stack : `${head}\n${stack}` });
  } else {
    const text = util.inspect(err);
    say({ type: "error", name: "Error", value: text, traceback: `Uncaught ${text}` });
  }
}

// compiles tells whether a text is the body of an asynchronous function.
function compiles(body) {
  try {
    new Function(`async () => {${body}\n}`);
    return true;
  } catch {
    return false;
  }
}

// asynchronous makes an asynchronous function of a cell. Its declarations at the beginning of a line
// become global variables, and its last lines, if they are an expression, its value.
function asynchronous(code) {
  const lines = code
    .replace(/^(?:const|let|var)\s+([\w$]+)\s*=/gm, "globalThis.$1 =")
    .replace(/^(?:const|let|var)\s+(\{[^}]*\}|\[[^\]]*\])\s*=\s*(.*?);?$/gm, "($1 = $2);")
    .replace(/^(async\s+function\*?|function\*?|class)\s+([\w$]+)/gm, "globalThis.$2 = $1 $2")
    .replace(/\s+$/, "").replace(/;$/, "").split("\n");
  for (let i = 0; i < lines.length; i++) {
    const head = lines.slice(0, i).join("\n"), tail = lines.slice(i).join("\n");
    if (compiles(head) && compiles(`return (${tail}\n)`)) return `(async () => {${head}\nreturn (${tail}\n)})()`;
  }
  return `(async () => {${lines.join("\n")}\n})()`;
}

let base = {}, count = 0;

async function run(request) {
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
  try {
    const name = `cell-${count}.js`;
    const awaits = /\bawait\b/.test(request.code);
    let value = vm.runInThisContext(awaits ? asynchronous(request.code) : request.code, name);
    if (awaits) value = await value;
    if (value !== undefined) show(value, true);
  } catch (err) {
    fail(err);
  }
  for (const [name, value] of Object.entries(before)) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  }
  say({ type: "done", id: request.id });
}

for (const event of ["uncaughtException", "unhandledRejection"]) {
  process.on(event, (err) => say({ type: "stderr", text: util.inspect(err) + "\n" }));
}
let input = "", turn = Promise.resolve();
process.stdin.setEncoding("utf8");
process.stdin.on("data", (chunk) => {
  input += chunk;
  for (let i; (i = input.indexOf("\n")) >= 0;) {
    const request = JSON.parse(input.slice(0, i));
    input = input.slice(i + 1);
    turn = turn.then(() => run(request));
  }
});
process.stdin.on("end", () => process.exit(0));
say({ type: "ready" });
