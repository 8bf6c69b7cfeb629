// The address of the page holds its whole state: the path, and the filters.
import { signal } from "@preact/signals";

const base = "/console";

function here(): { path: string; query: URLSearchParams } {
  return { path: location.pathname.slice(base.length).replace(/\/+$/, "") || "/", query: new URLSearchParams(location.search) };
}

export const place = signal(here());
addEventListener("popstate", () => { place.value = here(); });

/** go opens a page of the console. */
export function go(path: string, replace = false): void {
  history[replace ? "replaceState" : "pushState"](null, "", base + path);
  place.value = here();
}

/** set changes one filter in the address. */
export function set(name: string, value: string): void {
  const q = new URLSearchParams(place.value.query);
  if (value) q.set(name, value);
  else q.delete(name);
  const text = q.toString();
  go(place.value.path + (text && "?" + text), true);
}

/** href is the address of a page of the console. */
export const href = (path: string) => base + path;

/** A click on a link to a page of the console opens it without loading. */
export function clicked(e: MouseEvent): void {
  if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
  const a = (e.target as Element).closest?.("a");
  if (!a || a.target || a.hasAttribute("download") || a.origin !== location.origin) return;
  if (a.pathname !== base && !a.pathname.startsWith(base + "/")) return;
  e.preventDefault();
  go(a.pathname.slice(base.length) + a.search);
}
