// Builds the bundle into internal/console/dist, or into the directory that is given. The same
// sources and the same lock file give the same bytes.
import { build } from "esbuild";
import { gzipSync } from "node:zlib";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "..", "internal", "console", "dist");

const result = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.tsx", "src/style.css", "src/icon.svg"],
  loader: { ".svg": "copy" },
  bundle: true,
  splitting: true,
  format: "esm",
  target: ["es2022"],
  minify: true,
  legalComments: "none", // carrel licenses has them
  jsx: "automatic",
  jsxImportSource: "preact",
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  outdir: "out",
  write: false,
  metafile: true,
  logLevel: "warning",
});

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const entries = {};
for (const [name, meta] of Object.entries(result.metafile.outputs)) {
  if (meta.entryPoint === "src/main.tsx") entries.script = basename(name);
  if (meta.entryPoint === "src/style.css") entries.style = basename(name);
  if (name.endsWith(".svg")) entries.icon = basename(name);
}
for (const file of result.outputFiles) {
  const name = relative(join(here, "out"), file.path);
  // No time and no system in the header: equal contents have equal files.
  const packed = gzipSync(file.contents, { level: 9 });
  packed.fill(0, 4, 8);
  packed[9] = 255;
  writeFileSync(join(out, name + ".gz"), packed);
}
// What the first page needs is asked for at once.
const first = new Set();
const walk = (name) => {
  for (const i of result.metafile.outputs[name].imports) {
    if (i.kind === "import-statement" && !first.has(i.path)) {
      first.add(i.path);
      walk(i.path);
    }
  }
};
walk(Object.keys(result.metafile.outputs).find((n) => basename(n) === entries.script));
const preloads = [...first].sort().map((n) =>
  `<link rel="modulepreload" nonce="{{script-nonce}}" href="/console/assets/${basename(n)}">`).join("\n");
const page = readFileSync(join(here, "src", "index.html"), "utf8")
  .replace("{{script}}", entries.script).replace("{{style}}", entries.style).replace("{{icon}}", entries.icon).replace("{{preloads}}", preloads);
writeFileSync(join(out, "index.html"), page);

// What is inside, and under which terms.
const packages = new Set(Object.keys(result.metafile.inputs).map((n) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(n)?.[1]).filter(Boolean));
const licences = [...packages].sort().map((name) => {
  const dir = join(here, "node_modules", name), about = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
  const file = readdirSync(dir).find((f) => /^licen[cs]e/i.test(f));
  if (!file || about.license !== "MIT") throw new Error(`${name}: its licence is ${about.license}, in ${file}`);
  return `${name} ${about.version}\n\n${readFileSync(join(dir, file), "utf8").trim()}\n`;
});
writeFileSync(process.argv[2] ? join(out, "LICENSES.txt") : join(here, "LICENSES.txt"), licences.join("\n----\n\n"));
