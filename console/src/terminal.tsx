// Terminals: xterm over the guest's stream of a process with a PTY. They live on while somebody
// looks at another screen.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { guest, guestStream, Problem } from "./api";
import { boxes, refresh } from "./store";
import { explain } from "./api";

const encode = (text: string) => btoa(Array.from(new TextEncoder().encode(text), (c) => String.fromCharCode(c)).join(""));
const decode = (text: string) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

/** One shell in a sandbox. */
class Shell {
  readonly term: Terminal;
  readonly fit = new FitAddon();
  readonly state = signal<"opening" | "open" | "lost" | "ended">("opening");
  readonly host = document.createElement("div");
  private pid = 0;
  private next = "0"; // the position after the last output
  private stop = new AbortController();
  private undrawn = 0; // bytes
  private typed = "";
  private sending = false;
  private opened = false;
  private watching = new AbortController(); // ends the stream of a shell that nobody sees
  private running = false;

  constructor(readonly box: string, readonly number: number) {
    const dark = document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    this.term = new Terminal({
      fontFamily: "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace", fontSize: 13, scrollback: 10_000, cursorBlink: true,
      screenReaderMode: false, allowProposedApi: false, minimumContrastRatio: 4.5,
      // A program's link does nothing: its text says one thing, and it may lead to another.
      linkHandler: { activate: () => undefined, allowNonHttpProtocols: false },
      windowOptions: {},
      theme: dark ? { background: "#101113", foreground: "#e4e6ea", cursor: "#8fb0ff", selectionBackground: "#33415f" }
        : { background: "#ffffff", foreground: "#1c2024", cursor: "#2f5bd0", selectionBackground: "#cfdcff", black: "#1c2024", white: "#8b8d98", brightWhite: "#60646c" },
    });
    this.term.loadAddon(this.fit);
    // A program may not touch the clipboard (OSC 52), and may not say where it is or what runs.
    for (const code of [52, 8, 9, 777, 1337]) this.term.parser.registerOscHandler(code, () => true);
    this.term.onData((text) => { this.typed += text; void this.send(); });
    this.term.onBinary((text) => { this.typed += text; void this.send(); });
    this.term.onResize(({ cols, rows }) => { if (this.pid) void this.call("process.Process/Update", { process: { pid: this.pid }, pty: { size: { cols, rows } } }); });
    this.host.className = "termhost";
  }

  /** show puts the terminal into the page. It starts with its first size. */
  show(parent: HTMLElement): void {
    parent.append(this.host);
    if (!this.opened) { this.term.open(this.host); this.opened = true; }
    this.fit.fit();
    this.term.focus();
    this.attach();
  }

  /** attach begins to read, from where the last reading ended. */
  attach(): void {
    if (this.running || this.state.value === "ended" || !this.opened) return;
    this.watching = new AbortController();
    this.running = true;
    void this.run(AbortSignal.any([this.watching.signal, this.stop.signal])).finally(() => { this.running = false; });
  }

  /** detach gives the connection up, because a browser has few of them. The shell goes on, and the
   * guest keeps its last output. */
  detach(): void { if (this.pid) this.watching.abort(); }

  private call(method: string, body: unknown): Promise<unknown> {
    const box = boxes.get(this.box);
    return box ? guest(box, method, body, this.stop.signal).catch(() => undefined) : Promise.resolve();
  }

  private async send(): Promise<void> {
    if (this.sending || !this.pid) return;
    this.sending = true;
    while (this.typed && !this.stop.signal.aborted) {
      const text = this.typed.slice(0, 4096);
      this.typed = this.typed.slice(text.length);
      await this.call("process.Process/SendInput", { process: { pid: this.pid }, input: { pty: encode(text) } });
    }
    this.sending = false;
  }

  /** take shows a piece of output. It keeps the stream waiting while the terminal has much to draw: a program
   * that prints without end takes no memory, and Ctrl C still gets through. */
  private take(m: any): void | Promise<void> {
    const e = m.event ?? {};
    if (e.start) { this.pid = e.start.pid; this.state.value = "open"; void this.send(); }
    if (e.data?.pty) {
      const data = decode(e.data.pty);
      if (e.data.offset !== undefined) this.next = String(BigInt(e.data.offset) + BigInt(data.length));
      this.undrawn += data.length;
      const drawn = new Promise<void>((done) => this.term.write(data, () => { this.undrawn -= data.length; done(); }));
      if (this.undrawn > 1 << 19) return drawn;
    }
    if (e.end) {
      this.state.value = "ended";
      this.term.write(`\r\n\x1b[2m[${e.end.status || "ended"}]\x1b[0m\r\n`);
    }
  }

