// One sandbox: everything about it, and everything that can be done with it.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ComponentType } from "preact";
import { askFork, askPromote, askSnapshot, askTimeout, kill, pause, resume, canUse, close, dialog } from "./actions";
import { explain, get, guest, guestStream, mayRun, put as update } from "./api";
import { labels } from "./fleet";
import { Files } from "./files";
import { SandboxNetwork } from "./net";
import { go } from "./router";
import { boxes, happenings, inbox, loaded, put, refresh, revision } from "./store";
import { age, bytes, clock, count, moment, span, visible } from "./text";
import { TimelineTab } from "./timeline";
import { Copy, Empty, fail, Fault, Form, How, Plain, say, State, Table, Tabs, useLoad, useNow } from "./ui";
import type { LogEntry, Metric, ProcessRecord, Sandbox } from "./types";

const tabs: [string, string][] = [["overview", "Overview"], ["terminal", "Terminal"], ["files", "Files"], ["processes", "Processes"],
  ["ports", "Ports"], ["network", "Network"], ["timeline", "Timeline"], ["logs", "Logs"], ["settings", "Settings"]];
/** What enters the sandbox: for those who may run. */
const entering = ["terminal", "files", "processes", "ports"];

export function SandboxScreen({ id, tab }: { id: string; tab: string }) {
  void revision.value;
  const now = useNow();
  const [asked, setAsked] = useState("");
  const b = boxes.get(id);
  useEffect(() => { if (!b) void refresh(id).then(() => setAsked(id)); }, [id]);
  if (!b) {
    const end = happenings.value.find((e) => e.id === id && e.type === "sandbox.ended");
    return <div class="screen">{asked === id || (loaded.value && end) ? <Empty title="This sandbox is gone">{end ? <>It ended: <Plain>{end.message || end.reason || ""}</Plain>. </> : "There is none with this ID, or it is not yours. "}
      <a href="/console/">All sandboxes</a></Empty> : <div class="empty muted">Loading…</div>}</div>;
  }
  const running = b.state === "running", paused = b.state === "paused", run = mayRun();
  const shown = tabs.filter(([t]) => canUse(b) || !entering.includes(t));
  const waits = inbox.value.filter((x) => x.sandbox === id).length;
  return <div class="screen">
    <header class="top">
      <nav aria-label="Breadcrumb" class="crumb"><a href="/console/">Sandboxes</a> <span aria-hidden="true">/</span></nav>
      <h1><Plain>{b.name || b.id}</Plain></h1><State of={b.state} />
      {waits > 0 && <a class="label warn" href={`/console/sandboxes/${id}/network`}>{waits} held</a>}
      <span class="grow" />
      {run && <><button onClick={() => askFork(b)}>Fork</button><button onClick={() => askSnapshot(b)}>Snapshot</button>
        {running && <button onClick={() => void pause([id])}>Pause</button>}{paused && <button class="primary" onClick={() => void resume([id])}>Resume</button>}
        <button class="danger" onClick={() => kill([id])}>Kill</button></>}
    </header>
    <Tabs now={tab} of={shown} pick={(t) => go(`/sandboxes/${id}/${t}`)} />
    <div class="tab">
      {entering.includes(tab) && !canUse(b) ? <Empty title="Not with this key">This key may look, and enter no sandbox.</Empty>
        : entering.includes(tab) && !running ? <Empty title={paused ? "It sleeps" : "It is " + b.state}>{paused ? <>Nothing runs in it. {run && <button class="primary" onClick={() => void resume([id])}>Resume</button>}</> : "A moment."}</Empty>
        : tab === "terminal" ? <Lazy load={() => import("./terminal")} box={id} />
        : tab === "files" ? <Files box={b} />
        : tab === "processes" ? <Processes box={b} />
        : tab === "ports" ? <Ports box={b} />
        : tab === "network" ? <><SandboxNetwork box={b} /><How cli={`carrel audit -f ${id}`} api={`GET /carrel/v1/audit?sandbox=${id}&follow=true`} /></>
        : tab === "timeline" ? <TimelineTab box={b} />
        : tab === "logs" ? <Logs box={b} />
        : tab === "settings" ? <Settings box={b} />
        : <Overview box={b} now={now} />}
    </div>
  </div>;
}

