// The files of a sandbox: a list, an editor, uploads and downloads.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { close, dialog } from "./actions";
import { explain, fileURL, guest, guestStream, listFiles, mostList, readFile, writeFile } from "./api";
import { place, set } from "./router";
import { bytes, count, moment } from "./text";
import { Empty, fail, Fault, Form, Grid, How, Plain, say, type Column } from "./ui";
import type { Sandbox } from "./types";

interface Entry { name: string; type: string; path: string; size?: string; permissions?: string; owner?: string; modifiedTime?: string; symlinkTarget?: string }

const isDir = (e: Entry) => e.type === "FILE_TYPE_DIRECTORY";
const parentOf = (p: string) => p.replace(/\/+[^/]*$/, "") || "/";
const join = (dir: string, name: string) => (dir === "/" ? "" : dir) + "/" + name;
const maxEdit = 1 << 20;

export function Files({ box }: { box: Sandbox }) {
  const q = place.value.query, dir = q.get("dir") || "/home/user", file = q.get("file") ?? "";
  const [entries, setEntries] = useState<Entry[] | null>(null);
  const [error, setError] = useState<{ text: string; hint: string } | null>(null);
  const [turn, setTurn] = useState(0);
  const [over, setOver] = useState(false);
  const [active, setActive] = useState(-1);
  const [text, setText] = useState("");
  const picker = useRef<HTMLInputElement>(null);
  const [whole, setWhole] = useState(true);
  const took = useRef(0); // how long the last list took, in ms
  const again = () => setTurn((n) => n + 1);

  useEffect(() => {
    const own = new AbortController(), began = Date.now();
    listFiles<Entry>(box, dir, own.signal).then((r) => {
      took.current = Date.now() - began;
      setWhole(r.whole);
      setEntries(r.entries.sort((a, b) => Number(isDir(b)) - Number(isDir(a)) || (a.name < b.name ? -1 : 1)));
      setError(null);
    }, (e) => { if (!own.signal.aborted) { setError(explain(e)); setEntries([]); } });
    return () => own.abort();
  }, [box.id, box.state, dir, turn]);
  useEffect(() => { // changes inside show at once
    const own = new AbortController();
    let timer = 0;
    guestStream(box, "filesystem.Filesystem/WatchDir", { path: dir, recursive: false }, (m) => { if (m.filesystem) timer ||= window.setTimeout(() => { timer = 0; again(); }, Math.max(250, 5 * took.current)); }, own.signal).catch(() => undefined);
    return () => { own.abort(); clearTimeout(timer); };
  }, [box.id, box.state, dir]);

  const shown = useMemo(() => (entries ?? []).filter((e) => !text || e.name.toLowerCase().includes(text.toLowerCase())), [entries, text]);
  const open = (e: Entry) => { if (isDir(e)) { set("file", ""); set("dir", e.path); setActive(-1); setText(""); } else set("file", e.path); };
  const upload = async (list: FileList | File[]) => {
    for (const f of list) {
      try { await writeFile(box, join(dir, f.name), f); say(`Uploaded ${f.name}`); } catch (e) { fail(e); }
    }
    again();
  };
  const download = async (e: Entry) => {
    try {
      let url = await fileURL(box, e.path);
      if (!url) url = URL.createObjectURL(new Blob([(await readFile(box, e.path, 1 << 30)).data as BlobPart]));
      const a = document.createElement("a");
      a.href = url;
      a.download = e.name;
      a.click();
    } catch (x) { fail(x); }
  };
  const remove = (e: Entry) => {
    dialog.value = <Form title={"Delete " + e.name} action="Delete" fields={[]} close={close}
      run={async () => { await guest(box, "filesystem.Filesystem/Remove", { path: e.path }); if (file === e.path) set("file", ""); again(); }}>
      <p>{isDir(e) ? "The directory and everything in it is deleted." : "The file is deleted."} A snapshot from before still has it.</p></Form>;
  };
  const ask = (title: string, action: string, value: string, run: (name: string) => Promise<unknown>) => {
    dialog.value = <Form title={title} action={action} close={close} fields={[{ name: "name", label: "Name", required: true, value }]} run={async (v) => { await run(v.name); again(); }} />;
  };
  const columns: Column<Entry>[] = [
    { id: "name", title: "Name", width: "minmax(140px, 1fr)", cell: (e) => <button class="link file" onClick={() => open(e)}><span class={"kind " + (isDir(e) ? "dir" : e.symlinkTarget ? "ln" : "doc")} aria-hidden="true" /><Plain title={e.path}>{e.name + (isDir(e) ? "/" : "")}</Plain></button> },
    { id: "size", title: "Size", width: "76px", right: true, cell: (e) => <span class="num">{isDir(e) ? "" : bytes(Number(e.size ?? 0))}</span> },
    { id: "time", title: "Changed", width: "118px", cell: (e) => <span class="num">{moment(e.modifiedTime).replace(/:\d\d$/, "")}</span> },
    { id: "act", title: "", width: "176px", right: true, cell: (e) => <span class="rowacts">
      {!isDir(e) && <button class="quiet small" aria-label={"Save " + e.name} onClick={() => void download(e)}>Save</button>}
      <button class="quiet small" aria-label={"Rename " + e.name} onClick={() => ask("Rename " + e.name, "Rename", e.name, (n) => guest(box, "filesystem.Filesystem/Move", { source: e.path, destination: join(dir, n) }))}>Rename</button>
      <button class="quiet small" aria-label={"Delete " + e.name} onClick={() => remove(e)}>Delete</button></span> },
  ];
  const parts = dir.split("/").filter(Boolean);
  return <div class={"files" + (file ? " split" : "") + (over ? " over" : "")}
    onDragOver={(e) => { e.preventDefault(); setOver(true); }} onDragLeave={() => setOver(false)}
    onDrop={(e) => { e.preventDefault(); setOver(false); if (e.dataTransfer) void upload(e.dataTransfer.files); }}>
    <section aria-label="Files">
      <div class="filters">
        <nav class="crumbs" aria-label="Directory"><button class="link" onClick={() => set("dir", "/")}>/</button>
          {parts.map((p, i) => <button key={i} class="link" onClick={() => set("dir", "/" + parts.slice(0, i + 1).join("/"))}><Plain>{p}</Plain><span class="muted">/</span></button>)}</nav>
        <input type="search" class="short" aria-label="Find in this directory" placeholder="Find here" value={text} onInput={(e) => setText(e.currentTarget.value)} />
        {dir !== "/" && <button onClick={() => set("dir", parentOf(dir))}>Up</button>}
        <button onClick={() => ask("New file", "Create", "", (n) => writeFile(box, join(dir, n), new Blob([])).then(() => set("file", join(dir, n))))}>New file</button>
        <button onClick={() => ask("New directory", "Create", "", (n) => guest(box, "filesystem.Filesystem/MakeDir", { path: join(dir, n) }))}>New directory</button>
        <button onClick={() => picker.current?.click()}>Upload</button>
        <input ref={picker} type="file" multiple hidden aria-label="Files to upload" onChange={(e) => { void upload([...e.currentTarget.files!]); e.currentTarget.value = ""; }} />
      </div>
      <Fault of={error} />
      {entries === null ? <div class="empty muted">Loading…</div>
        : shown.length ? <Grid label={"Files in " + dir} rows={shown} columns={columns} id={(e) => e.path} open={open} active={active} setActive={setActive} />
        : !error && <Empty title="Nothing here">Drop files here to upload them.</Empty>}
      {!whole && <p class="muted pad" role="status">Only the first {count(entries?.length ?? 0)} entries are shown: the list is longer than {bytes(mostList)}. A terminal sees all.</p>}
      <How cli={`carrel cp ${box.id}:${file || dir} .`} api={`GET /files?path=${file || dir}  (E2b-Sandbox-Id: ${box.id})`} />
    </section>
    {file && <Content key={file} box={box} path={file} close={() => set("file", "")} />}
  </div>;
}

