// The ledger of connections, live, and the inbox of those that wait for a person.
import { useEffect, useMemo, useState } from "preact/hooks";
import { askPolicy, askRule, askRuleForMany, close, dialog, policyOf } from "./actions";
import { follow, mayRun, post } from "./api";
import { place, set } from "./router";
import { boxes, inbox, revision } from "./store";
import { age, bytes, clock, count, difference, yaml } from "./text";
import { Copy, Dialog, Difference, Empty, fail, Fault, How, Plain, say, State, useNow } from "./ui";
import { explain } from "./api";
import type { Decision, Policy, Question, Rule, Sandbox } from "./types";

interface Group { key: string; host: string; box: string; programs: Set<string>; allowed: number; denied: number; injected: number;
  sent: number; received: number; last: Decision; lastDenied?: Decision; all: Decision[] }

const hostOf = (d: Decision) => d.name || d.address || "?";
/** A denial of a name's lookup and of a connection to it are one matter for people. */
const portOf = (d: Decision) => (d.protocol === "dns" ? "" : d.port && ![80, 443].includes(d.port) ? ":" + d.port : "");

/** useLedger follows the decisions about a sandbox, or about all. */
export function useLedger(box?: string) {
  const [all, setAll] = useState<Decision[]>([]);
  const [state, setState] = useState<{ live: boolean; error: { text: string; hint: string } | null }>({ live: false, error: null });
  useEffect(() => {
    const own = new AbortController(), have = new Map<number, Decision>();
    let timer = 0, last = 0;
    follow(() => "/carrel/v1/audit?follow=true" + (last ? "&after=" + last : "&limit=1000") + (box ? "&sandbox=" + box : ""), (line) => {
      const d: Decision | undefined = line.decision;
      if (!d) return;
      have.set(d.seq, d);
      last = Math.max(last, d.seq);
      if (have.size > 5000) have.delete(have.keys().next().value!);
      timer ||= window.setTimeout(() => { timer = 0; setAll([...have.values()]); }, 100);
    }, own.signal, (live) => setState({ live, error: null })).catch((e) => setState({ live: false, error: explain(e) }));
    return () => { own.abort(); clearTimeout(timer); };
  }, [box]);
  return { all, ...state };
}

function grouped(all: Decision[], many: boolean, text: string, verdict: string): Group[] {
  const groups = new Map<string, Group>();
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const d of all) {
    const host = hostOf(d) + portOf(d), key = (many ? d.id + " " : "") + host;
    if (words.length && !words.every((w) => `${host} ${d.process ?? ""} ${d.path ?? ""} ${d.rule} ${d.id}`.toLowerCase().includes(w))) continue;
    let g = groups.get(key);
    if (!g) groups.set(key, g = { key, host, box: d.id, programs: new Set(), allowed: 0, denied: 0, injected: 0, sent: 0, received: 0, last: d, all: [] });
    const n = 1 + (d.repeats ?? 0);
    if (d.allowed) g.allowed += n; else { g.denied += n; g.lastDenied = d; }
    if (d.secrets?.length) g.injected += n;
    if (d.process) g.programs.add(d.process.split("/").pop()!);
    g.sent += d.sent ?? 0;
    g.received += d.received ?? 0;
    g.last = d;
    g.all.push(d);
  }
  return [...groups.values()].filter((g) => verdict === "denied" ? g.denied : verdict === "allowed" ? g.allowed : verdict === "injected" ? g.injected : true)
    .sort((a, b) => b.last.seq - a.last.seq);
}

/** ruleFor is the smallest rule that lets through what was denied. */
export function ruleFor(d: Decision, policy: Policy | null): Rule {
  const host = hostOf(d), rule: Rule = { allow: [host] };
  const named = policy?.rules?.some((r) => r.allow?.includes(host) && (r.methods || r.paths));
  if (d.method && d.path && ["http", "https"].includes(d.protocol) && named) { rule.methods = [d.method]; rule.paths = [d.path]; }
  if (["tcp", "udp"].includes(d.protocol) && d.port) {
    rule.ports = [String(d.port)];
    if (d.name) rule.protocol = d.protocol;
  }
  return rule;
}

const builtIn = (d: Decision) => d.rule.startsWith("built-in");

