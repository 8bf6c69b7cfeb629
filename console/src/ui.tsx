// The parts that all screens are made of.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { explain, Problem } from "./api";
import { visible, type DiffLine } from "./text";

// Notices: what was done, what failed, and how to undo it.

interface Notice { id: number; text: string; hint?: string; bad?: boolean; undo?: () => void }
const notices = signal<Notice[]>([]);
let counter = 0;

export function say(text: string, more: Partial<Notice> = {}): () => void {
  const n = { id: ++counter, text, ...more };
  notices.value = [...notices.value.slice(-4), n];
  const close = () => { notices.value = notices.value.filter((x) => x.id !== n.id); };
  setTimeout(close, more.bad ? 12_000 : 6_000);
  return close;
}

export function fail(e: unknown): void {
  if ((e as Error)?.name === "AbortError" || (e instanceof Problem && e.status === 401)) return;
  const { text, hint } = explain(e);
  say(text, { hint, bad: true });
}

export function Notices() {
  return <div class="notices" role="status" aria-live="polite">{notices.value.map((n) =>
    <div key={n.id} class={"notice" + (n.bad ? " bad" : "")}>
      <div><div class="wrap">{visible(n.text)}</div>{n.hint && <div class="hint">hint: {visible(n.hint)}</div>}</div>
      {n.undo && <button class="quiet" onClick={() => { n.undo!(); notices.value = notices.value.filter((x) => x !== n); }}>Undo</button>}
      <button class="quiet icon" aria-label="Dismiss" onClick={() => { notices.value = notices.value.filter((x) => x !== n); }}>×</button>
    </div>)}</div>;
}

/** An error in place of what could not be shown. */
export function Fault({ of }: { of: { text: string; hint: string } | null }) {
  if (!of) return null;
  return <div class="fault" role="alert"><strong class="wrap">{visible(of.text)}</strong>{of.hint && <div class="hint">hint: {visible(of.hint)}</div>}</div>;
}

/** What is there while there is nothing. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><div class="emptymark" aria-hidden="true" /><h2>{title}</h2><div class="muted">{children}</div></div>;
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  return <button class="quiet small" onClick={async () => {
    await navigator.clipboard?.writeText(text).catch(() => undefined);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  }}>{done ? "Copied" : label}</button>;
}

/** How the same is done without the console. */
export function How({ cli, api }: { cli: string; api: string }) {
  return <footer class="how">
    <span class="way"><span class="tag">CLI</span><code>{visible(cli)}</code><Copy text={cli} /></span>
    <span class="way"><span class="tag">API</span><code>{visible(api)}</code><Copy text={api} /></span>
  </footer>;
}

/** Text of strangers. It is never more than text. */
export const Plain = ({ children, title }: { children?: string; title?: string }) =>
  <span class="wrap" title={title}>{visible(children ?? "")}</span>;

const tones: Record<string, string> = {
  running: "good", ready: "good", delivered: "good", allowed: "good", paused: "rest", waiting: "rest", pending: "rest", cancelled: "rest",
  starting: "busy", pausing: "busy", resuming: "busy", stopping: "busy", building: "busy", held: "busy", draining: "busy",
  error: "bad", dead: "bad", denied: "bad", away: "bad", revoked: "bad",
};
export const State = ({ of }: { of: string }) => <span class={"state " + (tones[of] ?? "rest")}>{visible(of)}</span>;

/** useLoad asks for something, and again when the keys change. */
export function useLoad<T>(fn: (signal: AbortSignal) => Promise<T>, keys: unknown[] = []) {
  const [value, setValue] = useState<T | undefined>(undefined);
  const [error, setError] = useState<{ text: string; hint: string } | null>(null);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const own = new AbortController();
    fn(own.signal).then((v) => { if (!own.signal.aborted) { setValue(v); setError(null); } },
      (e) => { if (!own.signal.aborted) setError(explain(e)); });
    return () => own.abort();
  }, [...keys, turn]);
  return { value, error, again: () => setTurn((n) => n + 1) };
}

export function useNow(every = 5000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => { const t = setInterval(() => setNow(Date.now()), every); return () => clearInterval(t); }, [every]);
  return now;
}

// Dialogs. The browser's own element keeps the focus inside, and closes with Escape.

export function Dialog({ title, close, children, wide }: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => { ref.current?.showModal(); }, []);
  return <dialog ref={ref} class={wide ? "wide" : ""} aria-label={title} onClose={close}
    onClick={(e) => { if (e.target === ref.current) close(); }}>
    <div class="dialog"><header><h2>{title}</h2><button class="quiet icon" aria-label="Close" onClick={close}>×</button></header>{children}</div>
  </dialog>;
}

