// What can be done to sandboxes, from every screen.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { del, get, mayRun, patch, post, put as update } from "./api";
import { boxes, put, refresh } from "./store";
import { go } from "./router";
import { count, difference, quote, yaml } from "./text";
import { Difference, fail, Form, How, Plain, say } from "./ui";
import type { Network, Policy, Sandbox, Snapshot, Template } from "./types";

/** The dialog that is open. */
export const dialog = signal<ComponentChildren>(null);
export const close = () => { dialog.value = null; };

const name = (b: Sandbox) => b.name || b.id;
const each = async (ids: string[], fn: (id: string) => Promise<unknown>): Promise<string[]> => {
  const done: string[] = [], errors: unknown[] = [], rest = [...ids];
  // A few at once: the daemon has a queue of its own.
  await Promise.all(Array.from({ length: Math.min(8, rest.length) }, async () => {
    for (let id = rest.shift(); id; id = rest.shift()) {
      try { await fn(id); done.push(id); } catch (e) { errors.push(e); }
    }
  }));
  if (errors.length) fail(errors[0]);
  return done;
};
const several = (n: number, what: string) => `${count(n)} ${n === 1 ? "sandbox" : "sandboxes"} ${what}`;

export async function pause(ids: string[]): Promise<void> {
  const done = await each(ids.filter((id) => boxes.get(id)?.state === "running"),
    async (id) => put(await post<Sandbox>(`/carrel/v1/sandboxes/${id}/pause`)));
  if (done.length) say(several(done.length, "paused"), { undo: () => void resume(done) });
}

export async function resume(ids: string[]): Promise<void> {
  const done = await each(ids.filter((id) => boxes.get(id)?.state === "paused"),
    async (id) => put((await post<{ sandbox: Sandbox }>(`/carrel/v1/sandboxes/${id}/resume`)).sandbox));
  if (done.length) say(several(done.length, "resumed"));
}

type Labels = Record<string, string>;
const relabel = async (id: string, set: Labels, remove: string[]) => put(await patch<Sandbox>(`/carrel/v1/sandboxes/${id}/metadata`, { set, remove }));

/** readLabels reads NAME=VALUE, and NAME- for what goes. */
function readLabels(text: string): { set: Labels; remove: string[] } {
  const set: Labels = {}, remove: string[] = [];
  for (const word of text.split(/\s+/).filter(Boolean)) {
    const at = word.indexOf("=");
    if (at > 0) set[word.slice(0, at)] = word.slice(at + 1);
    else if (at < 0 && word.length > 1 && word.endsWith("-")) remove.push(word.slice(0, -1));
    else throw new Error(`"${word}" is neither NAME=VALUE nor NAME-`);
  }
  return { set, remove };
}

/** askLabel changes labels of some sandboxes. Undo gives each of them back what it had. */
export function askLabel(ids: string[]): void {
  const before = new Map(ids.map((id) => [id, boxes.get(id)?.metadata ?? {}]));
  const own = ids.length === 1 ? Object.entries(before.get(ids[0])!).map(([k, v]) => `${k}=${v}`).join(" ") : "";
  dialog.value = <Form title={ids.length === 1 ? "Labels of " + name(boxes.get(ids[0])!) : `Label ${several(ids.length, "")}`} action="Label" close={close}
    fields={[{ name: "labels", label: "Labels", required: true, hint: "NAME=VALUE sets one, NAME- takes one away; the others stay" }]}
    run={async (v) => {
      const { set, remove } = readLabels(v.labels);
      const done = await each(ids, (id) => relabel(id, set, remove));
      const undo = () => void each(done, (id) => {
        const had = before.get(id)!, touched = [...Object.keys(set), ...remove];
        return relabel(id, Object.fromEntries(touched.filter((k) => k in had).map((k) => [k, had[k]])), touched.filter((k) => !(k in had)));
      });
      if (done.length) say(several(done.length, "labelled"), { undo });
    }}>
    {own && <p class="muted">It has <Plain>{own}</Plain></p>}
    <How cli={`carrel label ${ids.length === 1 ? ids[0] : "ID"} NAME=VALUE NAME-`} api={`PATCH /carrel/v1/sandboxes/${ids.length === 1 ? ids[0] : "ID"}/metadata`} />
  </Form>;
}