/** A part that is loaded when it is first needed. */
function Lazy({ load, box }: { load: () => Promise<{ default: ComponentType<{ box: string }> }>; box: string }) {
  const [part, setPart] = useState<{ is: ComponentType<{ box: string }> } | null>(null);
  useEffect(() => { void load().then((m) => setPart({ is: m.default }), fail); }, []);
  return part ? <part.is box={box} /> : <div class="empty muted">Loading…</div>;
}

function Overview({ box, now }: { box: Sandbox; now: number }) {
  const domain = hostsOf(box);
  return <div class="columns">
    <section class="panel"><h2>About</h2><dl>
      <dt>ID</dt><dd class="mono">{box.id} <Copy text={box.id} /></dd>
      <dt>Template</dt><dd><Plain>{box.alias || box.template}</Plain></dd><dt>Tier</dt><dd>{box.tier}</dd>
      <dt>Project</dt><dd><Plain>{box.project}</Plain></dd><dt>Started</dt><dd>{moment(box.started)} ({age(box.started, now)} ago)</dd>
      <dt>{box.state === "paused" ? "Paused" : "Ends"}</dt><dd>{moment(box.ends)}</dd>
      <dt>Size</dt><dd>{box.limits.cpus} CPUs, {bytes((box.limits.memoryMB ?? 0) * 2 ** 20)} memory, {bytes((box.limits.diskMB ?? 0) * 2 ** 20)} disk, {box.limits.pids} processes</dd>
      <dt>Labels</dt><dd class="labels">{Object.keys(box.metadata ?? {}).length ? labels(box.metadata) : "–"}</dd>
    </dl></section>
    <section class="panel"><h2>Open in</h2>
      {[["Shell", `carrel shell ${box.id}`], ["SSH", `ssh -o ProxyCommand='carrel ssh-proxy %h' ${box.id}`], ["Copy files", `carrel cp ${box.id}:/home/user .`],
        ["Python", `from e2b import Sandbox\nsandbox = Sandbox.connect("${box.id}")\nprint(sandbox.commands.run("uname -a").stdout)`],
        ["JavaScript", `import { Sandbox } from 'e2b'\nconst sandbox = await Sandbox.connect('${box.id}')`],
        ["VS Code", `code --remote ssh-remote+${box.id} /home/user`]].map(([what, text]) =>
        <div class="snippet" key={what}><span class="muted">{what}</span><pre tabIndex={0} aria-label={what}>{text}</pre><Copy text={text} /></div>)}
      <p class="muted">Clients of E2B find this daemon with <code>carrel env</code>. Ports are at <code>PORT-{box.id.slice(0, 6)}….{domain || "DOMAIN"}</code></p>
    </section>
    <Metrics box={box} />
    <How cli={`carrel info ${box.id}`} api={`GET /carrel/v1/sandboxes/${box.id}`} />
  </div>;
}

function Metrics({ box }: { box: Sandbox }) {
  const now = useNow(5000);
  const m = useLoad((s) => get<Metric[]>(`/carrel/v1/sandboxes/${box.id}/metrics`, s), [box.id, box.state === "running" ? now : 0]);
  const list = m.value ?? [], last = list.at(-1);
  return <section class="panel full"><h2>Use over its life</h2><Fault of={box.state === "running" ? m.error : null} />
    {list.length < 2 ? <p class="muted">{last ? `Now: ${Math.round(last.cpuUsedPct)}% of a core, ${bytes(last.memUsed)} of memory, ${bytes(last.diskUsed)} on disk.` : "No samples yet."}</p>
      : <div class="charts">
        <Chart title={`CPU, now ${Math.round(last!.cpuUsedPct)}% of a core`} list={list} of={(x) => x.cpuUsedPct} colour="--accent" unit={(n) => Math.round(n) + " %"} />
        <Chart title={`Memory, now ${bytes(last!.memUsed)} of ${bytes(last!.memTotal)}`} list={list} of={(x) => x.memUsed} colour="--good" unit={bytes} />
        <Chart title={`Disk, now ${bytes(last!.diskUsed)} of ${bytes(last!.diskTotal)}`} list={list} of={(x) => x.diskUsed} colour="--busy" unit={bytes} />
        <Chart title={`Network, ${bytes(last!.netSent)} out and ${bytes(last!.netReceived)} in`} list={list} of={(x) => x.netSent + x.netReceived} colour="--muted" unit={bytes} />
      </div>}</section>;
}

