// Pausing and what comes after it: nothing is lost, nobody has to know.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NotFoundError, Sandbox, bootId, create, real, sdkName, until } from './lib.mjs'

const ticking = 'i=0; while :; do echo tick $i; i=$((i+1)); sleep 0.1; done'
const memory = { skip: !real && 'sim keeps files, not memory' }
const decoder = new TextDecoder()
const encode = (s) => new TextEncoder().encode(s)

/** ticks are the numbers that a ticking command has said. */
const ticks = (text) => [...text.matchAll(/tick (\d+)\n/g)].map((m) => Number(m[1]))

test('pause, connect: the same machine goes on', memory, async () => {
  const sandbox = await create({ envs: { COLOUR: 'blue' }, metadata: { kept: 'yes' } })
  await sandbox.files.write('kept.txt', 'kept')
  const boot = await bootId(sandbox)
  assert.equal(await sandbox.pause(), true)
  assert.equal((await sandbox.getInfo()).state, 'paused')
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await sandbox.pause(), false, 'paused already')
  assert.equal(await Sandbox.pause(sandbox.sandboxId), false, 'by ID, too')
  await assert.rejects(sandbox.commands.run('true'))

  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(again.sandboxId, sandbox.sandboxId)
  assert.equal(await again.isRunning(), true)
  const info = await again.getInfo()
  assert.deepEqual([info.state, info.metadata.kept], ['running', 'yes'])
  assert.equal(await again.files.read('kept.txt'), 'kept')
  assert.equal((await again.commands.run('echo $COLOUR')).stdout, 'blue\n')
  assert.equal(await bootId(again), boot)
  assert.equal(await sandbox.files.read('kept.txt'), 'kept', 'the handle from before works on')
})

test('pause, connect: files and settings stay', async () => {
  const sandbox = await create({ envs: { COLOUR: 'blue' }, metadata: { kept: 'yes' } })
  await sandbox.files.write('kept.txt', 'kept')
  await sandbox.commands.run('mkdir -p d && ln -s ../kept.txt d/link && chmod 600 kept.txt')
  assert.equal(await sandbox.pause(), true)
  assert.equal(await sandbox.isRunning(), false)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal((await again.commands.run('cat d/link; stat -c " %a" kept.txt; echo $COLOUR')).stdout, 'kept 600\nblue\n')
  assert.equal((await again.getInfo()).metadata.kept, 'yes')
})

test('isRunning answers while it pauses, too', async () => {
  const sandbox = await create()
  await sandbox.files.write('big', 'x'.repeat(20_000_000)) // so that a pause takes some time
  let paused = false
  const pause = sandbox.pause().then(() => { paused = true })
  const answers = []
  while (!paused) answers.push(await sandbox.isRunning()) // it raises for anything but 2xx and 502
  await pause
  assert.ok(!answers.join().includes('false,true'), `it ran again: ${answers}`)
  assert.equal(await sandbox.isRunning(), false)
})

test('pid not found after resume, stdout stalls: a process is found again and heard', memory, async () => {
  const sandbox = await create()
  const command = await sandbox.commands.run(ticking, { background: true, timeoutMs: 0 })
  await until('its first output', () => ticks(command.stdout).length > 3)
  let last = 0
  for (const cycle of [1, 2]) {
    await sandbox.pause()
    if (cycle === 1) await assert.rejects(command.wait(), (err) => err.message.length > 10 && !/undefined/.test(err.message))
    await sandbox.connect()
    const found = (await sandbox.commands.list()).find((p) => p.pid === command.pid)
    assert.deepEqual(found?.args, ['-l', '-c', ticking], `cycle ${cycle}: it is listed under its pid`)
    let heard = ''
    const attached = await sandbox.commands.connect(command.pid, { onStdout: (s) => { heard += s }, timeoutMs: 0 })
    await until('its output to go on', () => ticks(heard).length >= 15)
    const numbers = ticks(heard)
    assert.ok(numbers[0] > last, `it went on from ${last}: ${numbers}`)
    last = numbers.at(-1)
    for (let i = 1; i < numbers.length; i++) assert.equal(numbers[i], numbers[i - 1] + 1, 'nothing is left out')
    await attached.disconnect()
  }
  assert.equal(await sandbox.commands.kill(command.pid), true)
})

