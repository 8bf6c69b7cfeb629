// Texts for people: times, sizes, policies as YAML, differences.

export function age(from: string | number, now = Date.now()): string {
  const s = Math.max(0, Math.floor((now - new Date(from).getTime()) / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + String(Math.floor((s % 3600) / 60)).padStart(2, "0");
  return Math.floor(s / 86400) + " d";
}

export const clock = (t: string) => new Date(t).toLocaleTimeString(undefined, { hour12: false });
export const moment = (t?: string) => (!t || t.startsWith("0001-") ? "–" : new Date(t).toLocaleString(undefined, {
  hour12: false, month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" }));

export function bytes(n?: number): string {
  if (n === undefined || n < 0) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + units[i];
}

export const count = (n: number) => n.toLocaleString("en").replaceAll(",", "\u202f");
/** seconds of a duration in nanoseconds, for people. */
export function span(ns?: number): string {
  if (!ns) return "–";
  const s = ns / 1e9;
  return s < 60 ? +s.toFixed(1) + " s" : s < 3600 ? +(s / 60).toFixed(1) + " min" : +(s / 3600).toFixed(1) + " h";
}

/** visible makes characters visible that would change how a text looks or reads. */
export const visible = (s: string) => s.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
  (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

/** quote makes one word for a shell. */
export const quote = (s: string) => (/^[\w@%+=:,./-]+$/.test(s) ? s : "'" + s.replaceAll("'", `'\\''`) + "'");

const plain = /^[A-Za-z_/][\w ./-]*$|^\d+(\.\d+){3}(\/\d+)?$/;
const special = /^(true|false|null|yes|no|on|off|~)$/i;
const scalar = (v: unknown) => typeof v === "string"
  ? (plain.test(v) && !special.test(v) && v.trim() === v ? v : JSON.stringify(v)) : String(v);

/** yaml writes a value, in the form of the documentation's policies. */
export function yaml(v: unknown, indent = ""): string {
  if (Array.isArray(v)) {
    return v.map((item) => {
      if (item === null || typeof item !== "object") return `${indent}- ${scalar(item)}\n`;
      return indent + "- " + yaml(item, indent + "  ").slice(indent.length + 2);
    }).join("");
  }
  return Object.entries(v as Record<string, unknown>).map(([k, x]) => {
    if (x === undefined || x === null || (Array.isArray(x) && !x.length)) return "";
    if (Array.isArray(x) && x.every((i) => i === null || typeof i !== "object")) return `${indent}${scalar(k)}: [${x.map(scalar).join(", ")}]\n`;
    if (typeof x === "object") return `${indent}${scalar(k)}:\n${yaml(x, indent + "  ")}`;
    return `${indent}${scalar(k)}: ${scalar(x)}\n`;
  }).join("");
}

export interface DiffLine { sign: " " | "+" | "-"; text: string }

/** difference compares two texts by line. */
export function difference(before: string, after: string): DiffLine[] {
  const a = before.split("\n"), b = after.split("\n");
  if (a.at(-1) === "") a.pop();
  if (b.at(-1) === "") b.pop();
  let same = 0; // lines at the beginning; most texts differ in a few places only
  while (same < a.length && same < b.length && a[same] === b[same]) same++;
  const head = a.splice(0, same).map((text) => ({ sign: " " as const, text }));
  b.splice(0, same);
  const tail: DiffLine[] = [];
  while (a.length && b.length && a.at(-1) === b.at(-1)) { tail.push({ sign: " ", text: a.pop()! }); b.pop(); }
  return [...head, ...compare(a, b), ...tail.reverse()];
}

function compare(a: string[], b: string[]): DiffLine[] {
  if (a.length * b.length > 4_000_000) return [...a.map((text) => ({ sign: "-" as const, text })), ...b.map((text) => ({ sign: "+" as const, text }))];
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  const out: DiffLine[] = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { out.push({ sign: " ", text: a[i++] }); j++; }
    else if (i < a.length && (j >= b.length || longest[i + 1][j] >= longest[i][j + 1])) out.push({ sign: "-", text: a[i++] });
    else out.push({ sign: "+", text: b[j++] });
  }
  return out;
}
