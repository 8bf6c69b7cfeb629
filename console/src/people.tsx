// Budgets, ceilings, people, organisations, and the machines of a fleet.
import { confirm, Head, once } from "./admin";
import { close, dialog } from "./actions";
import { del, get, isAdmin, mayManage, patch, post, put, self } from "./api";
import { bytes, count, moment, quote } from "./text";
import { Bar, Empty, Fault, Form, How, Plain, say, State, Table, useLoad, useNow } from "./ui";

interface Budget { project: string; name: string; label?: string; amount: number; unit: string; period: string; warnPct?: number; spent: number; currency?: string;
  warned?: boolean; over?: boolean; ends?: string }
interface Limits { cpus?: number; memoryMB?: number; diskMB?: number }
interface Ceiling { project: string; key?: string; keyName?: string; egress?: string[]; tiers?: string[]; templates?: string[]; limits?: Limits; timeout?: number; secrets?: string[] }

const words = (s: string) => s.split(/[\s,]+/).filter(Boolean);
const set = (t?: string) => Boolean(t && !t.startsWith("0001-"));

export function Budgets() {
  const budgets = useLoad((s) => get<Budget[]>("/carrel/v1/budgets", s), []);
  const ceilings = useLoad((s) => get<Ceiling[]>("/carrel/v1/ceilings", s), []);
  const budget = (b?: Budget) => {
    dialog.value = <Form title={b ? "Budget " + b.name : "New budget"} action="Set budget" close={close} fields={[
      ...(b ? [] : [{ name: "name", label: "Name", required: true }, { name: "project", label: "Project", required: true, value: self.value?.project || "default" }]),
      { name: "amount", label: "Amount", type: "number", required: true, value: b ? String(b.amount) : "" },
      { name: "unit", label: "Of", options: [["money", "money, by the daemon's prices"], ["seconds", "seconds that sandboxes run"]], value: b?.unit ?? "seconds" },
      { name: "period", label: "Each", options: [["day", "day"], ["month", "month"], ["total", "never anew"]], value: b?.period ?? "month" },
      { name: "label", label: "Only for sandboxes with this label", value: b?.label ?? "", hint: "NAME=VALUE; left out, for the whole project" },
      { name: "warnPct", label: "Warns at so many per cent", type: "number", value: String(b?.warnPct || 80) }]}
      run={async (v) => {
        await put("/carrel/v1/budgets/" + encodeURIComponent(b?.name ?? v.name), { project: b?.project ?? v.project, label: v.label || undefined, amount: Number(v.amount), unit: v.unit, period: v.period, warnPct: Number(v.warnPct) });
        say("The budget holds"); budgets.again();
      }}><How cli="carrel budget set" api={`PUT /carrel/v1/budgets/${b?.name ?? "NAME"}`} /></Form>;
  };
  const ceiling = (c?: Ceiling) => {
    const list = (name: string, label: string, of: string[] | undefined, hint: string) => ({ name, label, value: of?.join(" ") ?? "", hint });
    dialog.value = <Form title={"Ceiling of " + (c?.keyName || c?.project || "a project")} action="Set ceiling" close={close} fields={[
      ...(c ? [] : [{ name: "project", label: "Project", required: true, value: self.value?.project || "default" }, { name: "key", label: "Key", hint: "a key's name; left out, the whole project" }]),
      list("egress", "Destinations that a policy may open", c?.egress, "as in a rule's allow; left out, any"), list("tiers", "Tiers", c?.tiers, "left out, any"),
      list("templates", "Templates", c?.templates, "left out, any"), list("secrets", "Secrets", c?.secrets, "left out, any"),
      { name: "cpus", label: "CPUs of one sandbox", type: "number", value: c?.limits?.cpus ? String(c.limits.cpus) : "" }, { name: "memoryMB", label: "Memory of one sandbox, MiB", type: "number", value: c?.limits?.memoryMB ? String(c.limits.memoryMB) : "" }]}
      run={async (v) => {
        const some = (s: string) => (s.trim() ? words(s) : undefined);
        await put("/carrel/v1/ceiling", { project: c?.project ?? v.project, key: c?.key ?? (v.key || undefined), egress: some(v.egress), tiers: some(v.tiers), templates: some(v.templates), secrets: some(v.secrets),
          limits: v.cpus || v.memoryMB ? { ...c?.limits, cpus: Number(v.cpus) || undefined, memoryMB: Number(v.memoryMB) || undefined } : undefined, timeout: c?.timeout || undefined });
        say("The ceiling holds"); ceilings.again();
      }}><p class="muted">It binds new sandboxes and changes from now on. Without any bound it is removed.</p><How cli="carrel ceiling set" api="PUT /carrel/v1/ceiling" /></Form>;
  };
  return <div class="screen"><Head title="Budgets and ceilings" />
    <h2>Budgets {isAdmin() && <button class="small" onClick={() => budget()}>New budget</button>}</h2><Fault of={budgets.error} />
    {budgets.value && !budgets.value.length && <p class="muted">No budgets. A budget warns first, and then pauses what it counts.</p>}
    {budgets.value && budgets.value.length > 0 && <Table label="Budgets" head={["Name", "Project", "For", "Spent", "Of", "State", "Anew", ""]}>{budgets.value.map((b) => <tr key={b.project + "/" + b.name}><td><strong><Plain>{b.name}</Plain></strong></td><td><Plain>{b.project}</Plain></td><td><Plain>{b.label || "the project"}</Plain></td>
      <td><Bar used={b.spent} most={b.amount} /><span class="num">{b.spent}</span></td><td class="num">{b.amount} {b.unit === "money" ? b.currency ?? "" : "s"} {b.period === "total" ? "in all" : "a " + b.period}</td><td><State of={b.over ? "spent" : b.warned ? "warned" : "ready"} /></td><td class="num">{set(b.ends) ? moment(b.ends) : "–"}</td>
      <td class="right">{isAdmin() && <><button class="quiet small" onClick={() => budget(b)}>Change</button><button class="quiet small" onClick={() => confirm("Delete " + b.name, "Nothing is held back for it any more.", "Delete", () => del(`/carrel/v1/budgets/${encodeURIComponent(b.name)}?` + new URLSearchParams({ project: b.project })), budgets.again)}>Delete</button></>}</td></tr>)}</Table>}
    <h2>Ceilings {mayManage() && <button class="small" onClick={() => ceiling()}>New ceiling</button>}</h2><Fault of={ceilings.error} />
    {ceilings.value && !ceilings.value.length && <p class="muted">No ceilings. A ceiling says what sandboxes of a project or a key may ever be allowed.</p>}
    {ceilings.value && ceilings.value.length > 0 && <Table label="Ceilings" head={["Of", "Destinations", "Tiers", "Templates", "Secrets", "Size", ""]}>{ceilings.value.map((c) => <tr key={c.project + "/" + c.key}><td><strong><Plain>{c.keyName ? `${c.keyName} in ${c.project}` : c.project}</Plain></strong></td>
      {[c.egress, c.tiers, c.templates, c.secrets].map((l, i) => <td key={i} class="mono"><Plain>{l ? l.join(", ") || "none" : "any"}</Plain></td>)}<td class="num">{[c.limits?.cpus && c.limits.cpus + " CPUs", c.limits?.memoryMB && c.limits.memoryMB + " MiB"].filter(Boolean).join(", ") || "any"}</td>
      <td class="right">{mayManage() && <button class="quiet small" onClick={() => ceiling(c)}>Change</button>}</td></tr>)}</Table>}
    <How cli="carrel budget list" api="GET /carrel/v1/budgets" /></div>;
}

