// All sandboxes, live.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { askCreate, askFork, askLabel, kill, pause, resume } from "./actions";
import { get, isAdmin, mayRun } from "./api";
import { go, place, set } from "./router";
import { atFront, boxes, costs, currency, live, loaded, loadError, missing, revision, sample, sampled, samples } from "./store";
import { age, bytes, count } from "./text";
import { Bar, Empty, Fault, Grid, How, Plain, Spark, State, useLoad, useNow, type Column } from "./ui";
import type { Node } from "./people";
import type { QuotaReport, Sandbox } from "./types";

interface Filter { text: string; state: string; tier: string; template: string; project: string }

/** matches finds words in everything that a person may know a sandbox by. name=value finds a label. */
function matches(b: Sandbox, f: Filter): boolean {
  if (f.state && b.state !== f.state) return false;
  if (f.tier && b.tier !== f.tier) return false;
  if (f.template && (b.alias || b.template) !== f.template) return false;
  if (f.project && b.project !== f.project) return false;
  return f.text.toLowerCase().split(/\s+/).every((w) => {
    if (!w) return true;
    const at = w.indexOf("=");
    if (at > 0) return (b.metadata?.[w.slice(0, at)] ?? "").toLowerCase().startsWith(w.slice(at + 1));
    return b.id.includes(w) || (b.name ?? "").includes(w) || (b.alias ?? "").toLowerCase().includes(w) ||
      Object.entries(b.metadata ?? {}).some(([k, v]) => (k + "=" + v).toLowerCase().includes(w));
  });
}

export const labels = (m?: Record<string, string>) => Object.entries(m ?? {}).map(([k, v]) =>
  <span class="label" key={k}><Plain title={`${k}=${v}`}>{v === "" ? k : `${k}=${v}`}</Plain></span>);

