// What is known of all sandboxes, kept up to date by the stream of events.
import { signal } from "@preact/signals";
import { explain, follow, get, session } from "./api";
import type { Happening, Metric, Question, Sandbox } from "./types";

/** The sandboxes. They change in place; revision is another number then. */
export const boxes = new Map<string, Sandbox>();
export const revision = signal(0);
export const live = signal(false);
export const loaded = signal(false);
export const missing = signal<string[]>([]);
export const loadError = signal<{ text: string; hint: string } | null>(null);
/** The latest events, the newest first. */
/** Whether this is a fleet's front, which has nodes. */
export const atFront = signal(false);
export const happenings = signal<Happening[]>([]);
export const inbox = signal<Question[]>([]);
/** The latest samples of each sandbox that somebody looks at. */
export const samples = new Map<string, Metric[]>();
export const sampled = signal(0);
export const costs = signal<Map<string, number>>(new Map());
export const currency = signal("");

let stop: AbortController | null = null;
let last = 0;
let wanted = new Set<string>();
let timer = 0;
let drawn = 0;

/** changed tells the page, at most once a frame, and of many sandboxes less often: each time, the list
 * is filtered and sorted anew. */
function changed(): void {
  const tell = () => { drawn = 0; revision.value++; };
  drawn ||= boxes.size > 1000 ? window.setTimeout(tell, 300) : requestAnimationFrame(tell);
}

/** start follows the fleet until stopAll. */
export function start(): void {
  stopAll();
  wake();
  void loadCosts();
}

function wake(): void {
  clearTimeout(asleep);
  if (stop && !stop.signal.aborted) return;
  const own = stop = new AbortController();
  void follow(() => "/carrel/v1/events?after=" + last, (line) => line.event && take(line.event), own.signal,
    (yes) => { live.value = yes; if (yes) { void loadAll(own.signal); void loadInbox(own.signal); } }).catch(() => { live.value = false; });
  const again = setInterval(() => { if (inbox.value.length) void loadInbox(own.signal); }, 5000); // questions end by themselves, too
  own.signal.addEventListener("abort", () => clearInterval(again));
}

// A browser has six connections to a daemon without TLS, for all tabs together. So a tab that nobody
// sees gives its stream up after a while.
let asleep = 0;
document.addEventListener("visibilitychange", () => {
  if (!stop) return;
  if (document.hidden) asleep = window.setTimeout(() => stop?.abort(), 20_000);
  else wake();
});

/** stopAll forgets everything, as when somebody signs out. */
export function stopAll(): void {
  stop?.abort();
  stop = null;
  boxes.clear();
  samples.clear();
  happenings.value = [];
  inbox.value = [];
  loaded.value = false;
  last = 0;
  changed();
}

async function loadAll(signal: AbortSignal): Promise<void> {
  const seen = new Set<string>();
  try {
    for (let cursor = ""; ;) {
      const page: { sandboxes: Sandbox[]; next?: string; missing?: string[] } =
        await get("/carrel/v1/sandboxes?limit=100" + (cursor && "&cursor=" + encodeURIComponent(cursor)), signal);
      for (const b of page.sandboxes) { boxes.set(b.id, b); seen.add(b.id); }
      missing.value = page.missing ?? [];
      changed();
      if (!page.next) break;
      cursor = page.next;
    }
    for (const id of boxes.keys()) if (!seen.has(id) && !wanted.has(id)) boxes.delete(id);
    loadError.value = null;
  } catch (e) {
    if (signal.aborted) return;
    loadError.value = explain(e);
  }
  loaded.value = true;
  changed();
}

function take(e: Happening): void {
  if (e.seq <= last) return;
  last = e.seq;
  happenings.value = [e, ...happenings.value.slice(0, 199)];
  if (e.type.startsWith("connection.") && stop) void loadInbox(stop.signal);
  if (!e.id) return;
  if (e.type === "sandbox.ended" || e.type === "sandbox.released") {
    boxes.delete(e.id);
    wanted.delete(e.id);
    changed();
    return;
  }
  wanted.add(e.id);
  timer ||= window.setTimeout(fetchWanted, 60);
}

/** fetchWanted asks for the sandboxes that something happened to. Many are asked for as a list. */
async function fetchWanted(): Promise<void> {
  timer = 0;
  const ids = [...wanted];
  wanted = new Set();
  if (ids.length > 40 && stop) return loadAll(stop.signal);
  await Promise.all(ids.map((id) => refresh(id)));
}

/** refresh asks for one sandbox. */
export async function refresh(id: string): Promise<Sandbox | undefined> {
  try {
    const b = await get<Sandbox>("/carrel/v1/sandboxes/" + id);
    boxes.set(id, b);
    changed();
    return b;
  } catch (e) {
    if ((e as { status?: number }).status === 404) { boxes.delete(id); changed(); }
    return undefined;
  }
}

/** take a sandbox that an answer brought. */
export function put(b: Sandbox): void { boxes.set(b.id, b); changed(); }

/** loadInbox asks what waits for a person. Events say when to ask. */
async function loadInbox(signal: AbortSignal): Promise<void> {
  try {
    inbox.value = (await get<{ questions: Question[] }>("/carrel/v1/inbox", signal)).questions ?? [];
  } catch { /* a service without an inbox, or the next event */ }
}

async function loadCosts(): Promise<void> {
  try {
    const r = await get<{ currency?: string; rows: { group: string[]; cost?: number }[] }>("/carrel/v1/usage?by=sandbox");
    currency.value = r.currency ?? "";
    costs.value = new Map(r.rows.filter((row) => row.cost !== undefined).map((row) => [row.group[0], row.cost!]));
  } catch { /* too many groups, or no ledger: the column stays empty */ }
}

/** sample asks what these sandboxes use now. */
export async function sample(ids: string[]): Promise<void> {
  if (!ids.length || !session.value || document.hidden) return;
  try {
    const r = await get<{ sandboxes: Record<string, Metric & { timestamp: string }> }>(
      "/sandboxes/metrics?sandbox_ids=" + ids.slice(0, 100).join(","));
    for (const [id, m] of Object.entries(r.sandboxes)) {
      const list = samples.get(id) ?? [];
      const one = { ...m, time: m.timestamp };
      if (list.at(-1)?.time !== one.time) samples.set(id, [...list.slice(-39), one]);
    }
    sampled.value++;
  } catch { /* the next time */ }
}
