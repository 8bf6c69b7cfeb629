// Templates, builds, pools, secrets, keys, members, quotas, usage, audit and webhooks.
import { useEffect, useState } from "preact/hooks";
import { askCreate, close, dialog } from "./actions";
import { del, explain, get, isAdmin, lines, mayManage, mayRun, patch, post, put, self } from "./api";
import { go, place, set } from "./router";
import { age, bytes, clock, count, moment, span } from "./text";
import { Bar, Copy, Dialog, Empty, fail, Fault, Form, How, Plain, say, State, Table, useLoad, useNow } from "./ui";
import type { Build, QuotaReport, Template } from "./types";

export const Head = ({ title, children }: { title: string; children?: preact.ComponentChildren }) => <header class="top"><h1>{title}</h1><span class="grow" />{children}</header>;

/** confirm asks before something that can't be undone. */
export function confirm(title: string, text: string, action: string, run: () => Promise<unknown>, then: () => void): void {
  dialog.value = <Form title={title} action={action} close={close} fields={[]} run={async () => { await run(); then(); }}><p>{text}</p></Form>;
}

/** once shows a secret that is told only now. */
export function once(title: string, secret: string): void {
  dialog.value = <Dialog title={title} close={close}><p>It is shown only now, and kept nowhere. Copy it.</p><pre class="secret" tabIndex={0} aria-label="Secret">{secret}</pre>
    <div class="actions"><Copy text={secret} label="Copy the secret" /><button class="primary" onClick={close}>Done</button></div></Dialog>;
}

export function Templates() {
  const now = useNow(4000);
  const t = useLoad((s) => get<Template[]>("/carrel/v1/templates", s), []);
  const b = useLoad((s) => get<Build[]>("/carrel/v1/builds?limit=50", s), [now]);
  const build = () => {
    dialog.value = <Form title="Build a template" action="Start build" close={close} wide fields={[{ name: "name", label: "Name", required: true },
      { name: "dockerfile", label: "Dockerfile", lines: 10, required: true, value: "FROM base\nRUN echo hello > /etc/greeting\n" }, { name: "noCache", label: "Run all steps, as if the cache were empty", type: "checkbox" }]}
      run={async (v) => {
        const made = await post<Build>("/carrel/v1/builds", { name: v.name, dockerfile: v.dockerfile, noCache: v.noCache === "on" });
        go("/builds/" + made.id);
      }}><How cli="carrel template build NAME DIRECTORY" api="POST /carrel/v1/builds" /></Form>;
  };
  return <div class="screen"><Head title="Templates">{mayRun() && <button class="primary" onClick={build}>Build a template</button>}</Head>
    <Fault of={t.error} />
    {t.value && <Table label="Templates" head={["Name", "From", "Tier", "Size", "Made", "Start", ""]}>{t.value.map((x) => <tr key={x.id}>
      <td><strong><Plain>{x.name + (x.tag ? ":" + x.tag : "")}</Plain></strong> {x.builtIn && <span class="label">built in</span>}{x.public && <span class="label">public</span>}</td>
      <td><Plain>{x.source}</Plain></td><td>{x.tier ?? ""}</td><td class="num">{x.size ? bytes(x.size) : ""}</td><td class="num">{moment(x.created)}</td><td class="mono"><Plain>{x.start?.join(" ")}</Plain></td>
      <td class="right">{mayRun() && <><button class="quiet small" onClick={() => void askCreate({ id: x.id, label: x.name })}>Create sandbox</button>
        {!x.builtIn && <button class="quiet small" onClick={() => confirm("Delete " + x.name, "Sandboxes that were made from it live on.", "Delete", () => del("/carrel/v1/templates/" + encodeURIComponent(x.name)), t.again)}>Delete</button>}</>}</td></tr>)}</Table>}
    <h2>Builds</h2><Fault of={b.error} />
    {b.value && !b.value.length && <Empty title="No builds yet">Write a Dockerfile here, or <code>carrel template build</code> in a directory that has one.</Empty>}
    {b.value && b.value.length > 0 && <Table label="Builds" head={["Template", "State", "Steps", "Cached", "Began", "Took", ""]}>{b.value.map((x) => <tr key={x.id}>
      <td><a class="main" href={"/console/builds/" + x.id}><Plain>{x.name || x.templateID}</Plain></a> {x.tags?.map((g) => <span class="label" key={g}><Plain>{g}</Plain></span>)}</td><td><State of={x.state} /></td>
      <td class="num">{x.steps?.length ?? 0}</td><td class="num">{x.steps?.filter((s) => s.cached).length ?? 0}</td><td class="num">{moment(x.created)}</td>
      <td class="num">{x.ended && !x.ended.startsWith("0001") ? age(x.started || x.created, new Date(x.ended).getTime()) : ""}</td>
      <td class="right">{["waiting", "building"].includes(x.state) && mayRun() && <button class="quiet small" onClick={() => void post(`/carrel/v1/builds/${x.id}/cancel`).then(b.again, fail)}>Cancel</button>}</td></tr>)}</Table>}
    <How cli="carrel template ls" api="GET /carrel/v1/templates" /></div>;
}