export function Fleet() {
  const now = useNow(), q = place.value.query;
  const filter: Filter = { text: q.get("q") ?? "", state: q.get("state") ?? "", tier: q.get("tier") ?? "", template: q.get("template") ?? "", project: q.get("project") ?? "" };
  const sort = q.get("sort") ?? "-started";
  const [chosen, choose] = useState(new Set<string>());
  const [active, setActive] = useState(-1);
  const search = useRef<HTMLInputElement>(null);
  const seen = useRef<string[]>([]);
  void sampled.value;

  const { rows, states, tiers, templates, projects } = useMemo(() => {
    const all = [...boxes.values()], counts: Record<string, number> = {};
    const tiers = new Set<string>(), templates = new Set<string>(), projects = new Set<string>();
    for (const b of all) { counts[b.state] = (counts[b.state] ?? 0) + 1; tiers.add(b.tier); templates.add(b.alias || b.template); if (b.project) projects.add(b.project); }
    const rows = all.filter((b) => matches(b, filter));
    const column = columns.find((c) => c.id === sort.replace("-", "")), turn = sort.startsWith("-") ? -1 : 1;
    if (column?.sort) {
      const keyed = rows.map((b) => [column.sort!(b), b] as const);
      keyed.sort(([x, a], [y, b]) => (x < y ? -turn : x > y ? turn : a.id < b.id ? -1 : 1));
      return { rows: keyed.map(([, b]) => b), states: counts, tiers, templates, projects };
    }
    return { rows, states: counts, tiers, templates, projects };
  }, [revision.value, filter.text, filter.state, filter.tier, filter.template, filter.project, sort, costs.value]);

  useEffect(() => {
    const look = () => void sample(seen.current);
    const t = setInterval(look, 3000);
    return () => clearInterval(t);
  }, []);
  useEffect(() => { // what is gone can't be chosen
    if ([...chosen].some((id) => !boxes.has(id))) choose(new Set([...chosen].filter((id) => boxes.has(id))));
  }, [revision.value]);
  useEffect(() => {
    const keys = (e: KeyboardEvent) => {
      if (e.ctrlKey || e.metaKey || e.altKey || (e.target as Element).closest("input,textarea,select,dialog")) return;
      const ids = chosen.size ? [...chosen] : rows[active] ? [rows[active].id] : [];
      if (e.key === "/") { e.preventDefault(); search.current?.focus(); }
      else if (e.key === "n" && mayRun()) { e.preventDefault(); void askCreate(); }
      else if (e.key === "p" && mayRun()) void pause(ids);
      else if (e.key === "r" && mayRun()) void resume(ids);
      else if (e.key === "l" && mayRun() && ids.length) { e.preventDefault(); askLabel(ids); }
      else if (e.key === "f" && mayRun() && rows[active]) askFork(rows[active]);
      else if (e.key === "Delete" && mayRun()) kill(ids);
      else if (e.key === "Escape") choose(new Set());
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  }, [chosen, active, rows]);

  const cells = useMemo(() => columns.filter((c) => (c.id !== "project" || projects.size > 1) && (c.id !== "cost" || currency.value)), [projects.size, currency.value, now]);
  const ids = [...chosen];
  return <div class="screen">
    <header class="top">
      <h1>Sandboxes <span class="muted num">{count(boxes.size)}</span></h1>
      <span class={"live" + (live.value ? " on" : "")} title={live.value ? "The list follows the daemon's events" : "Not connected; trying again"}>{live.value ? "live" : "offline"}</span>
      <span class="grow" />
      {mayRun() && <button class="primary" onClick={() => void askCreate()}>New sandbox <kbd>n</kbd></button>}
    </header>
    <Glance states={states} />
    <div class="filters" role="search">
      <input ref={search} type="search" placeholder="Search by ID, name, template or label=value  ( / )" aria-label="Search sandboxes" value={filter.text} onInput={(e) => set("q", e.currentTarget.value)} />
      <Pick name="state" label="State" of={Object.keys(states)} now={filter.state} />
      <Pick name="tier" label="Tier" of={[...tiers]} now={filter.tier} />
      <Pick name="template" label="Template" of={[...templates]} now={filter.template} />
      {projects.size > 1 && <Pick name="project" label="Project" of={[...projects]} now={filter.project} />}
    </div>
    <Fault of={loadError.value} />
    {missing.value.length > 0 && <div class="fault">These nodes did not answer: {missing.value.join(", ")}</div>}
    {chosen.size > 0 && <div class="bulk" role="toolbar" aria-label="Chosen sandboxes">
      <strong>{count(chosen.size)} chosen</strong>
      <button onClick={() => void pause(ids)}>Pause</button><button onClick={() => void resume(ids)}>Resume</button><button onClick={() => askLabel(ids)}>Label…</button>
      <button class="danger" onClick={() => { kill(ids); choose(new Set()); }}>Kill</button>
      <button class="quiet" onClick={() => choose(new Set())}>Clear</button>
    </div>}
    {rows.length > 0 ? <Grid label="Sandboxes" rows={rows} columns={cells} id={(b) => b.id} open={(b) => go("/sandboxes/" + b.id)}
      chosen={mayRun() ? chosen : undefined} choose={mayRun() ? choose : undefined} active={active} setActive={setActive}
      onSeen={(s) => { const fresh = s.some((b) => !samples.has(b.id)); seen.current = s.filter((b) => b.state === "running").map((b) => b.id); if (fresh) void sample(seen.current); }}
      sort={sort} setSort={(by) => set("sort", by)} />
      : !loaded.value ? <div class="empty muted">Loading…</div>
      : boxes.size ? <Empty title="Nothing matches">Change the search, or <button class="link" onClick={() => go("/")}>clear all filters</button>.</Empty>
      : <Empty title="No sandboxes yet">{mayRun() ? <>Make one here, or with <code>carrel create</code>. It is there in milliseconds.</> : "Somebody with a key that may run has to make one."}</Empty>}
    <How cli="carrel ls" api={"GET /carrel/v1/sandboxes" + (filter.state ? "?state=" + filter.state : "")} />
  </div>;
}

function Pick({ name, label, of, now }: { name: string; label: string; of: string[]; now: string }) {
  return <select aria-label={label} value={now} onChange={(e) => set(name, e.currentTarget.value)}>
    <option value="">{label}: all</option>{of.sort().map((v) => <option key={v} value={v}>{v}</option>)}</select>;
}

const columns: Column<Sandbox>[] = [
  { id: "name", title: "Name", width: "minmax(150px, 1.4fr)", sort: (b) => b.name || "~" + b.id, cell: (b) => <a href={"/console/sandboxes/" + b.id} class="main">{b.name ? <><Plain>{b.name}</Plain> <span class="muted mono">{b.id.slice(0, 8)}</span></> : <span class="mono">{b.id}</span>}</a> },
  { id: "state", title: "State", width: "86px", sort: (b) => b.state, cell: (b) => <State of={b.state} /> },
  { id: "template", title: "Template", width: "minmax(70px, 0.6fr)", sort: (b) => b.alias || b.template, cell: (b) => <Plain>{b.alias || b.template}</Plain> },
  { id: "tier", title: "Tier", width: "60px", sort: (b) => b.tier, cell: (b) => b.tier },
  { id: "project", title: "Project", width: "100px", sort: (b) => b.project ?? "", cell: (b) => <Plain>{b.project}</Plain> },
  { id: "labels", title: "Labels", width: "minmax(110px, 1.2fr)", cell: (b) => <span class="labels">{labels(b.metadata)}</span> },
  { id: "cpu", title: "CPU", width: "118px", cell: (b) => {
    const m = b.state === "running" ? samples.get(b.id) : undefined, lastOne = m?.at(-1);
    return lastOne ? <span class="use"><Spark of={m!.map((x) => x.cpuUsedPct)} top={Math.max(100, lastOne.cpuCount * 100)} label="CPU of late" /><span class="num">{Math.round(lastOne.cpuUsedPct)}%</span></span> : null;
  } },
  { id: "memory", title: "Memory", width: "142px", cell: (b) => {
    const m = b.state === "running" ? samples.get(b.id) : undefined, lastOne = m?.at(-1);
    return lastOne ? <span class="use"><Spark of={m!.map((x) => x.memUsed)} top={lastOne.memTotal} label="Memory of late" /><span class="num">{bytes(lastOne.memUsed)}</span></span> : null;
  } },
  { id: "cost", title: "Cost", width: "80px", right: true, sort: (b) => costs.value.get(b.id) ?? 0, cell: (b) => <span class="num">{costs.value.get(b.id)?.toFixed(3) ?? ""}</span> },
  { id: "started", title: "Age", width: "72px", right: true, sort: (b) => b.started, cell: (b) => <span class="num" title={b.started}>{age(b.started)}</span> },
];

interface Admission { limit: number; starting: number; createsWaiting: number; wakesWaiting: number; machine: { memory: number; memoryTotal: number; disk: number; diskTotal: number } }
interface Pool { cap: number; ready: number; hits: number; misses: number }

/** Nodes, pool, queue and quotas at a glance. */
function Glance({ states }: { states: Record<string, number> }) {
  const now = useNow(10_000);
  const admin = isAdmin();
  const gate = useLoad((s) => admin ? get<Admission>("/carrel/v1/admission", s) : Promise.resolve(undefined), [now]);
  const pool = useLoad((s) => admin ? get<Pool>("/carrel/v1/pool", s) : Promise.resolve(undefined), [now]);
  const nodes = useLoad(async (s) => {
    if (!admin) return undefined;
    const l = await get<{ nodes: Node[] }>("/carrel/v1/nodes", s);
    atFront.value = true;
    return l;
  }, []);
  const quota = useLoad((s) => get<QuotaReport[]>("/carrel/v1/quota", s), [now]);
  const tight = (quota.value ?? []).flatMap((q) => q.limits.filter((l) => l.hard !== undefined && l.hard > 0).map((l) => ({ ...l, of: q.keyName || q.project })))
    .sort((a, b) => b.used / b.hard! - a.used / a.hard!).slice(0, 2);
  const m = gate.value?.machine;
  return <div class="glance">
    <div class="card"><span class="muted">Running</span><strong>{count(states.running ?? 0)}</strong><span class="muted">{count(states.paused ?? 0)} paused</span></div>
    {gate.value && <div class="card"><span class="muted">Queue</span><strong>{gate.value.createsWaiting + gate.value.wakesWaiting}</strong><span class="muted">{gate.value.starting} of {gate.value.limit} start now</span></div>}
    {pool.value && <a class="card" href="/console/pools"><span class="muted">Kept ready</span><strong>{pool.value.ready}<small> of {pool.value.cap}</small></strong><span class="muted">{pool.value.hits} hits, {pool.value.misses} misses</span></a>}
    {nodes.value && <a class="card" href="/console/nodes"><span class="muted">Nodes</span><strong>{nodes.value.nodes.length}</strong><span class="muted">{nodes.value.nodes.filter((n) => n.state !== "ready").map((n) => n.name + " " + n.state).join(", ") || "all ready"}</span></a>}
    {m && m.memoryTotal > 0 && <div class="card"><span class="muted">Memory</span><Bar used={m.memoryTotal - m.memory} most={m.memoryTotal} /><span class="muted">{bytes(m.memory)} free</span></div>}
    {m && m.diskTotal > 0 && <div class="card"><span class="muted">Disk</span><Bar used={m.diskTotal - m.disk} most={m.diskTotal} /><span class="muted">{bytes(m.disk)} free</span></div>}
    {tight.map((l) => <a class="card" key={l.name + l.of} href="/console/access"><span class="muted">Quota: {l.name}</span><Bar used={l.used} most={l.hard} /><span class="muted">{l.used} of {l.hard}</span></a>)}
  </div>;
}