function Why({ of }: { of: Decision }) {
  return <div class="why"><p><strong>Why it was denied: </strong><Plain>{of.reason || of.rule}</Plain></p>
    <p class="muted">Decided by <code>{of.rule}</code>{of.hint && <>. Hint: <Plain>{of.hint}</Plain></>}</p></div>;
}

/** whether a rule of the sandbox's policy allows the host by now. */
function allowedNow(g: Group): boolean {
  const box = boxes.get(g.box), host = hostOf(g.last);
  return Boolean(box?.network.allowOut?.includes(host) || box?.network.policy?.rules?.some((r) => r.allow?.includes(host) && !r.methods && !r.paths));
}

function allow(g: Group): void {
  const box = boxes.get(g.box), d = g.lastDenied!;
  if (!box) { say("That sandbox is gone, so nothing can be allowed for it.", { bad: true }); return; }
  const rule = ruleFor(d, policyOf(box.network)), all = [...boxes.values()].filter((b) => b.state === "running");
  const template = box.alias || box.template;
  const wider: [string, Sandbox[]][] = [["template " + template, all.filter((b) => (b.alias || b.template) === template && b.project === box.project)],
    ["project " + (box.project ?? ""), all.filter((b) => b.project === box.project)]];
  askRule(box, [rule], <><Why of={d} />
    {wider.some(([, l]) => l.length > 1) && <p class="actions left">{wider.filter(([, l]) => l.length > 1).map(([what, l]) =>
      <button type="button" class="quiet small" key={what} onClick={() => askRuleForMany(l, what, [rule], <Why of={d} />)}>For all {count(l.length)} of {what}…</button>)}</p>}</>);
}

export function Ledger({ box }: { box?: Sandbox }) {
  const { all, live, error } = useLedger(box?.id);
  const q = place.value.query, text = q.get("q") ?? "", verdict = q.get("verdict") ?? "";
  const [open, setOpen] = useState("");
  const groups = useMemo(() => grouped(all, !box, text, verdict), [all, text, verdict]);
  void revision.value;
  const now = useNow(5000);
  return <>
    <div class="filters" role="search">
      <input type="search" aria-label="Search the ledger" placeholder="Search hosts, programs, paths, rules" value={text} onInput={(e) => set("q", e.currentTarget.value)} />
      <select aria-label="Verdict" value={verdict} onChange={(e) => set("verdict", e.currentTarget.value)}>
        <option value="">All verdicts</option><option value="denied">Denied</option><option value="allowed">Allowed</option><option value="injected">With a secret</option></select>
      <span class={"live" + (live ? " on" : "")}>{live ? "live" : "offline"}</span>
      {box && mayRun() && <button onClick={() => learn(box, all)}>Learn a policy…</button>}
    </div>
    <Fault of={error} />
    {groups.length === 0 ? <Empty title="No connections">{text || verdict ? "Nothing matches." : box ? "Nothing tried to leave this sandbox. By default nothing gets out." : "No sandbox tried to reach anything yet."}</Empty>
      : <div class="tablebox"><table aria-label="Connections by host"><thead><tr><th scope="col">Host</th>{!box && <th scope="col">Sandbox</th>}<th scope="col">Verdict</th>
        <th scope="col">Programs</th><th scope="col" class="right">Sent</th><th scope="col" class="right">Received</th><th scope="col" class="right">Last</th><th scope="col"><span class="hidden">Actions</span></th></tr></thead>
        <tbody>{groups.slice(0, 400).map((g) => [
          <tr key={g.key}>
            <td><button class="link mono" aria-expanded={open === g.key} onClick={() => setOpen(open === g.key ? "" : g.key)}><Plain>{g.host}</Plain></button></td>
            {!box && <td><a href={"/console/sandboxes/" + g.box + "/network"}><Plain>{boxes.get(g.box)?.name || g.box.slice(0, 10)}</Plain></a></td>}
            <td>{g.denied > 0 && <span class="verdict bad">{count(g.denied)} denied</span>}{g.allowed > 0 && <span class="verdict good">{count(g.allowed)} allowed</span>}{g.injected > 0 && <span class="verdict busy">{count(g.injected)} injected</span>}</td>
            <td><Plain>{[...g.programs].join(", ")}</Plain></td>
            <td class="right num">{g.sent ? bytes(g.sent) : ""}</td><td class="right num">{g.received ? bytes(g.received) : ""}</td>
            <td class="right num">{age(g.last.time, now)}</td>
            <td class="right">{g.lastDenied && mayRun() && (builtIn(g.lastDenied) ? <button disabled title="No rule can allow this">Allow…</button>
              : allowedNow(g) ? <span class="muted">allowed by now</span>
              : <button onClick={() => allow(g)}>Allow…</button>)}</td>
          </tr>,
          open === g.key && <tr key={g.key + "+"} class="detail"><td colSpan={box ? 7 : 8}>
            {g.lastDenied && <Why of={g.lastDenied} />}
            <table class="inner" aria-label={"Connections to " + g.host}><thead><tr><th scope="col">Time</th><th scope="col">Verdict</th><th scope="col">Protocol</th><th scope="col">Request</th><th scope="col">Program</th><th scope="col">Rule</th></tr></thead>
              <tbody>{g.all.slice(-50).reverse().map((d) => <tr key={d.seq}><td class="num">{clock(d.time)}</td><td><State of={d.allowed ? "allowed" : "denied"} /></td><td>{d.protocol}{d.port ? ":" + d.port : ""}</td>
                <td class="mono"><Plain>{[d.method, d.path].filter(Boolean).join(" ")}</Plain>{d.status ? " → " + d.status : ""}{d.secrets?.length ? <span class="label">{d.secrets.join(", ")}</span> : null}</td><td><Plain>{d.process}</Plain></td><td><Plain>{d.rule + (d.answer ? ", " + d.answer : "")}</Plain>{d.repeats ? ` (${d.repeats + 1}×)` : ""}</td></tr>)}</tbody></table>
          </td></tr>])}</tbody></table></div>}
  </>;
}