interface Line { time: string; level: string; source?: string; message: string; step?: string }
interface Step { text: string; cached?: boolean; state: string; took?: number; line?: number }

export function BuildScreen({ id }: { id: string }) {
  const [log, setLog] = useState<Line[]>([]);
  const [ended, setEnded] = useState(0);
  const now = useNow(1500);
  const b = useLoad((s) => get<Build & { steps?: Step[]; reason?: { message: string; hint?: string; step?: string } }>("/carrel/v1/builds/" + id, s), [id, ended || now]);
  useEffect(() => {
    const own = new AbortController(), have: Line[] = [];
    lines(`/carrel/v1/builds/${id}/logs?follow=true`, (l) => { if (l.log) { have.push(l.log); setLog(have.slice(-5000)); } if (l.end) setEnded(1); }, own.signal).catch((e) => { if (!own.signal.aborted) fail(e); });
    return () => own.abort();
  }, [id]);
  const steps = (b.value?.steps ?? []) as Step[];
  const by = (s: string) => log.filter((l) => (l.step ?? "") === s);
  const show = (list: Line[]) => <pre class="output" tabIndex={0} aria-label="Log">{list.map((l, i) => <div key={i} class={l.level === "error" ? "removed" : ""}><span class="muted">{clock(l.time)} </span><Plain>{l.message}</Plain></div>)}</pre>;
  return <div class="screen"><header class="top"><nav class="crumb" aria-label="Breadcrumb"><a href="/console/templates">Templates</a> /</nav><h1><Plain>{b.value?.name ?? id}</Plain></h1>{b.value && <State of={b.value.state} />}</header>
    <Fault of={b.error} />{b.value?.reason && <Fault of={{ text: b.value.reason.message ?? "", hint: (b.value.reason as { hint?: string }).hint ?? "" }} />}
    {steps.map((s, i) => <details class="panel" key={i} open={s.state === "building" || s.state === "error"}><summary><State of={s.state} /> <code><Plain>{s.text}</Plain></code> {s.cached && <span class="label">cached</span>} <span class="muted">{span(s.took)}</span></summary>{show(by(String(i + 1)))}</details>)}
    <details class="panel" open={!steps.length}><summary>The whole log <span class="muted">{count(log.length)} lines</span></summary>{show(log)}</details>
    <How cli={"carrel build logs " + id} api={`GET /carrel/v1/builds/${id}/logs?follow=true`} /></div>;
}

interface PoolStatus { cap: number; ready: number; making: number; memory: string; hits: number; misses: number; lost: number; problem?: string;
  kinds: { template: string; tier: string; limits: { cpus?: number; memoryMB?: number }; golden?: boolean; ready: number; making: number; target: number; floor?: number; hits: number; misses: number }[];
  gate: { limit: number; starting: number; waiting: number; refused: number } }

