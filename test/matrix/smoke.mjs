// A round through the calls of one version of E2B's JavaScript SDK. SDK is the package's directory.
// Calls that a version does not have yet are left out, and named in the output.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const require = createRequire(process.env.SDK + '/')
const { Sandbox, CommandExitError } = await import(pathToFileURL(require.resolve('e2b')).href)
const missing = []
const has = (of, name) => typeof of?.[name] === 'function' || (missing.push(name), false)
const opts = { timeoutMs: 120_000 }

const s = await Sandbox.create('base', { ...opts, metadata: { made: 'by the matrix' }, envs: { WORD: 'hello' } })
try {
  assert.equal((await s.commands.run('echo $WORD; echo bad >&2')).stdout, 'hello\n')
  await assert.rejects(s.commands.run('exit 3'), (e) => e instanceof CommandExitError && e.exitCode === 3)
  const cat = await s.commands.run('cat', { background: true, stdin: true })
  await s.commands.sendStdin(cat.pid, 'typed\n')
  assert((await s.commands.list()).some((p) => p.pid === cat.pid))
  if (has(s.commands, 'closeStdin')) assert.equal((await s.commands.closeStdin(cat.pid), await cat.wait()).stdout, 'typed\n')
  else assert(await s.commands.kill(cat.pid))
  const sleeper = await s.commands.run('sleep 100', { background: true })
  const again = await s.commands.connect(sleeper.pid)
  assert(await again.kill())

  const seen = []
  const watch = await s.files.watchDir('.', (e) => seen.push(e.name))
  await s.files.write('a.txt', 'text of a')
  assert.equal(await s.files.read('a.txt'), 'text of a')
  await s.files.write([{ path: 'b.txt', data: 'b' }, { path: 'd/c.txt', data: 'c' }])
  assert(await s.files.makeDir('made'))
  await s.files.rename('b.txt', 'made/b.txt')
  assert.deepEqual((await s.files.list('made')).map((e) => e.name), ['b.txt'])
  if (has(s.files, 'getInfo')) assert.equal((await s.files.getInfo('a.txt')).name, 'a.txt')
  await s.files.remove('a.txt')
  assert.equal(await s.files.exists('a.txt'), false)
  await watch.stop()
  assert(seen.includes('a.txt'))

  let screen = ''
  const pty = await s.pty.create({ cols: 80, rows: 24, onData: (d) => (screen += new TextDecoder().decode(d)) })
  await s.pty.resize(pty.pid, { cols: 100, rows: 30 })
  await s.pty.sendInput(pty.pid, new TextEncoder().encode('stty size; exit\n'))
  await pty.wait().catch(() => {})
  assert.match(screen, /30 100/)

  await s.setTimeout(150_000)
  assert.equal((await s.getInfo()).metadata.made, 'by the matrix')
  assert(await s.isRunning())
  let pages = Sandbox.list()
  const items = pages.nextItems ? await pages.nextItems() : await pages
  assert(items.some((i) => i.sandboxId === s.sandboxId))
  if (has(s, 'getMetrics')) assert(Array.isArray(await s.getMetrics()))
  if (has(s, 'updateNetwork')) await s.updateNetwork({ denyOut: ['8.8.8.8'] })
  if (has(s, 'createSnapshot')) {
    const snap = await s.createSnapshot()
    const copy = await Sandbox.create(snap.snapshotId, opts)
    assert.equal(await copy.files.read('d/c.txt'), 'c')
    await copy.kill()
    assert(await Sandbox.deleteSnapshot(snap.snapshotId))
  }
  if (has(Sandbox, 'fork')) {
    const [fork] = await s.fork({ count: 1, timeoutMs: 60_000 })
    assert(fork instanceof Sandbox, `${fork}`)
    await fork.kill()
  }
  const pause = s.pause ? 'pause' : 'betaPause'
  await s[pause]()
  const back = await Sandbox.connect(s.sandboxId, opts)
  assert.equal(await back.files.read('d/c.txt'), 'c')
} finally {
  assert(await s.kill())
}
console.log(missing.length ? `without ${missing.join(', ')}` : 'all calls')
