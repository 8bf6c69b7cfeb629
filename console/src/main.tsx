import "./policy";
import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { signal } from "@preact/signals";
import { askCreate, dialog } from "./actions";
import { choose, explain, isAdmin, leave, mayRun, offer, project, resume, self, session, signedOut, signIn } from "./api";
import { Access, Audit, BuildScreen, Pools, Secrets, Templates, Usage, Webhooks } from "./admin";
import { Fleet } from "./fleet";
import { InboxScreen, NetworkScreen } from "./net";
import { Budgets, Nodes, People } from "./people";
import { clicked, go, place } from "./router";
import { SandboxScreen } from "./sandbox";
import { atFront, boxes, inbox, start, stopAll } from "./store";
import { Empty, fail, Fault, Notices, Plain } from "./ui";

const screens: { path: string; title: string; key: string; show?: () => boolean }[] = [
  { path: "/", title: "Sandboxes", key: "s" }, { path: "/inbox", title: "Inbox", key: "i" }, { path: "/network", title: "Network", key: "w" },
  { path: "/templates", title: "Templates", key: "t" }, { path: "/pools", title: "Pools", key: "o", show: isAdmin }, { path: "/secrets", title: "Secrets", key: "e" },
  { path: "/access", title: "Access", key: "a" }, { path: "/budgets", title: "Budgets", key: "b" }, { path: "/people", title: "People", key: "p", show: isAdmin }, { path: "/nodes", title: "Nodes", key: "n", show: () => isAdmin() && atFront.value }, { path: "/usage", title: "Usage", key: "u" }, { path: "/audit", title: "Audit", key: "l" }, { path: "/webhooks", title: "Webhooks", key: "h" },
];

// Light or dark: as the system has it, or as the person chose.
const theme = signal(localStorage.getItem("carrel.theme") ?? "");
function applyTheme(): void {
  if (theme.value) document.documentElement.dataset.theme = theme.value;
  else delete document.documentElement.dataset.theme;
}
applyTheme();
function turnTheme(): void {
  const dark = theme.value ? theme.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme.value = dark ? "light" : "dark";
  localStorage.setItem("carrel.theme", theme.value);
  applyTheme();
}

const palette = signal(false);
const menu = signal(false);

function out(): void {
  stopAll();
  void import("./terminal").then((t) => t.closeAll());
  if (session.value?.form) { // a session ends at the daemon
    const form = document.createElement("form");
    form.method = "post";
    form.action = "/logout";
    const token = document.createElement("input");
    token.name = "token";
    token.value = session.value.form;
    form.append(token);
    document.body.append(form);
    form.submit();
    return;
  }
  leave();
}

function Login() {
  const [error, setError] = useState<{ text: string; hint: string } | null>(null);
  const [busy, setBusy] = useState(false);
  const next = encodeURIComponent(location.pathname + location.search);
  return <main class="login"><div class="card">
    <h1><span class="mark" aria-hidden="true" />Carrel</h1>
    {signedOut.value && <div class="note" role="status">You were signed out: <Plain>{signedOut.value}</Plain></div>}
    <form onSubmit={async (e) => {
      e.preventDefault();
      setBusy(true);
      setError(null);
      try { await signIn(String(new FormData(e.currentTarget).get("key")).trim()); } catch (x) { setError(explain(x)); }
      setBusy(false);
    }}>
      <label class="field"><span>API key</span><input name="key" type="password" autocomplete="off" required autoFocus spellcheck={false} /></label>
      <button class="primary" disabled={busy}>Open the console</button>
      <p class="muted">The key stays in this tab, and is forgotten with it. The daemon's own key is in its data directory, in the file <code>api-key</code>.</p>
    </form><Fault of={error} />
    {offer.value.people && <p class="or"><a class="button" href={"/login?next=" + next}>{offer.value.provider ? "Sign in at your identity provider, or with a password" : "Sign in as a person"}</a></p>}
  </div></main>;
}

function Palette() {
  const [text, setText] = useState(""), [at, setAt] = useState(0);
  const ref = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => { // at once: the next key is meant for it
    ref.current?.showModal();
    ref.current?.querySelector("input")?.focus();
  }, []);
  const end = () => { palette.value = false; };
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (s: string) => words.every((w) => s.toLowerCase().includes(w));
  const all: { title: string; hint: string; run: () => void }[] = [
    ...screens.filter((s) => s.show?.() ?? true).map((s) => ({ title: s.title, hint: "g " + s.key, run: () => go(s.path) })),
    ...(mayRun() ? [{ title: "New sandbox", hint: "n", run: () => void askCreate().catch(fail) }] : []),
    { title: "Light or dark", hint: "", run: turnTheme }, { title: "Sign out", hint: "", run: out },
  ].filter((x) => fits(x.title));
  if (words.length) {
    let n = 0;
    for (const b of boxes.values()) {
      if (n >= 8) break;
      const known = `${b.name ?? ""} ${b.id} ${b.alias ?? ""} ${Object.entries(b.metadata ?? {}).map((e) => e.join("=")).join(" ")}`, name = b.name || b.id;
      if (!fits("terminal of " + known)) continue;
      n++;
      if (fits(known)) all.push({ title: name, hint: b.state, run: () => go("/sandboxes/" + b.id) });
      if (mayRun()) all.push({ title: "Terminal of " + name, hint: "", run: () => go(`/sandboxes/${b.id}/terminal`) });
    }
  }
  const now = Math.min(at, all.length - 1);
  return <dialog class="palette" ref={ref} onClose={end} onClick={(e) => { if (e.target === ref.current) end(); }} aria-label="Command palette">
    <input autoFocus role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant={all.length ? "found" + now : undefined} aria-label="Find a screen, a sandbox or an action" placeholder="Find a screen, a sandbox or an action" value={text}
      onInput={(e) => { setText(e.currentTarget.value); setAt(0); }} onKeyDown={(e) => {
        if (e.key === "ArrowDown") { e.preventDefault(); setAt(Math.min(now + 1, all.length - 1)); }
        else if (e.key === "ArrowUp") { e.preventDefault(); setAt(Math.max(now - 1, 0)); }
        else if (e.key === "Enter" && all[now]) { e.preventDefault(); end(); all[now].run(); }
      }} />
    <ul id="found" role="listbox" aria-label="Found">{all.map((x, i) => <li key={x.title + i} id={"found" + i} role="option" aria-selected={i === now} onClick={() => { end(); x.run(); }}><Plain>{x.title}</Plain><kbd>{x.hint}</kbd></li>)}</ul>
  </dialog>;
}

