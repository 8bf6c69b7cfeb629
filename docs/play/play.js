// The page: it hands scripts to a worker, in which the machine lives, and shows what comes back.
"use strict";

const examples = {
  "Words, counted": `cat > poem <<'EOF'
the fog comes
on little cat feet
it sits looking
over harbor and city
EOF
tr -s ' ' '\\n' < poem | sort | uniq -c | sort -rn | head -3
awk '{ n += NF } END { print n, "words in", NR, "lines" }' poem`,
  "JSON": `printf '{"name":"ann","n":3}\\n{"name":"bob","n":5}\\n' > people.jsonl
jq -r 'select(.n > 3) | .name' people.jsonl
jq -s 'map(.n) | add' people.jsonl`,
  "Functions, arrays, traps": `set -euo pipefail
trap 'echo "bye ($?)"' EXIT
declare -A seen=()
visit() { local f; for f in "$@"; do seen[\${f##*.}]=$(( \${seen[\${f##*.}]:-0} + 1 )); done; }
touch a.txt b.txt c.md
visit *.*
for k in "\${!seen[@]}"; do echo "$k \${seen[$k]}"; done | sort`,
  "A loop that never ends": "yes | head -3; while :; do :; done",
};

const $ = (id) => document.getElementById(id);
let worker, pending = new Map(), last = 0, moments = [];

// start makes a new machine. An old one is thrown away with all that it had.
function start() {
  if (worker) worker.terminate();
  for (const { reject } of pending.values()) reject(new Error("stopped"));
  pending = new Map();
  moments = [];
  busy("loading…");
  worker = new Worker("worker.js");
  worker.onmessage = ({ data }) => {
    if (data.ready) return idle("ready");
    if (data.failed) return busy("could not load: " + data.failed);
    if (data.text !== undefined) return show(data.text, data.stream);
    const p = pending.get(data.id);
    pending.delete(data.id);
    data.error ? p.reject(new Error(data.error)) : p.resolve(data.value);
  };
  worker.onerror = (e) => busy("could not load: " + e.message);
}

// ask calls a function of the machine.
function ask(name, ...args) {
  return new Promise((resolve, reject) => {
    pending.set(++last, { resolve, reject });
    worker.postMessage({ id: last, name, args });
  });
}

function busy(text) {
  $("status").textContent = text;
  for (const id of ["run", "snapshot", "reset"]) $(id).disabled = true;
}

function idle(text) {
  $("status").textContent = text;
  for (const id of ["run", "snapshot", "reset"]) $(id).disabled = false;
  $("stop").disabled = true;
  refresh();
}

function show(text, stream) {
  const span = document.createElement("span");
  span.className = stream;
  span.textContent = text;
  $("output").append(span);
  $("output").scrollTop = $("output").scrollHeight;
}

async function run() {
  $("output").replaceChildren();
  busy("running…");
  $("stop").disabled = false;
  try {
    const { code, message, ms } = await ask("run", $("script").value);
    if (message) show(message + "\n", "note");
    idle(`status ${code}, ${ms} ms`);
  } catch (e) {
    if (e.message === "stopped") return;
    show(e.message + "\n", "err");
    idle("failed");
  }
}

// refresh lists the files and the moments.
async function refresh() {
  const items = (await ask("files")).map((f) => {
    const li = document.createElement("li");
    const name = f.path.replace("/home/user/", "");
    if (f.dir) {
      li.textContent = name + "/";
      return li;
    }
    const a = document.createElement("a");
    a.textContent = name;
    a.onclick = async () => { $("output").replaceChildren(); show(await ask("read", f.path) ?? "not readable", "out"); };
    li.append(a, ` ${f.size}`);
    return li;
  });
  $("files").replaceChildren(...items);
  $("moments").replaceChildren(...moments.map((n) => {
    const li = document.createElement("li");
    const a = document.createElement("a");
    a.textContent = `go back to moment ${n + 1}`;
    a.onclick = async () => { await ask("rollback", n); idle(`back at moment ${n + 1}`); };
    li.append(a);
    return li;
  }));
}

$("run").onclick = run;
$("stop").onclick = () => { show("stopped; the machine was thrown away\n", "note"); start(); };
$("snapshot").onclick = async () => { moments.push(await ask("snapshot")); refresh(); };
$("reset").onclick = async () => { await ask("reset"); moments = []; $("output").replaceChildren(); idle("ready"); };
$("script").onkeydown = (e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && !$("run").disabled) run(); };
for (const name of Object.keys(examples)) $("examples").append(new Option(name));
$("examples").onchange = () => { $("script").value = examples[$("examples").value]; };
$("script").value = Object.values(examples)[0];
start();