/** learned is the smallest policy that allows what was seen, as carrel policy learn makes it: hosts,
 * and methods and paths where requests were seen. Numbers and long IDs in paths stand for any. */
export function learned(all: Decision[]): Policy {
  const hosts = new Map<string, { ports: Set<string>; methods: Set<string>; paths: Set<string>; raw: Set<string>; blind: boolean }>();
  for (const d of all) {
    if (!d.allowed || d.protocol === "dns") continue;
    const host = hostOf(d), h = hosts.get(host) ?? { ports: new Set(), methods: new Set(), paths: new Set(), raw: new Set(), blind: false };
    hosts.set(host, h);
    if (d.method && d.path) {
      h.methods.add(d.method);
      h.paths.add(d.path.split("/").map((p) => (/^\d+$|^[0-9a-f-]{16,}$/i.test(p) ? "*" : p)).join("/"));
    } else if (["tcp", "udp"].includes(d.protocol)) { h.raw.add(d.protocol); h.ports.add(String(d.port)); } else h.blind = true;
  }
  const rules: Rule[] = [];
  for (const [host, h] of [...hosts].sort(([a], [b]) => (a < b ? -1 : 1))) {
    for (const protocol of h.raw) rules.push({ allow: [host], ports: [...h.ports].sort(), protocol });
    if (!h.methods.size && !h.blind) continue;
    const rule: Rule = { allow: [host] };
    if (h.methods.size && !h.blind) {
      rule.methods = [...h.methods].sort();
      if (h.paths.size <= 20) rule.paths = [...h.paths].sort();
    }
    rules.push(rule);
  }
  return { rules };
}

function learn(box: Sandbox, all: Decision[]): void {
  const policy = learned(all);
  if (!policy.rules!.length) {
    dialog.value = <Dialog title="Learn a policy" close={close}><p>Nothing was allowed yet, so there is nothing to learn from.</p>
      <p class="muted">Let the sandbox reach everything for one run (<code>default: allow</code>, best with <code>inspect: true</code>), let it do its work, and come back.</p></Dialog>;
    return;
  }
  askPolicy(box, policy, <p>The smallest policy that allows what this sandbox was seen to do. <Copy text={yaml(policy)} label="Copy as YAML" /> <code>carrel policy learn {box.id}</code></p>);
}

export function NetworkScreen() {
  return <div class="screen">
    <header class="top"><h1>Network</h1></header>
    {inbox.value.length > 0 && <p class="note"><a href="/console/inbox">{count(inbox.value.length)} held {inbox.value.length === 1 ? "connection waits" : "connections wait"} for an answer</a></p>}
    <Ledger />
    <How cli="carrel audit --follow" api="GET /carrel/v1/audit?follow=true" />
  </div>;
}

