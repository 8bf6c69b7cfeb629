// Snapshots and forks: moments that are kept, and begun from again.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NotFoundError, Sandbox, api, collect, create, real, sleep, template, until } from './lib.mjs'

const counting = 'i=0; while :; do i=$((i+1)); echo $i >/tmp/count; echo tick $i; sleep 0.1; done'
const count = async (sandbox) => Number(await sandbox.files.read('/tmp/count')) || 0

/** begin makes a sandbox from a snapshot. */
async function begin(snapshotId) {
  const [sandbox] = collect(await Sandbox.create(snapshotId, { timeoutMs: 120_000 }))
  return sandbox
}

/** all are the IDs that a paginator finds, page by page. */
async function all(paginator) {
  const ids = []
  while (paginator.hasNext) ids.push(...(await paginator.nextItems()).map((s) => s.snapshotId))
  return ids
}

test('create, list, begin from it, delete', async () => {
  const sandbox = await create()
  await sandbox.files.write('state.txt', 'then')
  const command = await sandbox.commands.run(counting, { background: true, timeoutMs: 0 })
  await until('it to count', async () => command.stdout.includes('tick 3\n'))
  const snapshot = await sandbox.createSnapshot()
  assert.match(snapshot.snapshotId, /^s[a-z0-9]{20}$/)
  assert.deepEqual(snapshot.names, [])

  // The source has gone on without noticing: not even the stream was cut.
  const heard = command.stdout.length
  await until('its stream to go on', () => command.stdout.length > heard + 20)
  await sandbox.files.write('state.txt', 'now')
  assert.deepEqual(await all(sandbox.listSnapshots()), [snapshot.snapshotId])
  assert.deepEqual(await all(Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId })), [snapshot.snapshotId])

  const born = await begin(snapshot.snapshotId)
  assert.notEqual(born.sandboxId, sandbox.sandboxId)
  assert.equal(await born.files.read('state.txt'), 'then')
  if (real) { // a simulated machine's snapshot is its files
    const found = (await born.commands.list()).find((p) => p.pid === command.pid)
    assert.deepEqual(found?.args, ['-l', '-c', counting], 'its processes are there')
    const at = await count(born)
    await until('it to count on', async () => await count(born) > at)
  }
  assert.equal(await sandbox.files.read('state.txt'), 'now')
  await command.kill()

  await sandbox.kill()
  assert.equal(await (await begin(snapshot.snapshotId)).files.read('state.txt'), 'then', 'it outlives its source')
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), true)
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId), false)
  await assert.rejects(Sandbox.create(snapshot.snapshotId), /not found/)
  assert.equal(await born.files.read('state.txt'), 'then', 'what began from it lives on')
})

test('names: they lead to the newest that was given them', async () => {
  const name = `warm-${Date.now()}`
  const sandbox = await create()
  await sandbox.files.write('state.txt', 'one')
  const first = await sandbox.createSnapshot({ name })
  assert.deepEqual([first.snapshotId, first.names], [`${name}:default`, [`${name}:default`]])
  assert.equal(await (await begin(first.snapshotId)).files.read('state.txt'), 'one')
  await sandbox.files.write('state.txt', 'two')
  await sandbox.createSnapshot({ name })
  assert.equal(await (await begin(name)).files.read('state.txt'), 'two')
  const tagged = await sandbox.createSnapshot({ name: `${name}:v2` })
  assert.deepEqual(tagged.names, [`${name}:v2`])
  assert.deepEqual(await all(Sandbox.listSnapshots({ name: `${name}:v2` })), [`${name}:v2`])
  assert.equal(await Sandbox.deleteSnapshot(`${name}:v2`), true)
  assert.deepEqual(await all(Sandbox.listSnapshots({ name: `${name}:v2` })), [])
  await assert.rejects(sandbox.createSnapshot({ name: 'not a name' }), /name/)
})

test('lists page, newest first', async () => {
  const sandbox = await create()
  const ids = []
  for (let i = 0; i < 3; i++) ids.push((await sandbox.createSnapshot()).snapshotId)
  const paginator = sandbox.listSnapshots({ limit: 2 })
  assert.equal((await paginator.nextItems()).length, 2)
  assert.equal(paginator.hasNext, true)
  assert.deepEqual(await all(sandbox.listSnapshots({ limit: 2 })), ids.reverse())
  await assert.rejects(Sandbox.createSnapshot('iaaaaaaaaaaaaaaaaaaaa'), NotFoundError)
})