interface Person { id: string; name: string; email?: string; password?: boolean; provider?: boolean; created: string; lastSeen?: string; disabled?: string }
interface Organisation { name: string; projects: string[] | null; created?: string }

export function People() {
  const people = useLoad((s) => get<Person[]>("/carrel/v1/people", s), []);
  const orgs = useLoad((s) => get<Organisation[]>("/carrel/v1/organisations", s), []);
  const add = () => {
    dialog.value = <Form title="New person" action="Add person" close={close} fields={[{ name: "name", label: "Name", required: true, hint: "an email address, or a word to sign in with" }, { name: "provider", label: "Signs in at the identity provider", type: "checkbox" }]}
      run={async (v) => {
        const p = await post<Person & { newPassword?: string }>("/carrel/v1/people", { name: v.name, provider: v.provider === "on" });
        people.again();
        if (p.newPassword) setTimeout(() => once("The first password of " + p.name, p.newPassword!));
      }}><How cli="carrel person add NAME" api="POST /carrel/v1/people" /></Form>;
  };
  const org = (o?: Organisation) => {
    dialog.value = <Form title={o ? "Projects of " + o.name : "New organisation"} action={o ? "Set projects" : "Make organisation"} close={close}
      fields={[...(o ? [] : [{ name: "name", label: "Name", required: true }]), { name: "projects", label: "Projects", value: o?.projects?.join(" ") ?? "", hint: "separated by spaces" }]}
      run={async (v) => {
        if (!o) await post("/carrel/v1/organisations", { name: v.name });
        if (o || v.projects) await put("/carrel/v1/organisations/" + encodeURIComponent(o?.name ?? v.name), { projects: words(v.projects) });
        orgs.again();
      }}><How cli="carrel org add NAME" api="PUT /carrel/v1/organisations/NAME" /></Form>;
  };
  const member = (o: Organisation) => {
    dialog.value = <Form title={"Let a person act in " + o.name} action="Give the right" close={close} fields={[{ name: "person", label: "Person", required: true }, { name: "role", label: "Role", options: ["read", "run", "admin"], value: "run" }]}
      run={async (v) => { await put("/carrel/v1/members/" + encodeURIComponent(v.person), { organisation: o.name, role: v.role }); say(`${v.person} may act in ${o.name}`); }} />;
  };
  return <div class="screen"><Head title="People">{<button class="primary" onClick={add}>New person</button>}</Head><Fault of={people.error} />
    {people.value && !people.value.length && <Empty title="Nobody yet">Make a person here, or with <code>carrel person add</code>. Keys need no person.</Empty>}
    {people.value && people.value.length > 0 && <Table label="People" head={["Name", "Signs in", "Made", "Last seen", "State", ""]}>{people.value.map((p) => <tr key={p.id}><td><strong><Plain>{p.name}</Plain></strong></td><td>{p.provider ? "at the provider" : "with a password"}</td><td class="num">{moment(p.created)}</td><td class="num">{moment(p.lastSeen)}</td><td><State of={set(p.disabled) ? "disabled" : "ready"} /></td>
      <td class="right"><button class="quiet small" onClick={() => void patch("/carrel/v1/people/" + p.id, { disabled: !set(p.disabled) }).then(people.again)}>{set(p.disabled) ? "Enable" : "Disable"}</button>
        {p.password && <button class="quiet small" onClick={() => confirm("Another password for " + p.name, "The sessions of this person end.", "Make a password", async () => { const r = await put<{ newPassword?: string }>(`/carrel/v1/people/${p.id}/password`, {}); if (r.newPassword) setTimeout(() => once("The password of " + p.name, r.newPassword!)); }, people.again)}>Password</button>}
        <button class="quiet small" onClick={() => confirm("Delete " + p.name, "All sessions and rights end.", "Delete", () => del("/carrel/v1/people/" + p.id), people.again)}>Delete</button></td></tr>)}</Table>}
    <h2>Organisations <button class="small" onClick={() => org()}>New organisation</button></h2><Fault of={orgs.error} />
    {orgs.value && !orgs.value.length && <p class="muted">None. An organisation is a set of projects with members in common.</p>}
    {orgs.value && orgs.value.length > 0 && <Table label="Organisations" head={["Name", "Projects", "Made", ""]}>{orgs.value.map((o) => <tr key={o.name}><td><strong><Plain>{o.name}</Plain></strong></td><td><Plain>{o.projects?.join(", ") || "–"}</Plain></td><td class="num">{moment(o.created)}</td>
      <td class="right"><button class="quiet small" onClick={() => member(o)}>Add member</button><button class="quiet small" onClick={() => org(o)}>Projects</button><button class="quiet small" onClick={() => confirm("Delete " + o.name, "Its projects stay. The rights that it gave end.", "Delete", () => del("/carrel/v1/organisations/" + encodeURIComponent(o.name)), orgs.again)}>Delete</button></td></tr>)}</Table>}
    <How cli="carrel person ls" api="GET /carrel/v1/people" /></div>;
}