function Screen() {
  const path = place.value.path, parts = path.split("/").slice(1);
  useEffect(() => {
    const title = parts[0] === "sandboxes" ? boxes.get(parts[1])?.name || parts[1] : screens.find((s) => s.path === path)?.title ?? "Carrel";
    document.title = (inbox.value.length ? `(${inbox.value.length}) ` : "") + title + " · Carrel";
  });
  switch (parts[0]) {
    case "": return <Fleet />;
    case "sandboxes": return <SandboxScreen key={parts[1]} id={parts[1]} tab={parts[2] ?? "overview"} />;
    case "network": return <NetworkScreen />;
    case "inbox": return <InboxScreen />;
    case "templates": return <Templates />;
    case "builds": return <BuildScreen key={parts[1]} id={parts[1]} />;
    case "pools": return <Pools />;
    case "secrets": return <Secrets />;
    case "access": return <Access />;
    case "budgets": return <Budgets />;
    case "people": return isAdmin() ? <People /> : <Empty title="Not for you">People are for administrators of the machine.</Empty>;
    case "nodes": return <Nodes />;
    case "usage": return <Usage />;
    case "audit": return <Audit />;
    case "webhooks": return <Webhooks />;
  }
  return <div class="screen"><Empty title="There is no such page"><a href="/console/">All sandboxes</a></Empty></div>;
}

function App() {
  const who = self.value;
  useEffect(() => {
    if (!who) { stopAll(); return; }
    start();
  }, [who?.name, who?.project, project.value]);
  useEffect(() => {
    let g = 0;
    const keys = (e: KeyboardEvent) => {
      if (!self.value) return;
      if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") { e.preventDefault(); palette.value = !palette.value; return; }
      if (e.ctrlKey || e.metaKey || e.altKey || (e.target as Element).closest?.("input,textarea,select,dialog,.terminals,.editor")) return;
      if (e.key === "g") g = Date.now();
      else if (Date.now() - g < 1200) { const s = screens.find((x) => x.key === e.key); if (s) { e.stopImmediatePropagation(); go(s.path); } g = 0; }
      else if (e.key === "?") { e.preventDefault(); palette.value = true; } // the key is no text for the palette
    };
    addEventListener("keydown", keys, true);
    return () => removeEventListener("keydown", keys, true);
  }, []);
  if (!who) return <Login />;
  const top = "/" + place.value.path.split("/")[1], here = top === "/sandboxes" ? "/" : top === "/builds" ? "/templates" : top;
  return <div class={"frame" + (menu.value ? " menu" : "")} onClick={clicked}>
    <a class="skip" href="#main">Skip to the content</a>
    <aside><div class="brand"><span class="mark" aria-hidden="true" />Carrel<button class="quiet burger" aria-label="Menu" aria-expanded={menu.value} onClick={() => { menu.value = !menu.value; }}>≡</button></div>
      <button class="find" onClick={() => { palette.value = true; }}>Find… <kbd>Ctrl K</kbd></button>
      <nav aria-label="Screens" onClick={() => { menu.value = false; }}>{screens.filter((s) => s.show?.() ?? true).map((s) => <a key={s.path} href={"/console" + s.path} aria-current={here === s.path ? "page" : undefined}>{s.title}
        {s.path === "/inbox" && inbox.value.length > 0 && <span class="badge" aria-label={inbox.value.length + " wait"}>{inbox.value.length}</span>}</a>)}</nav>
      <div class="me"><div class="wrap"><Plain>{who.name}</Plain></div><div class="muted">{who.role}{who.project ? <> in <Plain>{who.project}</Plain></> : ""}</div>
        {(who.projects?.length ?? 0) > 1 && <select aria-label="Project" value={who.project} onChange={(e) => { choose(e.currentTarget.value); location.reload(); }}>{who.projects!.map((p) => <option key={p.project}>{p.project}</option>)}</select>}
        <div class="row"><button class="quiet small" onClick={turnTheme}>Light or dark</button><button class="quiet small" onClick={out}>Sign out</button></div></div>
    </aside>
    <main id="main" tabIndex={-1}><Screen /></main>
    {palette.value && <Palette />}
    {dialog.value}
    <Notices />
  </div>;
}

const app = document.getElementById("app")!;
void resume().catch(fail).then(() => { app.replaceChildren(); render(<App />, app); });