function Chart({ title, list, of, colour, unit }: { title: string; list: Metric[]; of: (m: Metric) => number; colour: string; unit: (n: number) => string }) {
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let end = () => {}, gone = false;
    void import("./chart").then(({ draw }) => { if (!gone && ref.current) end = draw(ref.current, list.map((m) => new Date(m.time).getTime() / 1000), [{ label: title, values: list.map(of), colour }], unit); });
    return () => { gone = true; end(); };
  }, [list.length, list.at(-1)?.time]);
  return <figure class="chart"><figcaption>{title}</figcaption><div ref={ref} /></figure>;
}

function Processes({ box }: { box: Sandbox }) {
  const now = useNow(2000);
  const p = useLoad((s) => get<ProcessRecord[]>(`/carrel/v1/sandboxes/${box.id}/processes`, s), [box.id, now]);
  const [open, setOpen] = useState(0);
  const list = [...(p.value ?? [])].reverse();
  const signal = (r: ProcessRecord, name: string) => void guest(box, "process.Process/SendSignal", { process: { pid: r.pid }, signal: name }).then(() => { say("Sent " + name.replace("SIGNAL_", "") + " to " + r.pid); p.again(); }, fail);
  return <><Fault of={p.error} />
    {p.value && !list.length ? <Empty title="Nothing runs">What is started through the API, the SDKs or a terminal shows here, with its output.</Empty>
      : <Table label="Processes" head={["PID", "Command", "State", "Started", "Output", ""]}>{list.map((r) => [<tr key={r.serial}>
        <td class="num">{r.pid}</td><td class="mono"><button class="link mono" aria-expanded={open === r.serial} onClick={() => setOpen(open === r.serial ? 0 : r.serial)}><Plain>{r.args.join(" ")}</Plain></button>{r.tag && <span class="label"><Plain>{r.tag}</Plain></span>}</td>
        <td>{r.ended ? <span class={"state " + (r.exitCode ? "bad" : "rest")}>{r.status || "exit " + r.exitCode}</span> : <State of="running" />}</td><td class="num">{clock(r.started)}</td><td class="num">{bytes(r.written)}</td>
        <td class="right">{!r.ended && mayRun() && <><button class="quiet small" aria-label={"Terminate " + r.pid} onClick={() => signal(r, "SIGNAL_SIGTERM")}>Terminate</button><button class="quiet small" aria-label={"Kill process " + r.pid} onClick={() => signal(r, "SIGNAL_SIGKILL")}>Kill</button></>}</td></tr>,
        open === r.serial && <tr key={r.serial + "o"} class="detail"><td colSpan={6}><Output box={box} record={r} /></td></tr>])}</Table>}
    <How cli={`carrel ps ${box.id}`} api={`GET /carrel/v1/sandboxes/${box.id}/processes`} /></>;
}

/** The last output of a process. However much it wrote, the page holds the last 256 KiB. */
function Output({ box, record }: { box: Sandbox; record: ProcessRecord }) {
  const [text, setText] = useState("");
  const [error, setError] = useState<{ text: string; hint: string } | null>(null);
  useEffect(() => {
    const own = new AbortController(), decoder = new TextDecoder();
    void (async () => {
      let from = Math.max(0, record.written - (1 << 16)), have = "";
      try {
        while (!own.signal.aborted) {
          const o = await get<ProcessRecord & { next: number; pieces: { data: string }[] | null }>(`/carrel/v1/sandboxes/${box.id}/processes/${record.pid}/output?serial=${record.serial}&from=${from}&most=65536&wait=20s`, own.signal);
          for (const piece of o.pieces ?? []) have += decoder.decode(Uint8Array.from(atob(piece.data), (c) => c.charCodeAt(0)), { stream: true });
          have = have.slice(-(1 << 18));
          setText(have);
          from = o.written - o.next > 1 << 18 ? o.written - (1 << 16) : o.next; // it prints faster than anybody reads
          if (o.ended && o.next >= o.written) return;
        }
      } catch (e) { if (!own.signal.aborted) setError(explain(e)); }
    })();
    return () => own.abort();
  }, [record.serial]);
  return <><Fault of={error} /><pre class="output" tabIndex={0} aria-label="Output">{text.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "").replace(/\r\n/g, "\n").split("\n").map(visible).join("\n") || "No output yet."}</pre></>;
}