export interface Field { name: string; label: string; type?: string; value?: string; options?: (string | [string, string])[];
  hint?: string; required?: boolean; lines?: number }

/** A form in a dialog. What it does may fail: then it stays open and says why. */
export function Form({ title, fields, action, run, close, children, wide }: { title: string; fields: Field[]; action: string;
  run: (values: Record<string, string>) => Promise<void>; close: () => void; children?: ComponentChildren; wide?: boolean }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<{ text: string; hint: string } | null>(null);
  const submit = async (e: JSX.TargetedSubmitEvent<HTMLFormElement>) => {
    e.preventDefault();
    const values: Record<string, string> = {};
    new FormData(e.currentTarget).forEach((v, k) => { values[k] = String(v); });
    setBusy(true);
    setError(null);
    try { await run(values); close(); } catch (x) { setError(explain(x)); }
    setBusy(false);
  };
  return <Dialog title={title} close={close} wide={wide}><form onSubmit={submit}>
    {fields.map((f, i) => <label key={f.name} class={f.type === "checkbox" ? "check" : "field"}>
      <span>{f.label}</span>
      {f.options ? <select name={f.name} autoFocus={i === 0}>{f.options.map((o) => {
        const [v, text] = typeof o === "string" ? [o, o] : o;
        return <option key={v} value={v} selected={v === f.value}>{visible(text)}</option>;
      })}</select>
        : f.lines ? <textarea name={f.name} rows={f.lines} spellcheck={false} required={f.required}>{f.value ?? ""}</textarea>
        : f.type === "checkbox" ? <input type="checkbox" name={f.name} defaultChecked={f.value === "on"} />
        : <input name={f.name} type={f.type ?? "text"} defaultValue={f.value ?? ""} required={f.required} autoFocus={i === 0} autocomplete="off" spellcheck={false} />}
      {f.hint && <small class="muted">{f.hint}</small>}
    </label>)}
    {children}
    <Fault of={error} />
    <div class="actions"><button type="button" onClick={close}>Cancel</button>
      <button class="primary" disabled={busy} autoFocus={!fields.length}>{busy ? "…" : action}</button></div>
  </form></Dialog>;
}

export function Difference({ of }: { of: DiffLine[] }) {
  return <pre class="diff" tabIndex={0} aria-label="Difference">{of.map((l, i) =>
    <div key={i} class={l.sign === "+" ? "added" : l.sign === "-" ? "removed" : ""}>{l.sign} {visible(l.text)}</div>)}</pre>;
}

/** A drawn line of the last values, from 0 to the greatest. */
export function Spark({ of, top, label }: { of: number[]; top: number; label: string }) {
  const w = 72, h = 20, n = Math.max(of.length - 1, 1);
  const points = of.map((v, i) => `${((i / n) * w).toFixed(1)},${(h - 1 - (Math.min(v, top) / (top || 1)) * (h - 2)).toFixed(1)}`);
  return <svg class="spark" viewBox={`0 0 ${w} ${h}`} width={w} height={h} role="img" aria-label={label}>
    {of.length > 1 && <polygon points={`0,${h} ${points.join(" ")} ${w},${h}`} />}
    {of.length > 1 && <polyline points={points.join(" ")} />}
  </svg>;
}

export function Bar({ used, most }: { used: number; most?: number }) {
  const part = most ? Math.min(1, used / most) : 0;
  return <svg class={"bar" + (part > 0.9 ? " full" : "")} viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
    <rect class="all" width="100" height="6" rx="3" /><rect class="used" width={part * 100} height="6" rx="3" /></svg>;
}

export function Tabs({ now, of, pick }: { now: string; of: [string, string][]; pick: (id: string) => void }) {
  return <nav class="tabs" aria-label="Views">{of.map(([id, text]) =>
    <button key={id} aria-current={id === now ? "page" : undefined} onClick={() => pick(id)}>{text}</button>)}</nav>;
}

// The table of long lists. Only the rows that can be seen are in the document.

export interface Column<T> { id: string; title: string; width: string; cell: (row: T) => ComponentChildren; right?: boolean; sort?: (row: T) => string | number }

const rowHeight = 34;

