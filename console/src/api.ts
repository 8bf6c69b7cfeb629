// The API: who calls it, requests, streams and errors.
import { signal } from "@preact/signals";
import type { Sandbox, Self } from "./types";

/** An error of the API, with what a person can do about it. */
export class Problem extends Error {
  constructor(message: string, readonly status: number, readonly kind = "", readonly hint = "",
    readonly requestID = "") {
    super(message);
  }
}

/** Who uses the console: the holder of a key, or a person with a session of the browser. */
interface Session { key?: string; form?: string; person?: string }

/** What the daemon offers for signing in. */
interface Offer { person?: string; form?: string; people: boolean; provider: boolean }

export const session = signal<Session | null>(null);
export const self = signal<Self | null>(null);
export const offer = signal<Offer>({ people: false, provider: false });
/** Why somebody has to sign in again; "" for no reason. */
export const signedOut = signal("");
/** The project of requests; "" is the caller's own. */
export const project = signal(sessionStorage.getItem("carrel.project") ?? "");

const keyName = "carrel.key";

export const mayRun = () => ["admin", "owner", "member"].includes(self.value?.role ?? "");
export const mayManage = () => ["admin", "owner"].includes(self.value?.role ?? "");
export const isAdmin = () => self.value?.role === "admin";

/** resume finds the key of this tab, or the session of this browser. */
export async function resume(): Promise<void> {
  const answer = await fetch("/console/session");
  if (answer.ok) offer.value = await answer.json();
  const key = sessionStorage.getItem(keyName);
  if (key) await signIn(key).catch(() => sessionStorage.removeItem(keyName));
  else if (offer.value.form) {
    session.value = { form: offer.value.form, person: offer.value.person };
    await whoami().catch((e) => leave(String((e as Error).message)));
  }
}

/** signIn proves a key. It stays in this tab, until the tab is closed. */
export async function signIn(key: string): Promise<void> {
  session.value = { key };
  try {
    await whoami();
  } catch (e) {
    session.value = null;
    throw e;
  }
  sessionStorage.setItem(keyName, key);
  signedOut.value = "";
}

async function whoami(): Promise<void> {
  let me = await get<Self>("/carrel/v1/whoami");
  if (!me.project && me.projects?.length && !project.value) {
    choose(me.projects[0].project);
    me = await get<Self>("/carrel/v1/whoami");
  }
  self.value = me;
}

/** choose names the project that requests are about. */
export function choose(name: string): void {
  project.value = name;
  if (name) sessionStorage.setItem("carrel.project", name);
  else sessionStorage.removeItem("carrel.project");
}

/** leave forgets the key, or ends the session. */
export function leave(why = ""): void {
  sessionStorage.removeItem(keyName);
  choose("");
  session.value = null;
  self.value = null;
  signedOut.value = why;
}

function headers(body: boolean): Record<string, string> {
  const h: Record<string, string> = {};
  const s = session.value;
  if (s?.key) h["X-API-Key"] = s.key;
  if (s?.form) h["Carrel-Form"] = s.form;
  if (project.value) h["Carrel-Tenant"] = project.value;
  if (body) h["Content-Type"] = "application/json";
  return h;
}

/** send makes a request and returns the answer, whatever its status is. */
async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method, headers: headers(body !== undefined), signal, cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (e) {
    if ((e as Error).name === "AbortError") throw e;
    throw new Problem("the daemon does not answer", 0, "unavailable", "is it running? The page tries again by itself");
  }
  if (answer.status === 401 && session.value) {
    const p = await problem(answer);
    leave(p.hint || p.message);
    throw p;
  }
  if (!answer.ok) throw await problem(answer);
  return answer;
}

async function problem(answer: Response): Promise<Problem> {
  const text = await answer.text();
  try {
    const b = JSON.parse(text);
    return new Problem(b.message ?? text, answer.status, b.kind ?? b.code, b.hint ?? "", b.requestID ?? "");
  } catch {
    return new Problem(text || answer.statusText, answer.status);
  }
}

async function json<T>(answer: Response): Promise<T> {
  const text = await answer.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

export const get = async <T>(path: string, signal?: AbortSignal) => json<T>(await send("GET", path, undefined, signal));
export const post = async <T>(path: string, body: unknown = {}) => json<T>(await send("POST", path, body));
export const put = async <T>(path: string, body: unknown) => json<T>(await send("PUT", path, body));
export const patch = async <T>(path: string, body: unknown) => json<T>(await send("PATCH", path, body));
export const del = async (path: string) => { await send("DELETE", path); };

/** lines calls a function for each JSON line of a stream, until it ends. */
export async function lines(path: string, each: (line: any) => void, signal: AbortSignal): Promise<void> {
  const answer = await send("GET", path, undefined, signal);
  const decoder = new TextDecoder();
  let rest = "";
  const reader = answer.body!.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += decoder.decode(value, { stream: true });
    const parts = rest.split("\n");
    rest = parts.pop()!;
    for (const part of parts) if (part.trim()) each(JSON.parse(part));
  }
}

/** follow keeps a stream open until the signal ends it. It begins again after a pause. */
export async function follow(path: () => string, each: (line: any) => void, signal: AbortSignal,
  state?: (live: boolean) => void): Promise<void> {
  for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 10_000)) {
    const began = Date.now();
    try {
      state?.(true);
      await lines(path(), each, signal);
    } catch (e) {
      if (signal.aborted || (e as Problem).status === 401) return;
      if ((e as Problem).status >= 400 && (e as Problem).status < 500) throw e;
    }
    state?.(false);
    if (Date.now() - began > 10_000) wait = 500;
    await new Promise((done) => setTimeout(done, wait));
  }
}

