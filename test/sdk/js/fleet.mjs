// A sandbox's life at a front, by E2B's own client, in two parts with a machine's death in between:
//
//   node fleet.mjs make       makes a sandbox, uses it, pauses it, and prints its ID and its counter
//   node fleet.mjs resume ID  resumes it by its ID alone, and prints its counter
//
// test/k8s runs it.
import assert from 'node:assert/strict'
import { CommandExitError, Sandbox } from 'e2b'

// The counter is in the memory of a process, and the note is on a tmpfs: neither is in a file on a disk.
const counter = 'i=1000; while :; do i=$((i+1)); echo $i >/dev/shm/count.new; mv /dev/shm/count.new /dev/shm/count; sleep 0.05; done'
const text = 'ünïcödé\n'.repeat(1000)

async function count(sandbox) {
  return Number((await sandbox.commands.run('cat /dev/shm/count')).stdout)
}

async function make() {
  const sandbox = await Sandbox.create('base', { timeoutMs: 600_000 })
  const result = await sandbox.commands.run('echo out; echo err >&2')
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
  await assert.rejects(sandbox.commands.run('exit 42'), (err) => err instanceof CommandExitError && err.exitCode === 42)
  await sandbox.files.write('/home/user/kept/text', text)
  assert.equal(await sandbox.files.read('/home/user/kept/text'), text)
  await sandbox.commands.run('mount | grep "/dev/shm .*tmpfs" || grep " /dev/shm tmpfs" /proc/mounts')
  await sandbox.files.write('/dev/shm/note', 'in memory')
  await sandbox.commands.run(counter, { background: true, timeoutMs: 0 })
  await sandbox.commands.run('until [ -s /dev/shm/count ]; do sleep 0.02; done')
  const before = await count(sandbox)
  await sandbox.pause()
  return { id: sandbox.sandboxId, count: before }
}

async function resume(id) {
  const sandbox = await Sandbox.connect(id, { timeoutMs: 600_000 })
  assert.equal(await sandbox.files.read('/dev/shm/note'), 'in memory')
  assert.equal(await sandbox.files.read('/home/user/kept/text'), text)
  const first = await count(sandbox)
  await sandbox.commands.run('old=$(cat /dev/shm/count); while [ "$(cat /dev/shm/count)" = "$old" ]; do sleep 0.02; done')
  return { id, count: first }
}

const [what, id] = process.argv.slice(2)
console.log(JSON.stringify(await (what === 'make' ? make() : resume(id))))