export function Grid<T>({ rows, columns, id, open, label, chosen, choose, active, setActive, onSeen, sort, setSort }: {
  rows: T[]; columns: Column<T>[]; id: (row: T) => string; open?: (row: T) => void; label: string;
  chosen?: Set<string>; choose?: (ids: Set<string>) => void; active: number; setActive: (n: number) => void;
  onSeen?: (rows: T[]) => void; sort?: string; setSort?: (by: string) => void;
}) {
  const ref = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  useEffect(() => {
    const el = ref.current!;
    let frame = 0;
    const look = () => { frame ||= requestAnimationFrame(() => { frame = 0; setView({ top: el.scrollTop, height: el.clientHeight }); }); };
    const watch = new ResizeObserver(look);
    watch.observe(el);
    el.addEventListener("scroll", look, { passive: true });
    return () => { watch.disconnect(); el.removeEventListener("scroll", look); cancelAnimationFrame(frame); };
  }, []);
  const from = Math.max(0, Math.floor(view.top / rowHeight) - 6);
  const to = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + 6);
  const seen = rows.slice(from, to);
  const key = seen.map(id).join();
  useEffect(() => { onSeen?.(seen); }, [key]);
  useEffect(() => {
    const el = ref.current!, at = active * rowHeight;
    if (active < 0) return;
    if (at < el.scrollTop) el.scrollTop = at;
    else if (at + 2 * rowHeight > el.scrollTop + el.clientHeight) el.scrollTop = at + 2 * rowHeight - el.clientHeight;
  }, [active]);
  const template = (choose ? "34px " : "") + columns.map((c) => c.width).join(" ");
  const flip = (row: T, to?: boolean) => {
    const next = new Set(chosen), k = id(row);
    if (to ?? !next.has(k)) next.add(k); else next.delete(k);
    choose?.(next);
  };
  const keys = (e: KeyboardEvent) => {
    if ((e.target as Element).closest("input,textarea,select,button,a") && e.key !== "ArrowDown" && e.key !== "ArrowUp") return;
    const move = (n: number) => { e.preventDefault(); setActive(Math.max(0, Math.min(rows.length - 1, n))); };
    if (e.key === "ArrowDown" || e.key === "j") move(active + 1);
    else if (e.key === "ArrowUp" || e.key === "k") move(active - 1);
    else if (e.key === "Home") move(0);
    else if (e.key === "End") move(rows.length - 1);
    else if (e.key === "PageDown") move(active + 20);
    else if (e.key === "PageUp") move(active - 20);
    else if (e.key === "Enter" && rows[active]) open?.(rows[active]);
    else if ((e.key === "x" || e.key === " ") && rows[active] && choose) { e.preventDefault(); flip(rows[active]); }
  };
  const all = rows.length > 0 && chosen !== undefined && rows.every((r) => chosen.has(id(r)));
  return <div class="grid" role="grid" aria-label={label} aria-rowcount={rows.length + 1} ref={ref} tabIndex={0} onKeyDown={keys}>
    <div role="rowgroup" class="head"><div role="row" aria-rowindex={1} style={{ gridTemplateColumns: template }}>
      {choose && <span role="columnheader"><input type="checkbox" aria-label="Choose all" checked={all}
        onChange={() => choose(all ? new Set() : new Set(rows.map(id)))} /></span>}
      {columns.map((c) => <span key={c.id} role="columnheader" class={c.right ? "right" : ""}
        aria-sort={sort === c.id ? "ascending" : sort === "-" + c.id ? "descending" : undefined}>
        {c.sort && setSort ? <button class="sort" onClick={() => setSort(sort === c.id ? "-" + c.id : c.id)}>{c.title}
          <span aria-hidden="true">{sort === c.id ? " ↑" : sort === "-" + c.id ? " ↓" : ""}</span></button> : c.title}</span>)}
    </div></div>
    <div role="rowgroup" class="body" style={{ height: rows.length * rowHeight + "px" }}>
      {/* A row that scrolls out becomes one that scrolls in: nothing is made while scrolling. */}
      {seen.map((row, i) => <div key={(from + i) % 96} role="row" aria-rowindex={from + i + 2} aria-selected={chosen ? chosen.has(id(row)) : undefined}
        class={from + i === active ? "active" : ""} style={{ gridTemplateColumns: template, transform: `translateY(${(from + i) * rowHeight}px)` }}
        onClick={(e) => { setActive(from + i); if (!(e.target as Element).closest("input,button,a")) open?.(row); }}>
        {choose && <span role="gridcell"><input type="checkbox" aria-label={"Choose " + id(row)} checked={chosen?.has(id(row))} onChange={() => flip(row)} /></span>}
        {columns.map((c) => <span key={c.id} role="gridcell" class={c.right ? "right" : ""}>{c.cell(row)}</span>)}
      </div>)}
    </div>
  </div>;
}

/** A plain table of short lists. */
export function Table({ label, head, children }: { label: string; head: string[]; children: ComponentChildren }) {
  return <div class="tablebox"><table aria-label={label}><thead><tr>{head.map((h) => <th key={h} scope="col">{h || <span class="hidden">Actions</span>}</th>)}</tr></thead>
    <tbody>{children}</tbody></table></div>;
}