// The guest. Its requests go through the gateway, on the daemon's own port. They carry the sandbox's
// token and nothing else: no cookie goes in, and no cookie of a hostile guest comes out.

function into(box: Sandbox, type?: string): RequestInit {
  const h: Record<string, string> = { "E2b-Sandbox-Id": box.id };
  if (box.accessToken) h["X-Access-Token"] = box.accessToken;
  if (type) h["Content-Type"] = type;
  return { headers: h, credentials: "omit", cache: "no-store" };
}

/** guest calls a method of the guest. */
export async function guest<T>(box: Sandbox, method: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const answer = await fetch("/" + method, { ...into(box, "application/json"), method: "POST", body: JSON.stringify(body), signal });
  if (!answer.ok) throw await problem(answer);
  return json<T>(answer);
}

/** guestStream calls a method that answers with a stream of messages. */
export async function guestStream(box: Sandbox, method: string, body: unknown, each: (m: any) => void | Promise<void>,
  signal: AbortSignal): Promise<void> {
  const raw = new TextEncoder().encode(JSON.stringify(body));
  const frame = new Uint8Array(5 + raw.length);
  new DataView(frame.buffer).setUint32(1, raw.length);
  frame.set(raw, 5);
  const init = into(box, "application/connect+json");
  (init.headers as Record<string, string>)["Connect-Protocol-Version"] = "1";
  const answer = await fetch("/" + method, { ...init, method: "POST", body: frame, signal });
  if (!answer.ok) throw await problem(answer);
  const reader = answer.body!.getReader(), decoder = new TextDecoder();
  let have = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Problem("the stream broke off", 0, "unavailable");
    const joined = new Uint8Array(have.length + value.length);
    joined.set(have);
    joined.set(value, have.length);
    have = joined;
    while (have.length >= 5) {
      const size = new DataView(have.buffer, have.byteOffset).getUint32(1);
      if (have.length < 5 + size) break;
      const message = JSON.parse(decoder.decode(have.subarray(5, 5 + size)));
      const last = (have[0] & 2) !== 0;
      have = have.slice(5 + size);
      if (!last) await each(message); // a slow reader slows the stream down
      else if (message.error) throw new Problem(message.error.message ?? message.error.code, 0, message.error.code);
      else return;
    }
  }
}

/** mostList is how many bytes of a list of files the page holds. */
export const mostList = 24 << 20;

/** listFiles lists a directory. Of a very large one it returns the beginning. */
export async function listFiles<T>(box: Sandbox, path: string, signal: AbortSignal): Promise<{ entries: T[]; whole: boolean }> {
  const answer = await fetch("/filesystem.Filesystem/ListDir", { ...into(box, "application/json"), method: "POST", body: JSON.stringify({ path, depth: 1 }), signal });
  if (!answer.ok) throw await problem(answer);
  const reader = answer.body!.getReader(), decoder = new TextDecoder();
  let text = "", n = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return { entries: JSON.parse(text || "{}").entries ?? [], whole: true };
    text += decoder.decode(value, { stream: true });
    n += value.length;
    if (n > mostList) break;
  }
  void reader.cancel();
  // Entries are cut where one ends. In a name, a quotation mark follows a backslash, so no name looks so.
  const ends = [...text.matchAll(/"\}, ?\{"/g)], end = ends[ends.length - 1]?.index ?? -1;
  return { entries: end < 0 ? [] : JSON.parse(text.slice(0, end) + '"}]}').entries, whole: false };
}

/** readFile returns the beginning of a file. */
export async function readFile(box: Sandbox, path: string, most: number): Promise<{ data: Uint8Array; whole: boolean }> {
  const init = into(box);
  (init.headers as Record<string, string>).Range = `bytes=0-${most - 1}`;
  const answer = await fetch("/files?" + new URLSearchParams({ path }), init);
  if (answer.status === 416) return { data: new Uint8Array(0), whole: true };
  if (!answer.ok) throw await problem(answer);
  const reader = answer.body!.getReader();
  const parts: Uint8Array[] = [];
  let n = 0;
  while (n < most) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    n += value.length;
  }
  void reader.cancel();
  const total = Number((answer.headers.get("Content-Range") ?? "").split("/")[1] || n);
  const data = new Uint8Array(n);
  let at = 0;
  for (const p of parts) { data.set(p, at); at += p.length; }
  return { data, whole: n >= total };
}

/** writeFile replaces a file. */
export async function writeFile(box: Sandbox, path: string, content: Blob): Promise<void> {
  const form = new FormData();
  form.append("file", content, path.split("/").pop());
  const answer = await fetch("/files?" + new URLSearchParams({ path }), { ...into(box), method: "POST", body: form });
  if (!answer.ok) throw await problem(answer);
}

/** fileURL returns an address where a browser saves a file without holding it in memory. It is good
 * for five minutes. "" if this browser can't sign: that needs HTTPS or this very machine. */
export async function fileURL(box: Sandbox, path: string): Promise<string> {
  if (!box.accessToken || !crypto.subtle) return "";
  const ends = Math.floor(Date.now() / 1000) + 300;
  const text = new TextEncoder().encode(`${path}:read::${box.accessToken}:${ends}`);
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", text));
  const signature = "v1_" + btoa(String.fromCharCode(...sum)).replace(/=+$/, "");
  return "/files?" + new URLSearchParams({ path, signature, signature_expiration: String(ends) });
}

/** message is an error's text for people. */
export function explain(e: unknown): { text: string; hint: string } {
  if (e instanceof Problem) return { text: e.message, hint: e.hint };
  return { text: e instanceof Error ? e.message : String(e), hint: "" };
}
