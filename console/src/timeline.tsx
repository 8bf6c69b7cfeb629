// A sandbox's past, drawn as a tree.
import { useMemo, useState } from "preact/hooks";
import { askCreate, askFork, askPromote, askRollback, askSnapshot, close, dialog } from "./actions";
import { del, get, mayRun, patch, post, isAdmin, Problem } from "./api";
import { boxes, revision } from "./store";
import { age, bytes, count, difference, moment, quote, visible, type DiffLine } from "./text";
import { Difference, Empty, fail, Fault, Form, How, Plain, say, useLoad, useNow } from "./ui";
import type { FileChange, Sandbox, Snapshot, Timeline } from "./types";

const automatic = (s: Snapshot) => s.cause !== "request" && s.cause !== "guest";
const causes: Record<string, string> = { rollback: "left by a rollback", pause: "paused", timeout: "at the timeout", idle: "idle", fork: "forked", interval: "checkpoint",
  promote: "before the promotion", budget: "budget spent", guest: "from inside", request: "snapshot" };
const nameOf = (s: Snapshot) => s.label || s.names?.[0] || (s.cause === "command" ? s.detail : "") || causes[s.cause] || s.cause;

interface Dot { s: Snapshot; x: number; y: number }

/** layout puts time from left to right, and each branch on a line of its own. */
function layout(t: Timeline): { dots: Map<string, Dot>; lanes: number; columns: number } {
  const sorted = [...t.snapshots].sort((a, b) => (a.created < b.created ? -1 : 1));
  const children = new Map<string, Snapshot[]>(), known = new Set(sorted.map((s) => s.id));
  for (const s of sorted) {
    const p = s.parent && known.has(s.parent) ? s.parent : "";
    children.set(p, [...(children.get(p) ?? []), s]);
  }
  const column = new Map(sorted.map((s, i) => [s.id, i])), dots = new Map<string, Dot>();
  // The branch that leads to the present is straight.
  const line = new Set<string>();
  for (let id = t.head; id; id = t.snapshots.find((s) => s.id === id)?.parent) line.add(id);
  let lanes = 0;
  const stack: [Snapshot, number][] = [];
  for (const root of (children.get("") ?? []).sort((a, b) => Number(line.has(b.id)) - Number(line.has(a.id)))) {
    stack.push([root, lanes++]);
    while (stack.length) {
      const [s, lane] = stack.pop()!;
      dots.set(s.id, { s, x: column.get(s.id)!, y: lane });
      const next = [...(children.get(s.id) ?? [])].sort((a, b) => Number(line.has(b.id)) - Number(line.has(a.id)) || (a.created < b.created ? 1 : -1));
      // The present goes on where the head is, so what came after the head before is a branch.
      next.forEach((c, i) => stack.push([c, i === 0 && s.id !== t.head ? lane : lanes++]));
    }
  }
  return { dots, lanes: Math.max(lanes, 1), columns: sorted.length };
}