/** The network of one sandbox. */
export function SandboxNetwork({ box }: { box: Sandbox }) {
  const policy = policyOf(box.network);
  const [shown, show] = useState(false);
  const own = inbox.value.filter((x) => x.sandbox === box.id);
  return <>
    {own.length > 0 && <Questions of={own} />}
    <details class="panel" open={shown} onToggle={(e) => show(e.currentTarget.open)}><summary>Policy: {policy === null ? "E2B's lists" : `${policy.rules?.length ?? 0} rules, then ${policy.default ?? "deny"}`}</summary>
      <Difference of={difference(yaml(policy ?? box.network), yaml(policy ?? box.network))} /></details>
    <Ledger box={box} />
  </>;
}

async function answer(question: Question, yes: boolean, how: string): Promise<void> {
  try {
    await post(`/carrel/v1/inbox/${encodeURIComponent(question.id)}`, { answer: yes ? "allow" : "deny", for: how });
    inbox.value = inbox.value.filter((x) => x.id !== question.id);
    say(`${question.host}: ${yes ? "allowed" : "denied"} ${how === "once" ? "once" : how === "hour" ? "for an hour" : "for ever"}`);
  } catch (e) { fail(e); }
}

function askAlways(question: Question): void {
  const box = boxes.get(question.sandbox);
  const rule: Rule = { allow: [question.host], ports: [String(question.port)] };
  if (question.method) { rule.methods = [question.method]; rule.paths = question.path ? [question.path] : undefined; }
  const before = box && policyOf(box.network);
  dialog.value = <Dialog title={"Allow " + question.host + " for ever"} close={close} wide>
    {before && <Difference of={difference(yaml(before), yaml({ ...before, rules: [rule, ...(before.rules ?? [])] }))} />}
    <p class="muted">It becomes a rule of this sandbox's policy. The audit trail says that it was you.</p>
    <div class="actions"><button onClick={close}>Cancel</button><button class="primary" autoFocus onClick={() => { close(); void answer(question, true, "always"); }}>Allow for ever</button></div>
    <How cli={`carrel inbox allow ${question.id} --for always`} api={`POST /carrel/v1/inbox/${question.id} {"answer": "allow", "for": "always"}`} />
  </Dialog>;
}

export function Questions({ of }: { of: Question[] }) {
  const now = useNow(1000);
  return <ul class="questions">{of.map((x) => {
    const left = Math.max(0, Math.round((new Date(x.until).getTime() - now) / 1000));
    return <li key={x.id} class="question">
      <div class="ask"><strong class="mono"><Plain>{x.host}</Plain>{![80, 443].includes(x.port) ? ":" + x.port : ""}</strong>
        <span class="mono muted"><Plain>{[x.protocol, x.method, x.path].filter(Boolean).join(" ")}</Plain></span>
        <div class="muted">{x.process ? <><Plain>{x.process}</Plain> in </> : ""}<a href={"/console/sandboxes/" + x.sandbox}><Plain>{boxes.get(x.sandbox)?.name || x.sandbox}</Plain></a> waits; {count(x.waiting)} {x.waiting === 1 ? "connection" : "connections"}, refused in {left} s</div></div>
      {mayRun() && <div class="answers">
        <button class="primary" onClick={() => void answer(x, true, "once")}>Allow once</button>
        <button onClick={() => void answer(x, true, "hour")}>For an hour</button>
        <button onClick={() => askAlways(x)}>For ever…</button>
        <button class="danger" onClick={() => void answer(x, false, "once")}>Deny</button>
        <button class="danger" onClick={() => void answer(x, false, "hour")}>Deny for an hour</button>
      </div>}</li>;
  })}</ul>;
}

export function InboxScreen() {
  return <div class="screen"><header class="top"><h1>Inbox</h1><span class="muted">connections that wait for a person</span></header>
    {inbox.value.length ? <Questions of={inbox.value} />
      : <Empty title="Nobody waits">A policy's rule with <code>ask</code> holds a connection until somebody answers here. The program inside waits meanwhile.</Empty>}
    <How cli="carrel inbox" api="GET /carrel/v1/inbox" /></div>;
}
