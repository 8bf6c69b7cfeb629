// Mastra's workspace with its sandbox of E2B.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { Agent } from '@mastra/core/agent'
import { Workspace } from '@mastra/core/workspace'
import { E2BSandbox } from '@mastra/e2b'
import { anthropic } from '@ai-sdk/anthropic'
import { Sandbox, Template } from 'e2b'

/** start makes a sandbox that ends with the test. */
async function start(t, options) {
  const sandbox = new E2BSandbox({ template: 'base', ...options })
  t.after(() => sandbox.destroy())
  await sandbox.start()
  return sandbox
}

test('commands and files', async (t) => {
  const sandbox = await start(t, { env: { A: 'of the sandbox' } })
  assert.equal((await sandbox.getInfo()).status, 'running')
  const quoted = await sandbox.executeCommand('echo', ['a  b', '$A', ';'])
  assert.deepEqual([quoted.stdout, quoted.exitCode, quoted.success], ['a  b $A ;\n', 0, true])
  await sandbox.writeFiles([
    { path: '/tmp/x/text', content: 'hi\n' },
    { path: '/tmp/x/bytes', content: Buffer.from([1, 2, 255]) },
  ])
  const failed = await sandbox.executeCommand('cat /tmp/x/text; wc -c </tmp/x/bytes; printenv A; echo err >&2; exit 4')
  const out = 'hi\n3\nof the sandbox\n'
  assert.equal(failed.stdout, out + out) // @mastra/e2b adds a failed command's output a second time
  assert.equal(failed.stderr, 'err\nerr\n')
  assert.deepEqual([failed.exitCode, failed.success], [4, false])
  const streamed = []
  await sandbox.executeCommand('echo 1; sleep 0.3; echo 2', [], { onStdout: (s) => streamed.push(s) })
  assert.equal(streamed.join(''), '1\n2\n')
  const slow = await sandbox.executeCommand('sleep 100', [], { timeout: 500 })
  assert.equal(slow.success, false)
})

test('processes', async (t) => {
  const sandbox = await start(t)
  const p = await sandbox.processes.spawn('read L; echo got $L; sleep 100')
  assert.ok((await sandbox.processes.list()).some((q) => q.pid === p.pid && q.running))
  await p.sendStdin('word\n')
  for (let i = 0; i < 600 && !p.stdout; i++) await new Promise((r) => setTimeout(r, 50))
  assert.equal(p.stdout, 'got word\n')
  assert.equal(await p.kill(), true)
  const q = await sandbox.processes.spawn('echo end; exit 5')
  assert.equal((await q.wait()).exitCode, 5)
})

test('a stopped sandbox goes on', async (t) => {
  const id = `mastra-${process.pid}`
  const first = await start(t, { id })
  await first.executeCommand('echo kept >/home/user/kept')
  const place = first.e2b.sandboxId
  await first.stop()
  assert.equal((await Sandbox.getInfo(place)).state, 'paused')
  const second = await start(t, { id })
  assert.equal(second.e2b.sandboxId, place)
  assert.equal((await second.executeCommand('cat /home/user/kept')).stdout, 'kept\n')
})

test('a sandbox that died is made again', async (t) => {
  const sandbox = await start(t)
  await Sandbox.kill(sandbox.e2b.sandboxId)
  assert.equal((await sandbox.executeCommand('echo', ['again'])).stdout, 'again\n')
})

test('a template that is built', async (t) => {
  const sandbox = await start(t, { template: Template().fromTemplate('base').runCmd('echo built >/home/user/built') })
  assert.equal((await sandbox.executeCommand('cat /home/user/built')).stdout, 'built\n')
})

test('an agent streams', async (t) => {
  const sandbox = await start(t)
  const agent = new Agent({
    id: 'helper', name: 'helper', instructions: 'You have a computer.', model: anthropic('claude-sonnet-4-5'),
    workspace: new Workspace({ sandbox }),
  })
  const stream = await agent.stream('What does your kernel say when it starts?')
  let said = ''
  for await (const part of stream.textStream) said += part
  assert.match(said, /Starting gVisor[^]*42/)
})