export function TimelineTab({ box }: { box: Sandbox }) {
  const now = useNow(10_000);
  const t = useLoad((s) => get<Timeline>(`/carrel/v1/sandboxes/${box.id}/timeline`, s), [box.id, box.snapshot, box.state]);
  const [chosen, setChosen] = useState<string[]>([]);
  const [zoom, setZoom] = useState(1);
  const [hideAuto, setHideAuto] = useState(false);
  void revision.value;
  const timeline = useMemo(() => {
    if (!t.value || !hideAuto) return t.value;
    // What is left out hands its parent on.
    const byID = new Map(t.value.snapshots.map((s) => [s.id, s]));
    const keep = (s: Snapshot) => !automatic(s) || s.id === t.value!.head || (s.names?.length ?? 0) > 0 || Boolean(s.label);
    const up = (id?: string): string | undefined => { const s = id ? byID.get(id) : undefined; return !s ? undefined : keep(s) ? s.id : up(s.parent); };
    return { ...t.value, snapshots: t.value.snapshots.filter(keep).map((s) => ({ ...s, parent: up(s.parent) })) };
  }, [t.value, hideAuto]);
  const drawn = useMemo(() => (timeline ? layout(timeline) : null), [timeline]);
  const pick = (id: string) => setChosen((c) => (c.includes(id) ? c.filter((x) => x !== id) : [...c.slice(-1), id]));
  const gx = 108, gy = 64, pad = 64;
  const of = (id: string) => timeline?.snapshots.find((s) => s.id === id);
  const both = chosen.map(of).filter(Boolean) as Snapshot[];
  const again = () => { t.again(); setChosen([]); };
  const width = drawn ? pad * 2 + (drawn.columns + 0.4) * gx : 0, height = drawn ? 44 + drawn.lanes * gy : 0;
  return <div class="timeline">
    <div class="filters">
      {mayRun() && <button class="primary" onClick={() => askSnapshot(box, again)}>Take snapshot</button>}
      {mayRun() && <button onClick={() => askFork(box, undefined, again)}>Fork now</button>}
      {mayRun() && box.tier === "sim" && <button onClick={() => askPromote(box)}>Promote</button>}
      <label class="check inline"><input type="checkbox" checked={hideAuto} onChange={(e) => setHideAuto(e.currentTarget.checked)} /> Hide automatic ones</label>
      <span class="grow" />
      {t.value && <span class="muted">{count(t.value.snapshots.length)} snapshots, {bytes(t.value.size)} stored</span>}
      <button aria-label="Zoom out" onClick={() => setZoom((z) => Math.max(0.4, z / 1.25))}>−</button><button aria-label="Zoom in" onClick={() => setZoom((z) => Math.min(2.5, z * 1.25))}>+</button>
    </div>
    <Fault of={t.error} />
    {drawn && timeline && timeline.snapshots.length === 0 && <Empty title="No snapshots yet">Take one, and this sandbox can go back to it, or be forked from it.</Empty>}
    {drawn && timeline && timeline.snapshots.length > 0 && <div class="treebox" tabIndex={0} aria-label="Tree of snapshots">
      <svg width={width * zoom} height={height * zoom} viewBox={`0 0 ${width} ${height}`} role="group" aria-label="Tree of snapshots">
        {[...drawn.dots.values()].map(({ s, x, y }) => {
          const p = s.parent ? drawn.dots.get(s.parent) : undefined;
          if (!p) return null;
          const x1 = pad + p.x * gx, y1 = 36 + p.y * gy, x2 = pad + x * gx, y2 = 36 + y * gy;
          return <path key={s.id} class="edge" d={y1 === y2 ? `M${x1} ${y1}H${x2}` : `M${x1} ${y1}C${x1 + 40} ${y1} ${x1 + 20} ${y2} ${x1 + 64} ${y2}H${x2}`} />;
        })}
        {timeline.head && drawn.dots.has(timeline.head) && (() => {
          const h = drawn.dots.get(timeline.head)!, x = pad + h.x * gx, y = 36 + h.y * gy;
          return <g class="present"><path class="edge now" d={`M${x} ${y}H${x + 52}`} /><circle cx={x + 58} cy={y} r={5} /><text x={x + 58} y={y - 12}>now</text></g>;
        })()}
        {[...drawn.dots.values()].map(({ s, x, y }) => {
          const cx = pad + x * gx, cy = 36 + y * gy, on = chosen.indexOf(s.id), forks = timeline.forks?.[s.id]?.length ?? 0;
          return <g key={s.id} class={"node" + (automatic(s) ? " auto" : "") + (on >= 0 ? " on" : "")} role="button" tabindex={0} aria-pressed={on >= 0}
            onClick={() => pick(s.id)} onKeyDown={(e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); pick(s.id); } }}>
            <title>{visible(nameOf(s))}</title><circle class="hit" cx={cx} cy={cy} r={20} />{s.memory && <circle class="ring" cx={cx} cy={cy} r={11} />}<circle class="core" cx={cx} cy={cy} r={7} />
            {forks > 0 && <text class="forks" x={cx + 12} y={cy - 9}>⑂{forks}</text>}
            <text x={cx} y={cy + 24}>{visible(nameOf(s).length > 16 ? nameOf(s).slice(0, 15) + "…" : nameOf(s))}</text><text class="when" x={cx} y={cy + 36}>{age(s.created, now)}</text>
          </g>;
        })}
      </svg></div>}
    {timeline && timeline.snapshots.length > 0 && both.length === 0 && <p class="muted pad">Choose a snapshot to go back to it or to fork it. Choose two to compare them. A ring says that memory and processes are in it.</p>}
    <div class="moments">
      {both.map((s, i) => <Moment key={s.id} box={box} s={s} which={both.length > 1 ? (i === 0 ? "A" : "B") : ""} again={again} forks={timeline?.forks?.[s.id] ?? []} head={timeline?.head === s.id} tip={!timeline?.snapshots.some((x) => x.parent === s.id)} compare={timeline?.head ? () => setChosen([s.id, timeline.head!]) : undefined} />)}
    </div>
    {both.length === 2 && <Changes a={both[0]} b={both[1]} />}
    {isAdmin() && both.length === 0 && <Store />}
    <How cli={both.length === 2 ? `carrel diff ${both[0].id} ${both[1].id}` : `carrel timeline ${box.id}`} api={both.length === 2 ? `GET /carrel/v1/snapshots/${both[0].id}/diff?to=${both[1].id}` : `GET /carrel/v1/sandboxes/${box.id}/timeline`} />
  </div>;
}