/** kill waits a little, because nothing brings a sandbox back. */
export function kill(ids: string[]): void {
  if (!ids.length) return;
  const timer = setTimeout(async () => {
    dismiss();
    const done = await each(ids, (id) => del("/carrel/v1/sandboxes/" + id));
    if (done.length) say(several(done.length, "killed"));
  }, 5000);
  const dismiss = say(`Killing ${several(ids.length, "")}in 5 seconds`, { undo: () => clearTimeout(timer) });
}

export async function snapshot(id: string, label: string): Promise<void> {
  await post(`/carrel/v1/sandboxes/${id}/snapshots`, { label });
  say("Snapshot taken");
}

export function askSnapshot(b: Sandbox, then?: () => void): void {
  dialog.value = <Form title={"Take a snapshot of " + name(b)} action="Take snapshot" close={close}
    fields={[{ name: "label", label: "Label", hint: "for people; may be left out" }]}
    run={async (v) => { await snapshot(b.id, v.label); then?.(); }} />;
}

/** askFork makes sandboxes that begin where this one is, or was. */
export function askFork(b: Sandbox, at?: Snapshot, then?: () => void): void {
  dialog.value = <Form title={"Fork " + name(b)} action="Fork" close={close}
    fields={[{ name: "count", label: "How many", type: "number", value: "1", required: true },
      { name: "timeout", label: "Timeout", value: "", hint: "such as 10m or 2h; left out, it is the daemon's" }]}
    run={async (v) => {
      const body: Record<string, unknown> = { count: Number(v.count) };
      if (at) body.at = at.id;
      if (v.timeout) body.timeout = v.timeout;
      const r = await post<{ forks: { sandbox?: Sandbox; error?: { message: string } }[] }>(`/carrel/v1/sandboxes/${b.id}/fork`, body);
      const made = r.forks.filter((f) => f.sandbox).map((f) => f.sandbox!);
      made.forEach(put);
      const bad = r.forks.find((f) => f.error);
      if (bad) throw new Error(bad.error!.message);
      say(several(made.length, "forked"));
      then?.();
      if (made.length === 1 && !then) go("/sandboxes/" + made[0].id);
    }}>
    <p class="muted">Each fork begins {at ? `at the snapshot ${at.label || at.id}` : "at this moment"}, with the same files{at && !at.memory ? "" : " and, where the tier can, the same memory and processes"}.</p>
    <How cli={at ? `carrel create --from ${at.id}` : `carrel fork ${b.id} --count 1`} api={`POST /carrel/v1/sandboxes/${b.id}/fork {"count": 1${at ? `, "at": "${at.id}"` : ""}}`} />
  </Form>;
}

/** askRollback goes back to a snapshot. The present moment is kept, so that this can be undone. */
export function askRollback(b: Sandbox, to: Snapshot, then?: () => void): void {
  dialog.value = <Form title={"Roll back " + name(b)} action="Roll back" close={close}
    fields={[{ name: "keep", label: "First take a snapshot of the present, so that this can be undone", type: "checkbox", value: "on" }]}
    run={async (v) => {
      put(await post<Sandbox>(`/carrel/v1/sandboxes/${b.id}/rollback`, { to: to.id, keep: v.keep === "on" }));
      say("Rolled back to " + (to.label || to.id));
      then?.();
    }}>
    <p class="muted">Files{to.memory ? ", memory and processes" : ""} become those of {to.label || to.id}. What runs now ends.</p>
    <How cli={`carrel rollback ${b.id} ${to.id} --keep`} api={`POST /carrel/v1/sandboxes/${b.id}/rollback {"to": "${to.id}"}`} />
  </Form>;
}