/** The content of a file: an editor for texts, and a picture for pictures. */
function Content({ box, path, close: shut }: { box: Sandbox; path: string; close: () => void }) {
  const ref = useRef<HTMLDivElement>(null);
  const editor = useRef<{ text: () => string; close: () => void } | null>(null);
  const [note, setNote] = useState("Loading…");
  const [error, setError] = useState<{ text: string; hint: string } | null>(null);
  const [dirty, setDirty] = useState(false);
  const [image, setImage] = useState("");
  const name = path.split("/").pop()!;
  const save = async () => {
    if (!editor.current) return;
    try { await writeFile(box, path, new Blob([editor.current.text()])); setDirty(false); say("Saved " + name); } catch (e) { fail(e); }
  };
  useEffect(() => {
    let gone = false, url = "";
    void (async () => {
      try {
        const { data, whole } = await readFile(box, path, maxEdit);
        if (gone) return;
        if (/\.(png|jpe?g|gif|webp|bmp|ico)$/i.test(name) && whole) {
          setImage(url = URL.createObjectURL(new Blob([data as BlobPart])));
          setNote("");
          return;
        }
        if (data.subarray(0, 8192).includes(0)) { setNote("This is no text. Save it to look at it."); return; }
        const { edit } = await import("./editor");
        if (gone || !ref.current) return;
        editor.current = edit(ref.current, name, new TextDecoder().decode(data), !whole, () => void save(), () => setDirty(true));
        setNote(whole ? "" : `Only the first ${bytes(maxEdit)} are shown, and they can't be changed here.`);
      } catch (e) { if (!gone) { setError(explain(e)); setNote(""); } }
    })();
    return () => { gone = true; editor.current?.close(); if (url) URL.revokeObjectURL(url); };
  }, [box.id, path]);
  return <section class="content" aria-label={"Content of " + name}>
    <header><span class="mono grow"><Plain>{path}</Plain>{dirty && " •"}</span>
      <button class="primary" disabled={!dirty} onClick={() => void save()}>Save</button><button class="quiet icon" aria-label="Close the file" onClick={shut}>×</button></header>
    {note && <p class="muted pad">{note}</p>}<Fault of={error} />
    {image && <img src={image} alt={name} />}
    <div class="editor" ref={ref} />
  </section>;
}