function Moment({ box, s, which, again, forks, head, tip, compare }: { box: Sandbox; s: Snapshot; which: string; again: () => void; forks: string[]; head: boolean; tip: boolean; compare?: () => void }) {
  const relabel = () => {
    dialog.value = <Form title="Label" action="Set label" close={close} fields={[{ name: "label", label: "Label", value: s.label ?? "" }]}
      run={async (v) => { await patch("/carrel/v1/snapshots/" + s.id, { label: v.label }); again(); }} />;
  };
  const remove = () => {
    dialog.value = <Form title={"Delete " + nameOf(s)} action="Delete" close={close} fields={[]}
      run={async () => { await del("/carrel/v1/snapshots/" + s.id); say("Snapshot deleted"); again(); }}>
      <p>What came after it stays. {s.new >= 0 ? `It added ${bytes(s.new)} to the store, and at most that is freed.` : "How much that frees is not known yet."}</p></Form>;
  };
  return <section class="panel moment" aria-label={"Snapshot " + nameOf(s)}>
    <h3>{which && <span class="which">{which}</span>}<Plain>{nameOf(s)}</Plain>{head && <span class="label">head</span>}{s.kept && <span class="label">kept</span>}</h3>
    <dl><dt>Taken</dt><dd>{moment(s.created)}</dd><dt>Because</dt><dd>{s.cause}{s.detail && <>: <Plain>{s.detail}</Plain></>}</dd>
      <dt>Holds</dt><dd>{s.memory ? "files, memory, processes" : "files"}, {bytes(s.size)}</dd><dt>Added</dt><dd>{bytes(s.new)}</dd><dt>ID</dt><dd class="mono">{s.id}</dd>
      {forks.length > 0 && <><dt>Forks</dt><dd>{forks.map((f) => <a key={f} class="mono" href={"/console/sandboxes/" + f + "/timeline"}>{boxes.get(f)?.name || f.slice(0, 10)} </a>)}</dd></>}</dl>
    {!which && !head && compare && <button class="quiet" onClick={compare}>Compare with the head</button>}
    {mayRun() && <div class="actions left">
      <button class="primary" onClick={() => askRollback(box, s, again)}>Roll back…</button>
      {tip && !head && <button title="The end of this branch becomes the present" onClick={() => askRollback(box, s, again)}>Promote branch…</button>}
      <button onClick={() => askFork(box, s, again)}>Fork…</button>
      <button onClick={() => void askCreate({ id: s.id, label: nameOf(s) })}>Create from…</button>
      <button class="quiet" onClick={relabel}>Label…</button>
      <button class="quiet" onClick={() => void patch("/carrel/v1/snapshots/" + s.id, { kept: !s.kept }).then(again, fail)}>{s.kept ? "Don't keep" : "Keep"}</button>
      <button class="quiet" onClick={remove}>Delete…</button></div>}
  </section>;
}

interface PastFile { info: { target?: string; size?: number }; content?: string; whole: boolean }

/** past reads a file of a snapshot; undefined if it has none. */
async function past(snapshot: string, path: string, signal: AbortSignal): Promise<PastFile | undefined> {
  try {
    return await get<PastFile>(`/carrel/v1/snapshots/${snapshot}/file?` + new URLSearchParams({ path }), signal);
  } catch (e) {
    if (e instanceof Problem && e.status === 404) return undefined;
    throw e;
  }
}

/** textOf is a file's text; null if it is none, or too long. */
function textOf(f?: PastFile): string | null {
  if (!f) return "";
  if (f.info.target) return "→ " + f.info.target;
  if (!f.whole) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(atob(f.content ?? ""), (c) => c.charCodeAt(0)));
    return text.includes("\0") ? null : text;
  } catch { return null; }
}