export function Pools() {
  const now = useNow(3000);
  const p = useLoad((s) => get<PoolStatus>("/carrel/v1/pool", s), [now]);
  const v = p.value;
  return <div class="screen"><Head title="Pools" /><Fault of={p.error} />
    {v && <><div class="glance"><div class="card"><span class="muted">Ready</span><strong>{v.ready}<small> of {v.cap}</small></strong><Bar used={v.ready} most={v.cap} /></div>
      <div class="card"><span class="muted">Hits</span><strong>{count(v.hits)}</strong><span class="muted">{count(v.misses)} misses, {count(v.lost)} given up</span></div>
      <div class="card"><span class="muted">Starting</span><strong>{v.gate.starting}<small> of {v.gate.limit}</small></strong><span class="muted">{v.gate.waiting} wait, {v.gate.refused} refused</span></div>
      <div class="card"><span class="muted">Memory says</span><strong>{v.memory}</strong></div></div>
      {v.problem && <Fault of={{ text: v.problem, hint: "" }} />}
      {v.kinds.length ? <Table label="Kinds" head={["Template", "Tier", "Size", "Ready", "Making", "Target", "Hits", "Misses"]}>{v.kinds.map((k, i) => <tr key={i}><td><Plain>{k.template}</Plain> {k.golden && <span class="label">golden</span>}</td><td>{k.tier}</td>
        <td class="num">{k.limits.cpus} CPUs, {k.limits.memoryMB} MiB</td><td class="num">{k.ready}</td><td class="num">{k.making}</td><td class="num">{k.target}</td><td class="num">{k.hits}</td><td class="num">{k.misses}</td></tr>)}</Table>
        : <Empty title="Nothing is kept ready">The pool learns from creations which kinds are worth it.</Empty>}</>}
    <How cli="carrel pool" api="GET /carrel/v1/pool" /></div>;
}

interface Secret { id: string; name: string; version: number; hosts?: string[]; metadata?: Record<string, string>; updated: string }