  /** run starts the shell, and finds it again when the connection broke. */
  private async run(signal: AbortSignal): Promise<void> {
    for (let tries = 0; !signal.aborted && this.state.value !== "ended"; tries++) {
      const box = boxes.get(this.box) ?? await refresh(this.box);
      try {
        if (!box) throw new Problem("the sandbox is gone", 404);
        if (this.pid) await guestStream(box, "process.Process/Connect", { process: { pid: this.pid }, resumeFrom: { pty: this.next } }, (m) => { tries = 0; return this.take(m); }, signal);
        else await guestStream(box, "process.Process/Start", {
          process: { cmd: "/bin/bash", args: ["-i", "-l"], envs: { TERM: "xterm-256color", LANG: "C.UTF-8" } },
          pty: { size: { cols: this.term.cols, rows: this.term.rows } },
        }, (m) => { tries = 0; return this.take(m); }, signal);
        if (this.state.peek() !== "ended") this.state.value = "lost";
      } catch (e) {
        if (signal.aborted) return;
        const kind = (e as Problem).kind, status = (e as Problem).status;
        this.state.value = "lost";
        if (!this.pid || status === 404 || kind === "not_found" || tries > 8) {
          this.state.value = "ended";
          const { text, hint } = explain(e);
          this.term.write(`\r\n\x1b[31m${text.replace(/[\x00-\x1f]/g, " ")}\x1b[0m\r\n${hint ? "hint: " + hint.replace(/[\x00-\x1f]/g, " ") + "\r\n" : ""}`);
          return;
        }
      }
      if (this.state.peek() as string === "ended") return;
      await new Promise((done) => setTimeout(done, Math.min(250 * 2 ** tries, 5000)));
    }
  }

  /** close ends the shell. */
  close(): void {
    if (this.pid && this.state.value !== "ended") void this.call("process.Process/SendSignal", { process: { pid: this.pid }, signal: "SIGNAL_SIGKILL" });
    setTimeout(() => this.stop.abort(), 300);
    this.term.dispose();
    this.host.remove();
  }
}

const shells = signal<Shell[]>([]);
const front = signal<Record<string, Shell>>({});
let counter = 0;

function open(box: string): void {
  const s = new Shell(box, ++counter);
  shells.value = [...shells.value, s];
  front.value = { ...front.value, [box]: s };
}

function shut(s: Shell): void {
  shells.value = shells.value.filter((x) => x !== s);
  const rest = shells.value.filter((x) => x.box === s.box);
  front.value = { ...front.value, [s.box]: rest.at(-1)! };
  s.close();
}

/** closeAll ends all shells, as when somebody signs out. */
export function closeAll(): void { for (const s of shells.value) s.close(); shells.value = []; front.value = {}; }

export default function TerminalTab({ box }: { box: string }) {
  const own = shells.value.filter((s) => s.box === box), now = front.value[box] ?? own[0];
  const ref = useRef<HTMLDivElement>(null);
  useEffect(() => { if (!own.length) open(box); }, [box]);
  useEffect(() => {
    if (!now || !ref.current) return;
    const at = ref.current;
    now.show(at);
    const watch = new ResizeObserver(() => now.fit.fit());
    watch.observe(at);
    const seen = () => (document.hidden ? now.detach() : now.attach());
    document.addEventListener("visibilitychange", seen);
    return () => { watch.disconnect(); document.removeEventListener("visibilitychange", seen); now.host.remove(); now.detach(); };
  }, [now]);
  return <div class="terminals">
    <div class="tabs small" role="group" aria-label="Terminals">
      {own.map((s, i) => <span key={s.number} class="tabbed"><button aria-pressed={s === now} onClick={() => { front.value = { ...front.value, [box]: s }; }}>
        <span class={"dot " + s.state.value} aria-hidden="true" />Shell {i + 1}{s.state.value === "lost" ? " (reconnecting)" : s.state.value === "ended" ? " (ended)" : ""}</button>
        <button class="quiet icon" aria-label={`Close shell ${i + 1}`} onClick={() => shut(s)}>×</button></span>)}
      <button class="quiet" aria-label="New shell" onClick={() => open(box)}>+ New</button>
    </div>
    <div class="screenbox" ref={ref} />
  </div>;
}