/** around keeps changed lines and some before and after them. */
function around(all: DiffLine[]): DiffLine[] {
  const near = new Uint8Array(all.length);
  all.forEach((l, i) => { if (l.sign !== " ") near.fill(1, Math.max(0, i - 3), i + 4); });
  const out: DiffLine[] = [];
  for (let i = 0; i < all.length && out.length < 5000; i++) {
    if (near[i]) out.push(all[i]);
    else if (i === 0 || near[i - 1]) out.push({ sign: " ", text: "⋯" });
  }
  return out;
}

/** How the text of one file differs between two moments. */
function TextChange({ a, b, path }: { a: Snapshot; b: Snapshot; path: string }) {
  const d = useLoad(async (s) => {
    const [x, y] = (await Promise.all([past(a.id, path, s), past(b.id, path, s)])).map(textOf);
    return x === null || y === null ? null : around(difference(x, y));
  }, [a.id, b.id, path]);
  if (d.error) return <Fault of={d.error} />;
  if (d.value === undefined) return <p class="muted">Comparing…</p>;
  return <div class="text">{d.value === null ? <p class="muted">Only texts of at most 1 MiB are compared by line.</p>
    : d.value.length ? <Difference of={d.value} /> : <p class="muted">The text is the same.</p>}
    <How cli={`carrel diff ${a.id} ${b.id} --file ${quote(path)}`} api={`GET /carrel/v1/snapshots/${a.id}/file?path=${encodeURIComponent(path)}`} /></div>;
}

/** What differs between two moments. */
function Changes({ a, b }: { a: Snapshot; b: Snapshot }) {
  const [open, setOpen] = useState("");
  const d = useLoad((s) => get<FileChange[]>(`/carrel/v1/snapshots/${a.id}/diff?to=${b.id}`, s), [a.id, b.id]);
  if (d.error) return <Fault of={d.error} />;
  if (!d.value) return <p class="muted pad">Comparing…</p>;
  const dirs = new Map<string, FileChange[]>();
  for (const c of d.value.slice(0, 5000)) {
    const dir = c.path.replace(/\/[^/]*$/, "") || "/";
    dirs.set(dir, [...(dirs.get(dir) ?? []), c]);
  }
  return <section class="panel" aria-label="Changed files"><h3>From A to B: {count(d.value.length)} {d.value.length === 1 ? "file" : "files"}</h3>
    {d.value.length === 0 && <p class="muted">No file differs.</p>}
    {[...dirs].sort(([x], [y]) => (x < y ? -1 : 1)).map(([dir, list]) => <details key={dir} open={dirs.size < 12}><summary class="mono"><Plain>{dir}</Plain> <span class="muted">{list.length}</span></summary>
      <ul class="changes">{list.map((c) => <li key={c.path} class={c.kind}><span class="sign" aria-label={c.kind}>{c.kind === "added" ? "+" : c.kind === "removed" ? "−" : c.kind === "mode" ? "m" : "~"}</span>{mayRun() && (c.after ?? c.before)?.size !== undefined ? <button class="link mono" aria-expanded={open === c.path} onClick={() => setOpen(open === c.path ? "" : c.path)}><Plain>{c.path.split("/").pop()!}</Plain></button>
          : <span class="mono"><Plain>{c.path.split("/").pop()!}</Plain></span>}
        <span class="muted num">{c.before && c.after ? `${bytes(c.before.size ?? 0)} → ${bytes(c.after.size ?? 0)}` : bytes((c.after ?? c.before)?.size ?? 0)}</span>
        {open === c.path && <TextChange a={a} b={b} path={c.path} />}</li>)}</ul></details>)}
  </section>;
}

/** What all snapshots cost, and what could be freed. */
function Store() {
  const u = useLoad((s) => get<Record<string, number>>("/carrel/v1/snapshot-store", s), []);
  if (!u.value) return null;
  const free = async () => {
    try { await post("/carrel/v1/snapshot-store/gc"); say("Freed what no snapshot needs"); u.again(); } catch (e) { fail(e); }
  };
  return <details class="panel"><summary>The store of snapshots</summary><dl>{Object.entries(u.value).filter(([, v]) => typeof v === "number").map(([k, v]) => [<dt key={k}>{k}</dt>, <dd key={k + "v"} class="num">{/size|hot|packs|quota|bytes/i.test(k) ? bytes(v) : count(v)}</dd>])}</dl>
    <button onClick={() => void free()}>Free what nothing needs</button></details>;
}
