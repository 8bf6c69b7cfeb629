// What happens to a sandbox by itself: pausing at its timeout, waking on a request.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SandboxError, bootId, create, get, real, sleep, until } from './lib.mjs'

const pauses = { onTimeout: 'pause' }
const wakes = { onTimeout: 'pause', autoResume: true }

/** expire lets the sandbox's timeout pass, and waits until it is shown as paused. */
async function expire(sandbox) {
  await sandbox.setTimeout(1000)
  await until('the sandbox to be paused', async () => (await sandbox.getInfo()).state === 'paused', 30_000)
}

test('resuming gives the timeout asked for, and connecting again only extends it', async () => {
  const sandbox = await create()
  await sandbox.pause()
  await sandbox.connect({ timeoutMs: 200_000 })
  const left = async () => (await sandbox.getInfo()).endAt - Date.now()
  const first = await left()
  assert.ok(first > 150_000 && first <= 201_000, `${first} ms left`)
  await sandbox.connect({ timeoutMs: 5_000 })
  assert.ok(await left() > 100_000, 'a shorter timeout does not shorten its life')
  await sandbox.connect({ timeoutMs: 400_000 })
  assert.ok(await left() > 350_000, 'a longer one prolongs it')
})

test('auto-pause lost on reconnect: it stays', async () => {
  const sandbox = await create({ lifecycle: pauses })
  assert.deepEqual((await sandbox.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
  await sandbox.files.write('first.txt', '1')
  const boot = await bootId(sandbox)
  await expire(sandbox)
  await sandbox.connect()
  assert.deepEqual((await sandbox.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
  await sandbox.files.write('second.txt', '2')
  await expire(sandbox)
  await sandbox.connect()
  assert.equal(await sandbox.files.read('first.txt') + await sandbox.files.read('second.txt'), '12')
  assert.equal(await bootId(sandbox), boot)
})

test('auto-pause without memory', { skip: !real && 'sim keeps files, not memory' }, async () => {
  const sandbox = await create({ lifecycle: { onTimeout: { action: 'pause', keepMemory: false } } })
  await sandbox.files.write('kept.txt', 'kept')
  const boot = await bootId(sandbox)
  await expire(sandbox)
  await sandbox.connect()
  assert.equal(await sandbox.files.read('kept.txt'), 'kept')
  assert.notEqual(await bootId(sandbox), boot)
})

test('auto-resume: the first request wakes it and has the right answer', { skip: !real && 'nothing listens in sim' }, async () => {
  const sandbox = await create({ lifecycle: wakes })
  await sandbox.files.write('kept.txt', 'kept')
  await sandbox.files.write('page/index.html', 'a page')
  await sandbox.commands.run('cd page && exec python3 -m http.server 3000', { background: true, timeoutMs: 0 })
  await until('the server', async () => (await get(sandbox, 3000)).status === 200)
  const requests = {
    'files.read': async () => assert.equal(await sandbox.files.read('kept.txt'), 'kept'),
    'files.write': async () => assert.equal((await sandbox.files.write('new.txt', 'new')).path, '/home/user/new.txt'),
    'commands.run': async () => assert.equal((await sandbox.commands.run('cat kept.txt')).stdout, 'kept'),
    'a visitor of a port': async () => assert.equal(await (await get(sandbox, 3000)).text(), 'a page'),
    'ten of them': async () => {
      const pages = await Promise.all(Array.from({ length: 10 }, async () => (await get(sandbox, 3000)).text()))
      assert.deepEqual(pages, Array(10).fill('a page'))
    },
  }
  for (const [what, request] of Object.entries(requests)) {
    assert.equal(await sandbox.pause(), true, what)
    await request()
    assert.equal((await sandbox.getInfo()).state, 'running', what)
  }
})

test('without auto-resume no request wakes it', async () => {
  const sandbox = await create({ lifecycle: pauses })
  await sandbox.pause()
  await assert.rejects(sandbox.files.read('/etc/hostname'))
  const answer = await get(sandbox, 3000)
  assert.equal(answer.status, 502)
  assert.equal((await answer.json()).sandboxId, sandbox.sandboxId)
  await sleep(300)
  assert.equal((await sandbox.getInfo()).state, 'paused')
})

test('auto-resume does not boot afresh what was paused without memory', async () => {
  const sandbox = await create({ lifecycle: wakes })
  await sandbox.files.write('kept.txt', 'kept')
  await sandbox.pause({ keepMemory: false })
  assert.equal(await sandbox.isRunning(), false)
  assert.equal((await get(sandbox, 3000)).status, 502)
  await assert.rejects(sandbox.commands.run('true'), SandboxError)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  await sandbox.connect()
  assert.equal(await sandbox.files.read('kept.txt'), 'kept')
})