/** hostsOf is the end of the host names of a sandbox's ports; "" if there is none. */
function hostsOf(box: Sandbox): string {
  const mine = location.hostname === "localhost" || location.hostname.endsWith(".localhost") || /^127\.|^\[::1\]$/.test(location.hostname);
  const domain = box.domain || (mine ? "localhost" : "");
  return domain && !/:\d+$/.test(domain) && location.port ? domain + ":" + location.port : domain;
}

interface Listener { port: number; address: string }

/** listeners reads which ports listen, as the kernel of the sandbox tells it. */
async function listeners(box: Sandbox): Promise<Listener[]> {
  let text = "";
  await guestStream(box, "process.Process/Start", { process: { cmd: "/bin/sh", args: ["-c", "cat /proc/net/tcp /proc/net/tcp6 2>/dev/null"] } },
    (m) => { if (m.event?.data?.stdout) text += atob(m.event.data.stdout); }, AbortSignal.timeout(10_000));
  const found = new Map<number, Listener>();
  for (const line of text.split("\n")) {
    const f = line.trim().split(/\s+/);
    if (f[3] !== "0A" || !f[1]) continue;
    const [address, port] = f[1].split(":"), n = parseInt(port, 16);
    if (n !== 49983) found.set(n, { port: n, address: /^0+$/.test(address) ? "all addresses" : "loopback" });
  }
  return [...found.values()].sort((a, b) => a.port - b.port);
}

function Ports({ box }: { box: Sandbox }) {
  const now = useNow(8000);
  const l = useLoad(() => listeners(box), [box.id, now]);
  const [port, setPort] = useState(0);
  const [turn, setTurn] = useState(0);
  const domain = hostsOf(box);
  const url = port && domain ? `${location.protocol}//${port}-${box.id}.${domain}/` : "";
  return <div class="ports"><form class="filters" onSubmit={(e) => { e.preventDefault(); setPort(Number(new FormData(e.currentTarget).get("port")) || 0); setTurn(turn + 1); }}>
      <label class="inline">Port <input class="short" name="port" type="number" min="1" max="65535" placeholder="3000" /></label><button>Preview</button>
      {(l.value ?? []).map((x) => <button type="button" key={x.port} aria-pressed={x.port === port} onClick={() => { setPort(x.port); setTurn(turn + 1); }}>{x.port} <span class="muted">{x.address}</span></button>)}
      {l.value && !l.value.length && <span class="muted">No port is known to listen.</span>}
    </form>
    {box.network.privateTraffic && <p class="note">This sandbox's ports demand its traffic token, which a frame can't send: <code>carrel port-forward {box.id} {port || 3000}</code></p>}
    {port > 0 && !domain && <p class="note">Ports have no host names here: start the daemon with <code>--domain</code>. Or use <code>carrel port-forward {box.id} {port}</code></p>}
    {url ? <figure class="preview"><figcaption><span class="mono grow">{url}</span><Copy text={url} /><button class="quiet small" onClick={() => setTurn(turn + 1)}>Reload</button><a href={url} target="_blank" rel="noopener noreferrer">Open</a></figcaption>
      {/* Its origin is the sandbox's own, so it reaches nothing of ours. It can't move the page, open dialogs or see where it is. */}
      <iframe key={url + turn} src={url} title={"Preview of port " + port} sandbox="allow-scripts allow-forms allow-same-origin" referrerpolicy="no-referrer" allow="" /></figure>
      : port === 0 && <Empty title="Look at a port">A server in the sandbox is shown here, in a frame that reaches nothing of this page.</Empty>}
    <How cli={`carrel url ${box.id} ${port || 3000}`} api={`GET / at ${port || 3000}-${box.id}.${domain || "DOMAIN"}`} /></div>;
}