test('what a process writes and reads goes on: standard input and its end', memory, async () => {
  const sandbox = await create()
  const command = await sandbox.commands.run('read a; echo "got $a"; read b; echo "got $b"; exit 3', { background: true, stdin: true })
  await sandbox.commands.sendStdin(command.pid, 'one\n')
  await until('its answer', () => command.stdout === 'got one\n')
  await sandbox.pause()
  await sandbox.connect()
  const attached = await sandbox.commands.connect(command.pid)
  await sandbox.commands.sendStdin(command.pid, 'two\n')
  await assert.rejects(attached.wait(), (err) => err.exitCode === 3 && err.stdout.endsWith('got two\n'))
})

test('a terminal is opened again and typed into', memory, async () => {
  const sandbox = await create()
  let screen = ''
  const opts = { onData: (d) => { screen += decoder.decode(d, { stream: true }) }, timeoutMs: 60_000 }
  const terminal = await sandbox.pty.create({ cols: 80, rows: 24, ...opts })
  await sandbox.pty.sendInput(terminal.pid, encode('cd /tmp; KEPT=here; echo rea""dy\n'))
  await until('the shell', () => screen.includes('ready'))
  await sandbox.pause()
  await sandbox.connect()
  screen = ''
  const again = await sandbox.pty.connect(terminal.pid, opts)
  await sandbox.pty.sendInput(again.pid, encode('echo sti""ll-$KEPT-$PWD; stty size\n'))
  await until('its variable', () => screen.includes('still-here-/tmp') && screen.includes('24 80'))
  await sandbox.pty.kill(again.pid)
})

test('what is under way when it is paused ends, and nothing half done looks whole', memory, async () => {
  const sandbox = await create()
  await sandbox.commands.run('mkdir watched; head -c 100000000 /dev/urandom >big')
  let left
  await sandbox.files.watchDir('watched', () => {}, { onExit: (err) => { left = err } })
  const foreground = assert.rejects(sandbox.commands.run('sleep 300', { timeoutMs: 0 }), /paused/)
  await until('the command', async () => (await sandbox.commands.list()).some((p) => p.args.includes('sleep 300')))
  const reader = (await sandbox.files.read('big', { format: 'stream' })).getReader()
  await reader.read()
  await sandbox.pause()
  await assert.rejects(async () => {
    while (!(await reader.read()).done);
  }, 'a part of the file was taken for all of it')
  await foreground
  await until('the watch to end', () => /paused/.test(left?.message))
  await sandbox.connect()
  assert.ok((await sandbox.commands.list()).some((p) => p.args.includes('sleep 300')), 'the command itself goes on')
})

test('a pause without memory keeps the files and boots afresh', memory, async () => {
  const sandbox = await create({ envs: { COLOUR: 'blue' } })
  await sandbox.files.write('kept.txt', 'kept')
  await sandbox.commands.run('sleep 1000', { background: true, timeoutMs: 0 })
  const boot = await bootId(sandbox)
  assert.equal(await sandbox.betaPause({ keepMemory: false }), true)
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(await again.files.read('kept.txt'), 'kept')
  assert.deepEqual(await again.commands.list(), [])
  assert.equal((await again.commands.run('echo $COLOUR; ps ax | grep -c "[s]leep 1000" || true')).stdout, 'blue\n0\n')
  assert.notEqual(await bootId(again), boot)
})

test('a reboot instead of the memory that there is', { skip: (sdkName !== 'e2b' && 'this SDK has no onResume') || memory.skip }, async () => {
  const sandbox = await create()
  await sandbox.files.write('kept.txt', 'kept')
  const boot = await bootId(sandbox)
  await sandbox.pause()
  const again = await Sandbox.connect(sandbox.sandboxId, { onResume: 'reboot' })
  assert.equal(await again.files.read('kept.txt'), 'kept')
  assert.notEqual(await bootId(again), boot)
})

test('a paused sandbox is listed, filtered by state, killed', async () => {
  const batch = `paused-${Date.now()}`
  const [one, two] = await Promise.all([create({ metadata: { batch } }), create({ metadata: { batch } })])
  await one.pause()
  const list = async (state) => (await Sandbox.list({ query: { metadata: { batch }, state } }).nextItems()).map((s) => [s.sandboxId, s.state]).sort()
  assert.deepEqual(await list(['paused']), [[one.sandboxId, 'paused']])
  assert.deepEqual(await list(['running']), [[two.sandboxId, 'running']])
  assert.deepEqual(await list(undefined), [[one.sandboxId, 'paused'], [two.sandboxId, 'running']].sort())
  assert.equal(await one.kill(), true)
  assert.equal(await one.kill(), false)
  assert.deepEqual(await list(['paused']), [])
  await assert.rejects(Sandbox.connect(one.sandboxId), NotFoundError)
  await assert.rejects(Sandbox.pause(one.sandboxId), NotFoundError)
})