test('fork: three of one, and each is its own', async () => {
  const sandbox = await create({ envs: { COLOUR: 'blue' } })
  await sandbox.files.write('state.txt', 'warm')
  const command = await sandbox.commands.run(counting, { background: true, timeoutMs: 0 })
  await until('it to count', () => command.stdout.includes('tick 3\n'))
  const { endAt } = await sandbox.getInfo()
  const forks = collect(...await sandbox.fork({ count: 3, timeoutMs: 120_000 }))
  assert.deepEqual(forks.map((f) => f instanceof Sandbox), [true, true, true], String(forks))
  assert.equal(new Set([sandbox, ...forks].map((s) => s.sandboxId)).size, 4)
  assert.deepEqual((await sandbox.getInfo()).endAt, endAt)
  await Promise.all(forks.map(async (fork, i) => {
    assert.equal((await fork.commands.run('cat state.txt; echo " $COLOUR"')).stdout, 'warm blue\n')
    if (real) {
      assert.ok((await fork.commands.list()).some((p) => p.pid === command.pid))
      const at = await count(fork)
      await until('it to count on', async () => await count(fork) > at)
    }
    await fork.files.write('state.txt', `fork ${i}`)
  }))
  const states = await Promise.all([sandbox, ...forks].map((s) => s.files.read('state.txt')))
  assert.deepEqual(states, ['warm', 'fork 0', 'fork 1', 'fork 2'])
  const boots = await Promise.all(forks.map(async (f) => (await f.commands.run('hostname; head -c 16 /dev/urandom | base64')).stdout))
  assert.equal(new Set(boots).size, 3, 'their randomness is their own')
  await forks[0].kill()
  assert.equal(await forks[1].files.read('state.txt'), 'fork 1')
})

test('fork: by ID, one unless asked for more, and none too many', async () => {
  const sandbox = await create()
  const [fork, ...more] = collect(...await Sandbox.fork(sandbox.sandboxId))
  assert.deepEqual(more, [])
  assert.equal((await fork.commands.run('echo alive')).stdout, 'alive\n')
  for (const [count, text] of [[0, 'Count must be at least 1'], [101, 'Count cannot be greater than 100']]) {
    const answer = await api('POST', `/sandboxes/${sandbox.sandboxId}/fork`, { count })
    const { code, message } = await answer.json()
    assert.deepEqual([answer.status, code, message], [400, 400, text])
  }
  await assert.rejects(Sandbox.fork('iaaaaaaaaaaaaaaaaaaaa'), NotFoundError)
})

// No published SDK sends these yet. The form is that of E2B's next ones.
test('fork: the second route, with the files alone', async () => {
  const sandbox = await create()
  await sandbox.files.write('state.txt', 'kept')
  const command = await sandbox.commands.run(counting, { background: true, timeoutMs: 0 })
  await until('it to count', async () => command.stdout.includes('tick 3\n'))
  const answer = await api('POST', `/v2/sandboxes/${sandbox.sandboxId}/fork`, { memory: false })
  assert.equal(answer.status, 201)
  const [{ sandbox: made }] = await answer.json()
  const [fork] = collect(await Sandbox.connect(made.sandboxID, { timeoutMs: 120_000 }))
  assert.equal(await fork.files.read('state.txt'), 'kept')
  assert.deepEqual(await fork.commands.list(), [], 'no process came along')
  const before = command.stdout.length
  await until('the source to count on', async () => command.stdout.length > before)
  const info = await (await api('GET', `/sandboxes/${made.sandboxID}`)).json()
  const life = new Date(info.endAt) - new Date(info.startedAt)
  assert.ok(life > 200_000, `it lives ${life} ms`)
  await command.kill()
})

test('a creation that is sent again makes no second sandbox', async () => {
  const body = { templateID: template, timeout: 60, metadata: { sent: 'twice' } }
  const key = { 'Idempotency-Key': `key-${Date.now()}` }
  const answers = await Promise.all([1, 2, 3].map(() => api('POST', '/v2/sandboxes', body, key)))
  assert.deepEqual(answers.map((a) => a.status), [201, 201, 201])
  const ids = new Set((await Promise.all(answers.map((a) => a.json()))).map((s) => s.sandboxID))
  assert.equal(ids.size, 1)
  collect(await Sandbox.connect([...ids][0]))
  const other = await api('POST', '/v2/sandboxes', { ...body, timeout: 61 }, key)
  assert.equal(other.status, 409)
  assert.equal((await other.json()).error_code, 'idempotency_request_mismatch')
})