export function askPromote(b: Sandbox, then?: () => void): void {
  dialog.value = <Form title={"Promote " + name(b)} action="Promote" close={close}
    fields={[{ name: "tier", label: "Tier", options: [["", "the daemon's choice"], "ns", "gvisor", "microvm"].filter((t) => t !== b.tier) as (string | [string, string])[] },
      { name: "template", label: "Template under its files", hint: "left out, it is the tier's default" }]}
    run={async (v) => {
      put(await post<Sandbox>(`/carrel/v1/sandboxes/${b.id}/promote`, { tier: v.tier || undefined, template: v.template || undefined }));
      say("Promoted");
      then?.();
    }}>
    <p class="muted">The sandbox goes on in another tier, with its files and its ID. Processes end.</p>
  </Form>;
}

export async function askCreate(from?: { id: string; label: string }): Promise<void> {
  const templates = from ? [] : await get<Template[]>("/carrel/v1/templates").catch(() => []);
  dialog.value = <Form title={from ? "New sandbox from " + from.label : "New sandbox"} action="Create" close={close}
    fields={[
      { name: "name", label: "Name", hint: "lower-case letters, digits and hyphens; may be left out" },
      ...(from ? [] : [{ name: "template", label: "Template", options: [["", "the daemon's default"], ...templates.map((t) => [t.id, t.name + (t.tag ? ":" + t.tag : "")])] as [string, string][] }]),
      { name: "tier", label: "Tier", options: [["", "the template's, or the daemon's"], "sim", "ns", "gvisor", "microvm"] },
      { name: "timeout", label: "Timeout", hint: "such as 1h; left out, it lives until it is killed, and sleeps when it is idle" },
      { name: "metadata", label: "Labels", hint: "NAME=VALUE, separated by spaces" },
      { name: "internet", label: "May reach the internet (never this host or private networks)", type: "checkbox" },
    ]}
    run={async (v) => {
      const metadata = Object.fromEntries(v.metadata.split(/\s+/).filter(Boolean).map((p) => { const [k, ...r] = p.split("="); return [k, r.join("=")]; }));
      const b = await post<Sandbox>("/carrel/v1/sandboxes", {
        name: v.name || undefined, template: from?.id ?? (v.template || undefined), tier: v.tier || undefined, metadata,
        ...(v.timeout ? { timeout: v.timeout } : { noTimeout: true, lifecycle: { onTimeout: "pause", idle: { after: 1800e9 } } }),
        network: v.internet === "on" ? { internet: true } : undefined,
      });
      put(b);
      say("Created " + name(b));
      go("/sandboxes/" + b.id);
    }}>
    <How cli={"carrel create" + (from ? " --from " + from.id : "") + " --name NAME -m NAME=VALUE"} api="POST /carrel/v1/sandboxes" />
  </Form>;
}

// Rules: each change of a policy is shown as a difference first.

/** policyOf is the policy of a network, in Carrel's form. null: it has E2B's form with lists. */
export function policyOf(n: Network): Policy | null {
  if (n.policy) return n.policy;
  if (n.allowOut?.length || n.denyOut?.length) return null;
  return n.internet ? { default: "allow" } : {};
}

const withoutPolicy = (n: Network): Network => ({ ...n, policy: undefined, internet: false });

/** askRule adds a rule to a sandbox's policy. */
export function askRule(b: Sandbox, rules: Policy["rules"], why?: ComponentChildren, then?: () => void): void {
  const before = policyOf(b.network);
  const next: Network = before === null
    ? { ...b.network, allowOut: [...(b.network.allowOut ?? []), ...rules!.flatMap((r) => r.allow ?? [])] }
    : { ...withoutPolicy(b.network), policy: { ...before, rules: [...rules!, ...(before.rules ?? [])] } };
  const shown = (n: Network) => yaml(n.policy ?? (before === null ? { allowOut: n.allowOut, denyOut: n.denyOut } : before ?? {}));
  askNetwork(b, next, shown(before === null ? b.network : { ...b.network, policy: before }), shown(next), "Add rule", why, then);
}