function Logs({ box }: { box: Sandbox }) {
  const seq = happenings.value.find((e) => e.id === box.id)?.seq ?? 0;
  const l = useLoad((s) => get<LogEntry[]>(`/carrel/v1/sandboxes/${box.id}/logs?limit=1000&newestFirst=true`, s), [box.id, seq]);
  const [text, setText] = useState("");
  const list = (l.value ?? []).filter((e) => !text || (e.message + JSON.stringify(e.fields ?? {})).toLowerCase().includes(text.toLowerCase()));
  return <><div class="filters"><input type="search" aria-label="Search the log" placeholder="Search" value={text} onInput={(e) => setText(e.currentTarget.value)} /><span class="muted">{count(list.length)} lines</span></div><Fault of={l.error} />
    {l.value && !list.length ? <Empty title="Nothing to show">No event matches.</Empty>
      : <Table label="Log" head={["Time", "Level", "Event", "What happened"]}>{list.map((e, i) => <tr key={i}><td class="num">{moment(e.time)}</td><td><span class={"state " + (e.level === "error" ? "bad" : e.level === "warn" ? "busy" : "rest")}>{e.level}</span></td>
        <td class="mono"><Plain>{e.fields?.event}</Plain></td><td><Plain>{e.message}</Plain></td></tr>)}</Table>}
    <How cli={`carrel logs ${box.id}`} api={`GET /carrel/v1/sandboxes/${box.id}/logs`} /></>;
}

function Settings({ box }: { box: Sandbox }) {
  const l = box.lifecycle ?? {};
  const ask = () => {
    dialog.value = <Form title="What the service does by itself" action="Change" close={close} fields={[
      { name: "onTimeout", label: "When the timeout passes", options: [["kill", "kill it"], ["pause", "pause it"]], value: l.onTimeout || "kill" },
      { name: "autoResume", label: "A request wakes it when it is paused", type: "checkbox", value: l.autoResume ? "on" : "" },
      { name: "idle", label: "Pause it when idle for", value: l.idle?.after ? l.idle.after / 1e9 + "s" : "", hint: "such as 30m; empty is never" },
      { name: "every", label: "Snapshot every", value: l.checkpoints?.every ? l.checkpoints.every / 1e9 + "s" : "", hint: "such as 10m; empty is never" },
      { name: "last", label: "Keep so many automatic snapshots", type: "number", value: String(l.retention?.last || 20) }]}
      run={async (v) => {
        put(await update<Sandbox>(`/carrel/v1/sandboxes/${box.id}/lifecycle`, { ...l, onTimeout: v.onTimeout, autoResume: v.autoResume === "on",
          idle: { ...l.idle, after: v.idle || 0 }, checkpoints: { ...l.checkpoints, every: v.every || 0 }, retention: { ...l.retention, last: Number(v.last) } }));
        say("Changed");
      }} />;
  };
  return <div class="columns"><section class="panel"><h2>Lifecycle</h2><dl><dt>At the timeout</dt><dd>{l.onTimeout || "kill"}</dd><dt>Wakes by itself</dt><dd>{l.autoResume || l.idle?.after ? "yes, with the next request" : "no"}</dd>
      <dt>Pauses when idle for</dt><dd>{span(l.idle?.after)}</dd><dt>Snapshot every</dt><dd>{span(l.checkpoints?.every)}</dd><dt>Snapshot before</dt><dd class="mono"><Plain>{l.checkpoints?.before?.join(", ") || "–"}</Plain></dd><dt>Ends</dt><dd>{moment(box.ends)}</dd></dl>
      {mayRun() && <div class="actions left"><button onClick={ask}>Change…</button><button onClick={() => askTimeout(box)}>Set timeout…</button>{box.tier === "sim" && <button onClick={() => askPromote(box)}>Promote…</button>}</div>}</section>
    <section class="panel"><h2>Limits</h2><dl><dt>CPUs</dt><dd>{box.limits.cpus}</dd><dt>Memory</dt><dd>{bytes((box.limits.memoryMB ?? 0) * 2 ** 20)}</dd><dt>Disk</dt><dd>{bytes((box.limits.diskMB ?? 0) * 2 ** 20)}</dd><dt>Processes</dt><dd>{box.limits.pids}</dd></dl>
      <p class="muted">Limits are set when a sandbox is made.</p></section>
    <How cli={`carrel lifecycle ${box.id}`} api={`PUT /carrel/v1/sandboxes/${box.id}/lifecycle`} /></div>;
}
