// The demo's main job, through E2B's own SDK: upload data, run code on it with
// streamed output, download what it wrote.
//
//   node demo.mjs OUT_DIR     (E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY are set)
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Sandbox } from 'e2b'

const out = process.argv[2]
const here = import.meta.dirname
const since = (t) => `${(performance.now() - t).toFixed(0)} ms`

await (await Sandbox.create('base')).kill() // the first one warms the page cache

let t = performance.now()
const sandbox = await Sandbox.create('base', { timeoutMs: 120_000, metadata: { demo: 'birdstrikes' }, allowInternetAccess: false })
const first = await sandbox.commands.run('echo "hello from $(hostname), user $(whoami)"')
console.log(`created ${sandbox.sandboxId} and ran a first command in ${since(t)}`)
console.log(`  ${first.stdout.trim()}`)

t = performance.now()
const csv = await readFile(join(here, 'birdstrikes.csv'))
await sandbox.files.write([
  { path: 'birdstrikes.csv', data: csv.buffer.slice(csv.byteOffset, csv.byteOffset + csv.byteLength) },
  { path: 'analyse.py', data: await readFile(join(here, 'analyse.py'), 'utf8') },
])
console.log(`uploaded ${csv.length} bytes of wildlife strike reports in ${since(t)}`)

t = performance.now()
console.log('analysing, output streamed as it is written:')
await sandbox.commands.run('python3 analyse.py', { onStdout: (s) => process.stdout.write(s) })
console.log(`  done in ${since(t)}`)

for (const name of ['report.txt', 'strikes.svg']) {
  await writeFile(join(out, name), await sandbox.files.read(name))
}
console.log(`downloaded report.txt and strikes.svg to ${out}`)

// What an agent gone wrong would try.
const probe = await sandbox.commands.run(
  'cat /root/.ssh/* /home/*/.bash_history 2>/dev/null | wc -c; ' +
  'timeout 3 bash -c "echo > /dev/tcp/203.0.113.9/80" 2>/dev/null && echo reached || echo "no way out"; ' +
  'rm -rf /usr/bin/python3 && (python3 --version 2>&1 || true) | tail -1', { user: 'root' })
const [secrets, way, gone] = probe.stdout.trim().split('\n')
console.log('what an agent gone wrong would find:')
console.log(`  bytes of somebody's secrets: ${secrets}`)
console.log(`  a connection to the internet: ${way}`)
console.log(`  after rm -rf /usr/bin/python3 inside: ${gone}`)
console.log(`sandbox ${sandbox.sandboxId}`)