export interface Node { name: string; state: string; why?: string; url: string; version?: string; running: number; paused: number; lost?: number; memory?: number; memoryTotal?: number; leaseMs: number }
interface Drained { moved: string[] | null; failed?: { id: string; error: string; hint?: string }[] }

export function Nodes() {
  const now = useNow(3000);
  const l = useLoad((s) => get<{ nodes: Node[] }>("/carrel/v1/nodes", s), [now]);
  const path = (n: Node) => "/carrel/v1/nodes/" + encodeURIComponent(n.name);
  const drain = (n: Node) => {
    dialog.value = <Form title={"Drain " + n.name} action="Drain" close={close} fields={[]} run={async () => {
      const d = await post<Drained>(path(n) + "/drain");
      const first = d.failed?.[0];
      say(`${count(d.moved?.length ?? 0)} moved away from ${n.name}` + (first ? `, ${count(d.failed!.length)} stay: ${first.error}` : ""), { bad: Boolean(first), hint: first?.hint });
      l.again();
    }}><p>It gets no new sandboxes. Its {count(n.running + n.paused)} sandboxes are paused there and go on elsewhere.</p><How cli={"carrel node drain " + quote(n.name)} api={`POST ${path(n)}/drain`} /></Form>;
  };
  return <div class="screen"><Head title="Nodes" /><Fault of={l.error} />
    {l.value && !l.value.nodes.length && <Empty title="No nodes">A daemon joins with <code>carrel serve --join</code>.</Empty>}
    {l.value && l.value.nodes.length > 0 && <Table label="Nodes" head={["Name", "State", "Address", "Version", "Running", "Paused", "Lost", "Memory free", ""]}>{l.value.nodes.map((n) => <tr key={n.name}><td><strong><Plain>{n.name}</Plain></strong></td><td><State of={n.state} /> <span class="muted"><Plain>{n.why}</Plain></span></td><td class="mono"><Plain>{n.url}</Plain></td><td><Plain>{n.version}</Plain></td>
      <td class="num">{n.running}</td><td class="num">{n.paused}</td><td class="num">{n.lost ?? 0}</td><td class="num">{n.memoryTotal ? bytes(n.memory ?? 0) : ""}</td>
      <td class="right">{n.state === "draining" ? <button class="quiet small" onClick={() => void del(path(n) + "/drain").then(l.again)}>Undrain</button> : <button class="quiet small" onClick={() => drain(n)}>Drain…</button>}
        {["away", "lost"].includes(n.state) && <button class="quiet small" onClick={() => confirm("Forget " + n.name, "Its daemon must have stopped for good.", "Forget", () => del(path(n)), l.again)}>Forget</button>}</td></tr>)}</Table>}
    <How cli="carrel node ls" api="GET /carrel/v1/nodes" /></div>;
}
