// ComputeSDK with its provider for E2B.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { compute } from 'computesdk'
import { e2b } from '@computesdk/e2b'

compute.setConfig({ provider: e2b({ apiKey: process.env.E2B_API_KEY }) })

/** create makes a sandbox that ends with the test. */
async function create(t, options) {
  const sandbox = await compute.sandbox.create(options)
  t.after(() => sandbox.destroy())
  return sandbox
}

test('commands', async (t) => {
  const sandbox = await create(t, { envs: { WORD: 'kept' }, metadata: { of: 'computesdk' } })
  const ran = await sandbox.runCommand('echo out $WORD; echo err >&2; exit 3')
  assert.deepEqual([ran.stdout, ran.stderr, ran.exitCode], ['out kept\n', 'err\n', 3])
  const there = await sandbox.runCommand('printenv PWD A', { cwd: '/tmp', env: { A: 'b c' } })
  assert.equal(there.stdout, '/tmp\nb c\n')
  const slow = await sandbox.runCommand('sleep 100', { timeout: 500 })
  assert.notEqual(slow.exitCode, 0)
  assert.ok(slow.durationMs < 60_000)
})

test('a command in the background outlives its request', async (t) => {
  const sandbox = await create(t)
  await sandbox.runCommand(`sh -c 'sleep 1; echo done >/tmp/late'`, { background: true })
  const again = await compute.sandbox.getById(sandbox.sandboxId)
  const wait = 'for i in $(seq 300); do test -s /tmp/late && break; sleep 0.1; done; cat /tmp/late'
  assert.equal((await again.runCommand(wait)).stdout, 'done\n')
})

test('sandboxes are found, listed and destroyed', async (t) => {
  const sandbox = await create(t)
  const ids = (await compute.sandbox.list()).map((s) => s.sandboxId)
  assert.ok(ids.includes(sandbox.sandboxId), `${sandbox.sandboxId} is not in ${ids}`)
  await sandbox.destroy()
  assert.equal(await compute.sandbox.getById(sandbox.sandboxId), null)
  assert.equal((await sandbox.runCommand('true')).exitCode, 127)
})

test('files', async (t) => {
  const { filesystem } = await create(t)
  await filesystem.mkdir('/tmp/dir/in')
  await filesystem.writeFile('/tmp/dir/größe.txt', 'grüß\n')
  assert.equal(await filesystem.readFile('/tmp/dir/größe.txt'), 'grüß\n')
  assert.equal(await filesystem.exists('/tmp/dir/größe.txt'), true)
  const entries = (await filesystem.readdir('/tmp/dir')).map((e) => [e.name, e.size])
  assert.deepEqual(entries.find(([name]) => name === 'größe.txt'), ['größe.txt', 7])
  assert.equal(entries.length, 2)
  await filesystem.remove('/tmp/dir')
  assert.equal(await filesystem.exists('/tmp/dir'), false)
  await assert.rejects(filesystem.readFile('/tmp/dir/größe.txt'))
})

test('a snapshot makes another sandbox', async (t) => {
  const sandbox = await create(t)
  await sandbox.filesystem.writeFile('/home/user/kept', 'before')
  const { id } = await compute.snapshot.create(sandbox.sandboxId, { name: 'computesdk' })
  await sandbox.filesystem.writeFile('/home/user/kept', 'after')
  const next = await create(t, { snapshotId: id })
  assert.equal(await next.filesystem.readFile('/home/user/kept'), 'before')
})

test('what is wrong is told', async () => {
  await assert.rejects(compute.sandbox.create({ templateId: 'no-such-template' }), /no-such-template/)
})