/** askRuleForMany adds a rule to the policies of all sandboxes of a template or a project that are there now. */
export function askRuleForMany(of: Sandbox[], what: string, rules: Policy["rules"], why?: ComponentChildren): void {
  const changes = of.flatMap((b) => {
    const before = policyOf(b.network);
    const has = before?.rules?.some((r) => JSON.stringify(r) === JSON.stringify(rules![0]));
    return before === null || has ? [] : [{ b, before, after: { ...before, rules: [...rules!, ...(before.rules ?? [])] } as Policy }];
  });
  // Equal changes are shown once, with how many there are.
  const kinds = new Map<string, { before: string; after: string; boxes: Sandbox[] }>();
  for (const c of changes) {
    const before = yaml(c.before), kind = kinds.get(before) ?? { before, after: yaml(c.after), boxes: [] };
    kind.boxes.push(c.b);
    kinds.set(before, kind);
  }
  const write = (b: Sandbox, n: Network) => update<Sandbox>(`/carrel/v1/sandboxes/${b.id}/network`, n).then(put);
  dialog.value = <Form title={`Change what may leave ${several(changes.length, "")}of ${what}`} action="Add rule to all" close={close} fields={[]} wide
    run={async () => {
      const byID = new Map(changes.map((c) => [c.b.id, c]));
      const done = await each([...byID.keys()], (id) => write(byID.get(id)!.b, { ...withoutPolicy(byID.get(id)!.b.network), policy: byID.get(id)!.after }));
      if (done.length) say(`The policy of ${several(done.length, "")}is changed`, { undo: () => void each(done, (id) => write(byID.get(id)!.b, byID.get(id)!.b.network)) });
    }}>
    {why}
    {changes.length < of.length && <p class="muted">{several(of.length - changes.length, "")}have the rule, or lists of another form, and stay as they are.</p>}
    {[...kinds.values()].slice(0, 20).map((k) => <section key={k.before} aria-label="One kind of policy"><p><strong>{several(k.boxes.length, "")}</strong><span class="muted"><Plain>{k.boxes.slice(0, 5).map(name).join(", ")}</Plain>{k.boxes.length > 5 ? "…" : ""}</span></p><Difference of={difference(k.before, k.after)} /></section>)}
    {kinds.size > 20 && <p class="muted">And {count(kinds.size - 20)} other kinds of policies.</p>}
    <p class="muted">It counts from the next connection on, for the sandboxes that are there now. Later ones get what their creator asks for.</p>
    <How cli="carrel network ID --policy policy.yaml" api="PUT /carrel/v1/sandboxes/ID/network" />
  </Form>;
}

/** askPolicy replaces a sandbox's policy. */
export function askPolicy(b: Sandbox, policy: Policy, why?: ComponentChildren, then?: () => void): void {
  askNetwork(b, { ...withoutPolicy(b.network), allowOut: undefined, denyOut: undefined, policy }, yaml(policyOf(b.network) ?? {}), yaml(policy), "Use this policy", why, then);
}

function askNetwork(b: Sandbox, next: Network, before: string, after: string, action: string, why?: ComponentChildren, then?: () => void): void {
  dialog.value = <Form title={"Change what may leave " + name(b)} action={action} close={close} fields={[]} wide
    run={async () => {
      const old = b.network;
      put(await update<Sandbox>(`/carrel/v1/sandboxes/${b.id}/network`, next));
      say("The policy is changed", { undo: () => void update<Sandbox>(`/carrel/v1/sandboxes/${b.id}/network`, old).then(put, fail) });
      then?.();
    }}>
    {why}
    <Difference of={difference(before, after)} />
    <p class="muted">It counts from the next connection on, for this sandbox alone.</p>
    <How cli={`carrel network ${b.id} --policy policy.yaml`} api={`PUT /carrel/v1/sandboxes/${b.id}/network`} />
  </Form>;
}

export function askTimeout(b: Sandbox): void {
  dialog.value = <Form title={"Timeout of " + name(b)} action="Set timeout" close={close}
    fields={[{ name: "timeout", label: "From now on", value: "1h", required: true, hint: "such as 10m or 2h" }]}
    run={async (v) => {
      await post(`/carrel/v1/sandboxes/${b.id}/timeout`, { timeout: v.timeout });
      await refresh(b.id);
    }} />;
}

export const cliOf = (b: Sandbox, verb: string) => `carrel ${verb} ${quote(b.id)}`;
export const canUse = (b: Sandbox) => mayRun() && (Boolean(b.accessToken) || b.state !== "running");