export function Secrets() {
  const l = useLoad((s) => get<Secret[]>("/carrel/v1/secrets", s), []);
  const ask = (of?: Secret) => {
    dialog.value = <Form title={of ? "Replace the value of " + of.name : "New secret"} action={of ? "Replace" : "Keep"} close={close} fields={[...(of ? [] : [{ name: "name", label: "Name", required: true, hint: "lower case; policies call it by this name" }]),
      { name: "value", label: "Value", type: "password", required: true, hint: "nobody can read it again; it leaves only inside requests" }, ...(of ? [] : [{ name: "hosts", label: "Only for these hosts", hint: "separated by spaces; left out, every host that a policy names" }])]}
      run={async (v) => {
        if (of) await put("/carrel/v1/secrets/" + of.id, { value: v.value });
        else await post("/carrel/v1/secrets", { name: v.name, value: v.value, hosts: v.hosts.split(/\s+/).filter(Boolean) });
        say("Kept"); l.again();
      }} />;
  };
  return <div class="screen"><Head title="Secrets">{mayRun() && <button class="primary" onClick={() => ask()}>New secret</button>}</Head><Fault of={l.error} />
    {l.value && !l.value.length && <Empty title="No secrets">A secret is put into a sandbox's requests on their way out. No sandbox ever holds it, and nobody can read it here.</Empty>}
    {l.value && l.value.length > 0 && <Table label="Secrets" head={["Name", "Only for", "Version", "Changed", ""]}>{l.value.map((s) => <tr key={s.id}><td><strong><Plain>{s.name}</Plain></strong></td><td class="mono"><Plain>{s.hosts?.join(", ") || "every host that a policy names"}</Plain></td><td class="num">{s.version}</td><td class="num">{moment(s.updated)}</td>
      <td class="right">{mayRun() && <><button class="quiet small" onClick={() => ask(s)}>Replace</button><button class="quiet small" onClick={() => confirm("Delete " + s.name, "Requests that need it fail from then on.", "Delete", () => del("/carrel/v1/secrets/" + s.id), l.again)}>Delete</button></>}</td></tr>)}</Table>}
    <How cli="carrel secret list" api="GET /carrel/v1/secrets" /></div>;
}

interface Key { id: string; name: string; project: string; scope: string; mask: string; created: string; createdBy?: string; expires?: string; lastUsed?: string; revoked?: string }
interface Member { project?: string; organisation?: string; person: string; role: string; since?: string; by?: string; group?: string }

export function Access() {
  const manage = mayManage();
  const keys = useLoad((s) => manage ? get<Key[]>("/carrel/v1/keys", s) : Promise.resolve([]), []);
  const members = useLoad((s) => get<Member[]>("/carrel/v1/members", s), []);
  const quotas = useLoad((s) => get<QuotaReport[]>("/carrel/v1/quotas", s), []);
  const own = useLoad((s) => get<QuotaReport[]>("/carrel/v1/quota", s), []);
  const newKey = () => {
    dialog.value = <Form title="New key" action="Make key" close={close} fields={[{ name: "name", label: "Name", required: true }, { name: "scope", label: "It may", options: [["read", "read: look, and enter nothing"], ["run", "run: make and use sandboxes"], ["admin", "admin: also manage keys"]], value: "run" },
      ...(isAdmin() ? [{ name: "project", label: "Project", value: self.value?.project }] : []), { name: "days", label: "Works for so many days", type: "number", hint: "left out, until it is revoked" }]}
      run={async (v) => {
        const k = await post<Key & { secret: string }>("/carrel/v1/keys", { name: v.name, scope: v.scope, project: v.project || undefined, expires: v.days ? new Date(Date.now() + Number(v.days) * 864e5).toISOString() : undefined });
        keys.again();
        setTimeout(() => once("The key " + k.name, k.secret));
      }} />;
  };
  const newMember = () => {
    dialog.value = <Form title="Let a person act" action="Give the right" close={close} fields={[{ name: "person", label: "Person", required: true, hint: "an email address, or the name they sign in with" }, { name: "role", label: "Role", options: ["read", "run", "admin"], value: "run" }, { name: "project", label: "Project", value: self.value?.project ?? "", required: true }]}
      run={async (v) => { await put("/carrel/v1/members/" + encodeURIComponent(v.person), { project: v.project, role: v.role }); members.again(); }} />;
  };
  const report = quotas.value?.length ? quotas.value : own.value ?? [];
  return <div class="screen"><Head title="Access and quotas" />
    <h2>Keys {manage && <button class="small" onClick={newKey}>New key</button>}</h2><Fault of={keys.error} />
    {!manage ? <p class="muted">A key with the scope admin sees keys.</p> : keys.value && !keys.value.length ? <p class="muted">No keys but the daemon's own.</p>
      : <Table label="Keys" head={["Name", "Project", "Scope", "Key", "Last used", "Expires", "State", ""]}>{keys.value?.map((k) => <tr key={k.id}><td><strong><Plain>{k.name}</Plain></strong></td><td><Plain>{k.project}</Plain></td><td>{k.scope}</td><td class="mono">{k.mask}</td><td class="num">{moment(k.lastUsed)}</td><td class="num">{moment(k.expires)}</td>
        <td><State of={k.revoked && !k.revoked.startsWith("0001") ? "revoked" : "ready"} /></td>
        <td class="right">{!(k.revoked && !k.revoked.startsWith("0001")) && <><button class="quiet small" onClick={() => confirm("Rotate " + k.name, "It gets another secret. The old one works for an hour.", "Rotate", async () => { const r = await post<{ secret: string }>(`/carrel/v1/keys/${k.id}/rotate`, { overlap: "1h" }); setTimeout(() => once("The key " + k.name, r.secret)); }, keys.again)}>Rotate</button>
          <button class="quiet small" onClick={() => confirm("Revoke " + k.name, "It works no more from now on, and the streams that it opened are cut.", "Revoke", () => del("/carrel/v1/keys/" + k.id), keys.again)}>Revoke</button></>}</td></tr>)}</Table>}
    <h2>Members {manage && <button class="small" onClick={newMember}>Add</button>}</h2><Fault of={members.error} />
    {members.value && !members.value.length ? <p class="muted">Nobody yet. People sign in with a password or at your identity provider.</p>
      : <Table label="Members" head={["Person", "Role", "Project", "Since", "By", ""]}>{members.value?.map((m) => <tr key={m.person + m.project + m.organisation}><td><strong><Plain>{m.person}</Plain></strong></td><td>{m.role}</td><td><Plain>{m.project || m.organisation}</Plain></td><td class="num">{moment(m.since)}</td><td><Plain>{m.group ? "group " + m.group : m.by}</Plain></td>
        <td class="right">{manage && !m.group && <button class="quiet small" onClick={() => confirm("Remove " + m.person, "The right ends, and so do the streams that it opened.", "Remove", () => del("/carrel/v1/members/" + encodeURIComponent(m.person) + "?" + new URLSearchParams(m.project ? { project: m.project } : { organisation: m.organisation ?? "" })), members.again)}>Remove</button>}</td></tr>)}</Table>}
    <h2>Quotas</h2><Fault of={own.error} />
    {report.map((r) => <section class="panel" key={r.project + (r.key ?? "")} aria-label={"Quota of " + (r.keyName || r.project)}><h3><Plain>{r.keyName ? `${r.keyName} in ${r.project}` : r.project}</Plain>{isAdmin() && <button class="small" onClick={() => {
      dialog.value = <Form title={"Quota of " + (r.keyName || r.project)} action="Set" close={close} fields={r.limits.map((x) => ({ name: x.name, label: x.name, type: "number", value: x.hard === undefined ? "" : String(x.hard) }))}
        run={async (v) => { await put("/carrel/v1/quota", { project: r.project, key: r.key, hard: Object.fromEntries(Object.entries(v).filter(([, n]) => n !== "").map(([k, n]) => [k, Number(n)])) }); own.again(); quotas.again(); }} />;
    }}>Change</button>}</h3>
      <dl class="quota">{r.limits.map((x) => [<dt key={x.name}>{x.name}</dt>, <dd key={x.name + "v"}><Bar used={x.used} most={x.hard} /><span class="num">{x.used}{x.hard !== undefined ? " of " + x.hard : ", no limit"}</span></dd>])}</dl></section>)}
    <How cli="carrel key list" api="GET /carrel/v1/keys" /></div>;
}

interface UsageReport { from: string; to: string; currency?: string; rows: ({ group: string[] } & Totals)[]; total: Totals }
interface Totals { aliveSeconds: number; vcpuSeconds: number; cpuSeconds: number; memoryMiBSeconds: number; bytesOut: number; bytesIn: number; snapshotMiBSeconds: number; cost?: number }

export function Usage() {
  const by = place.value.query.get("by") || "project", from = place.value.query.get("from") || "30";
  const u = useLoad((s) => get<UsageReport>("/carrel/v1/usage?" + new URLSearchParams({ by, from: new Date(Math.floor(Date.now() / 36e5) * 36e5 - Number(from) * 864e5).toISOString() }), s), [by, from]);
  const most = Math.max(...(u.value?.rows.map((r) => r.cost ?? r.vcpuSeconds) ?? [0]));
  const cells = (t: Totals) => <><td class="num right">{(t.aliveSeconds / 3600).toFixed(2)}</td><td class="num right">{(t.vcpuSeconds / 3600).toFixed(2)}</td><td class="num right">{(t.cpuSeconds / 3600).toFixed(3)}</td><td class="num right">{(t.memoryMiBSeconds / 3600 / 1024).toFixed(2)}</td><td class="num right">{bytes(t.bytesOut)}</td><td class="num right">{bytes(t.bytesIn)}</td>{u.value?.currency && <td class="num right">{t.cost?.toFixed(4) ?? ""}</td>}</>;
  return <div class="screen"><Head title="Usage and cost" />
    <form class="filters" onSubmit={(e) => { e.preventDefault(); const l = String(new FormData(e.currentTarget).get("label")); if (l) set("by", "label:" + l); }}>
      <select aria-label="Group by" value={by} onChange={(e) => set("by", e.currentTarget.value)}>{["project", "key", "template", "tier", "kind", "day", "sandbox", ...(by.startsWith("label:") ? [by] : [])].map((v) => <option key={v} value={v}>By {v}</option>)}</select>
      <input class="short" name="label" aria-label="Group by this label" placeholder="by label…" />
      <select aria-label="Time" value={from} onChange={(e) => set("from", e.currentTarget.value)}>{[["1", "Last day"], ["7", "Last week"], ["30", "Last 30 days"], ["90", "Last 90 days"]].map(([v, t]) => <option key={v} value={v}>{t}</option>)}</select>
      <Export by={by} /></form><Fault of={u.error} />
    {u.value && (u.value.rows.length === 0 ? <Empty title="Nothing was used">Choose a longer time.</Empty>
      : <div class="tablebox"><table aria-label="Usage"><thead><tr><th scope="col">{by}</th><th scope="col"><span class="hidden">Share</span></th>{["Alive, h", "vCPU, h", "CPU used, h", "Memory, GiB h", "Out", "In", ...(u.value.currency ? ["Cost, " + u.value.currency] : [])].map((h) => <th key={h} scope="col" class="right">{h}</th>)}</tr></thead>
        <tbody>{u.value.rows.slice(0, 1000).map((r) => <tr key={r.group.join()}><td><Plain>{r.group.join(" ") || "(none)"}</Plain></td><td class="share"><Bar used={r.cost ?? r.vcpuSeconds} most={most} /></td>{cells(r)}</tr>)}
          <tr class="sum"><td>Total</td><td />{cells(u.value.total)}</tr></tbody></table></div>)}
    <How cli={"carrel usage --by " + by} api={"GET /carrel/v1/usage?by=" + by} /></div>;
}

function Export({ by }: { by: string }) {
  return <Copy text={`carrel usage --by ${by} --csv > usage.csv`} label="Copy the command for CSV" />;
}

interface Trail { seq: number; time: string; kind: string; key?: string; person?: string; project?: string; role?: string; from?: string; op?: string; target?: string; status?: number; repeats?: number; text?: string }

export function Audit() {
  const kind = place.value.query.get("kind") ?? "", [list, setList] = useState<Trail[]>([]), [error, setError] = useState<{ text: string; hint: string } | null>(null);
  const [report, setReport] = useState<{ ok: boolean; records: number; signedTo: number; problems?: { text: string }[]; notes?: string[] } | null>(null);
  useEffect(() => {
    const own = new AbortController(), have: Trail[] = [];
    lines("/carrel/v1/trail?limit=500" + (kind && "&kind=" + kind), (l) => { have.push(l.record ?? l); }, own.signal).then(() => setList(have.reverse()), (e) => { if (!own.signal.aborted) setError(explain(e)); });
    return () => own.abort();
  }, [kind]);
  return <div class="screen"><Head title="Audit">{isAdmin() && <button onClick={() => void get<any>("/carrel/v1/trail/verify").then(setReport, fail)}>Verify the trail</button>}</Head>
    {report && <div class={"note" + (report.ok ? " good" : " bad")} role="status">{report.ok ? `Nobody changed, removed or reordered any of ${count(report.records)} records. Signed up to record ${report.signedTo}.` : <>The trail is not as it was written: {report.problems?.map((p) => <Plain>{p.text}</Plain>)}</>}</div>}
    <div class="filters"><select aria-label="Kind" value={kind} onChange={(e) => set("kind", e.currentTarget.value)}><option value="">All kinds</option>{["change", "enter", "refuse", "read"].map((k) => <option key={k}>{k}</option>)}</select></div>
    <Fault of={error} />{!error && !list.length && <Empty title="No records">Nothing matches.</Empty>}
    {list.length > 0 && <Table label="Audit trail" head={["Time", "Kind", "Who", "From", "What", "About", "Status"]}>{list.map((r) => <tr key={r.seq}><td class="num">{moment(r.time)}</td><td><span class={"state " + (r.kind === "refuse" ? "bad" : r.kind === "change" ? "busy" : "rest")}>{r.kind}</span></td><td><Plain>{r.key}</Plain></td><td class="mono"><Plain>{r.from}</Plain></td><td class="mono"><Plain>{r.op ?? r.text}</Plain>{r.repeats ? ` (${r.repeats + 1}×)` : ""}</td><td class="mono"><Plain>{r.target}</Plain></td><td class="num">{r.status}</td></tr>)}</Table>}
    <How cli="carrel audit ls" api="GET /carrel/v1/trail" /></div>;
}

interface Hook { id: string; name: string; url: string; enabled: boolean; events: string[]; createdAt: string; signatureSecret?: string }
interface Delivery { event: string; type: string; sandboxId: string; time: string; state: string; attempts: number; status?: number; error?: string }

export function Webhooks() {
  const l = useLoad((s) => get<Hook[]>("/carrel/v1/webhooks", s), []);
  const [open, setOpen] = useState("");
  const ask = () => {
    dialog.value = <Form title="New webhook" action="Make webhook" close={close} fields={[{ name: "name", label: "Name", required: true }, { name: "url", label: "URL", required: true, value: "https://" }, { name: "events", label: "Events", value: "sandbox.lifecycle.created sandbox.lifecycle.killed", required: true, hint: "separated by spaces" }]}
      run={async (v) => {
        const h = await post<Hook>("/carrel/v1/webhooks", { name: v.name, url: v.url, events: v.events.split(/\s+/).filter(Boolean) });
        l.again();
        if (h.signatureSecret) setTimeout(() => once("The secret that signs deliveries", h.signatureSecret!));
      }} />;
  };
  return <div class="screen"><Head title="Webhooks">{mayRun() && <button class="primary" onClick={ask}>New webhook</button>}</Head><Fault of={l.error} />
    {l.value && !l.value.length && <Empty title="No webhooks">A webhook tells your own program what happens to the project's sandboxes, at least once and in order.</Empty>}
    {l.value && l.value.length > 0 && <Table label="Webhooks" head={["Name", "URL", "Events", "State", ""]}>{l.value.map((h) => [<tr key={h.id}><td><button class="link" aria-expanded={open === h.id} onClick={() => setOpen(open === h.id ? "" : h.id)}><Plain>{h.name}</Plain></button></td><td class="mono"><Plain>{h.url}</Plain></td><td><Plain>{h.events.map((e) => e.replace("sandbox.lifecycle.", "")).join(", ")}</Plain></td><td><State of={h.enabled ? "ready" : "paused"} /></td>
      <td class="right">{mayRun() && <><button class="quiet small" onClick={() => void patch("/carrel/v1/webhooks/" + h.id, { enabled: !h.enabled }).then(l.again, fail)}>{h.enabled ? "Disable" : "Enable"}</button><button class="quiet small" onClick={() => confirm("Delete " + h.name, "Nothing more is sent.", "Delete", () => del("/carrel/v1/webhooks/" + h.id), l.again)}>Delete</button></>}</td></tr>,
      open === h.id && <tr key={h.id + "d"} class="detail"><td colSpan={5}><Deliveries id={h.id} /></td></tr>])}</Table>}
    <How cli="carrel webhook list" api="GET /carrel/v1/webhooks" /></div>;
}

function Deliveries({ id }: { id: string }) {
  const now = useNow(3000);
  const d = useLoad((s) => get<Delivery[]>(`/carrel/v1/webhooks/${id}/deliveries`, s), [id, now]);
  const replay = (body: unknown) => void post<{ events: number }>(`/carrel/v1/webhooks/${id}/replay`, body).then((r) => { say(`${count(r.events)} sent again`); d.again(); }, fail);
  return <><Fault of={d.error} />{mayRun() && <div class="actions left"><button class="small" onClick={() => replay({ dead: true })}>Send all dead ones again</button></div>}
    {d.value && !d.value.length ? <p class="muted">Nothing was sent yet.</p> : <Table label="Deliveries" head={["Event", "Sandbox", "State", "Attempts", "Status", "Error", ""]}>{d.value?.map((x) => <tr key={x.event}><td>{x.type.replace("sandbox.lifecycle.", "")} <span class="muted num">{clock(x.time)}</span></td><td class="mono">{x.sandboxId.slice(0, 10)}</td><td><State of={x.state} /></td><td class="num">{x.attempts}</td><td class="num">{x.status ?? ""}</td><td><Plain>{x.error}</Plain></td>
      <td class="right">{mayRun() && <button class="quiet small" onClick={() => replay({ events: [x.event] })}>Send again</button>}</td></tr>)}</Table>}</>;
}
