// A sandbox's life: create, find, page, connect, time out, kill.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, create, get, template, until, hosts, real, sdkName } from './lib.mjs'

test('create, isRunning, getInfo, kill', async () => {
  const sandbox = await create({ metadata: { purpose: 'life' }, envs: { COLOUR: 'blue' } })
  assert.match(sandbox.sandboxId, /^i[a-z0-9]{20}$/)
  assert.equal(await sandbox.isRunning(), true)
  const info = await sandbox.getInfo()
  assert.equal(info.sandboxId, sandbox.sandboxId)
  assert.equal(info.metadata.purpose, 'life')
  assert.ok(info.startedAt instanceof Date && info.endAt > info.startedAt)
  assert.equal(info.state, 'running')
  assert.equal((await sandbox.commands.run('echo $COLOUR')).stdout, 'blue\n')
  assert.equal(await sandbox.kill(), true)
  assert.equal(await sandbox.isRunning(), false)
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
})

test('a template without an MCP gateway', async () => {
  const metadata = { purpose: `gateway-${Date.now()}` }
  await assert.rejects(create({ metadata, mcp: { any: {} } }), /Failed to start MCP gateway/)
  assert.deepEqual(await Sandbox.list({ query: { metadata } }).nextItems(), [])
})

test('connect by id reaches the same machine', async () => {
  const sandbox = await create()
  await sandbox.files.write('kept.txt', 'kept')
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(again.sandboxId, sandbox.sandboxId)
  assert.equal(await again.files.read('kept.txt'), 'kept')
})

test('a command under way when its sandbox ends says so', async () => {
  const sandbox = await create()
  const command = await sandbox.commands.run('echo ready; sleep 60', { background: true })
  await until('its output', () => command.stdout === 'ready\n')
  await sandbox.kill()
  await assert.rejects(command.wait(), /killed or reached its end of life/)
})

test('ports: TLS behind them, another Host, who may ask', { skip: !real && 'nothing listens in sim' }, async () => {
  const sandbox = await create({ network: { maskRequestHost: 'app.example.com:${PORT}', httpsPorts: [8443], allowPublicTraffic: false } })
  const tls = sdkName === 'e2b' // 2.45 does not know the option
  const make = 'openssl req -x509 -newkey rsa:2048 -keyout /tmp/k -out /tmp/c -days 1 -nodes -subj /CN=localhost 2>&1'
  if (tls) await sandbox.commands.run(make)
  await sandbox.files.write('/tmp/serve.py', `import http.server, ssl, sys
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.headers['Host'].encode())
    def log_message(self, *a): pass
server = http.server.ThreadingHTTPServer(('', int(sys.argv[1])), H)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain('/tmp/c', '/tmp/k')
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
`)
  const token = { 'e2b-traffic-access-token': sandbox.trafficAccessToken }
  for (const [port, args] of tls ? [[8080, ''], [8443, 'tls']] : [[8080, '']]) {
    await sandbox.commands.run(`python /tmp/serve.py ${port} ${args}`, { background: true })
    assert.equal((await get(sandbox, port)).status, 403)
    await until('the server', async () => (await get(sandbox, port, token)).status === 200)
    assert.equal(await (await get(sandbox, port, token)).text(), `app.example.com:${port}`)
  }
})

test('connecting to an unknown sandbox fails clearly', async () => {
  await assert.rejects(Sandbox.connect('iaaaaaaaaaaaaaaaaaaaa'), /not found|doesn't exist|NotFound/i)
})

test('an unknown template fails clearly', async () => {
  await assert.rejects(Sandbox.create('no-such-template'), /no-such-template/)
})

test('timeouts: set, shortened, expired', async () => {
  const sandbox = await create({ timeoutMs: 60_000 })
  await sandbox.setTimeout(120_000)
  const { endAt } = await sandbox.getInfo()
  assert.ok(Math.abs(endAt - Date.now() - 120_000) < 10_000, `ends at ${endAt}`)
  await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 1000 }) // connect only ever extends
  assert.ok((await sandbox.getInfo()).endAt - Date.now() > 60_000)
  await Sandbox.setTimeout(sandbox.sandboxId, 1000)
  await until('the sandbox to expire', async () => !(await sandbox.isRunning()), 15_000)
  await assert.rejects(sandbox.commands.run('true'))
})

test('list filters by metadata, odd characters included', async () => {
  const odd = `k & = % + ä ${Date.now()}`
  const sandbox = await create({ metadata: { odd, 'a key': 'x' } })
  await create({ metadata: { odd: 'another' } })
  const paginator = Sandbox.list({ query: { metadata: { odd } } })
  const found = await paginator.nextItems()
  assert.deepEqual(found.map((s) => s.sandboxId), [sandbox.sandboxId])
  assert.equal(found[0].metadata.odd, odd)
  assert.equal(paginator.hasNext, false)
})

test('list pages, newest first, by state', async () => {
  const batch = `batch-${Date.now()}`
  const ids = []
  for (let i = 0; i < 5; i++) ids.push((await create({ metadata: { batch } })).sandboxId)
  const paginator = Sandbox.list({ limit: 2, query: { metadata: { batch }, state: ['running'] } })
  const seen = []
  let pages = 0
  while (paginator.hasNext) {
    const items = await paginator.nextItems()
    assert.ok(items.length <= 2)
    seen.push(...items.map((s) => s.sandboxId))
    pages++
  }
  assert.equal(pages, 3)
  assert.deepEqual(seen, ids.reverse())
})

test('metrics have the shape of E2B\'s', async () => {
  const sandbox = await create()
  const metrics = await until('metrics', async () => {
    const m = await sandbox.getMetrics()
    return m.length > 0 && m
  })
  for (const field of ['cpuCount', 'cpuUsedPct', 'memUsed', 'memTotal', 'diskUsed', 'diskTotal']) {
    assert.equal(typeof metrics[0][field], 'number', field)
  }
  assert.ok(metrics[0].memTotal > 0 && metrics[0].timestamp instanceof Date)
})

test('a wrong API key is refused', async () => {
  await assert.rejects(Sandbox.create(template, { apiKey: 'e2b_' + '0'.repeat(40) }), /401|unauthorized|api key/i)
})

test('ten at once are ten', async () => {
  const all = await Promise.all(Array.from({ length: 10 }, () => create()))
  const names = await Promise.all(all.map(async (s, i) => {
    await s.files.write('me', String(i))
    return s.files.read('me')
  }))
  assert.deepEqual(names, all.map((_, i) => String(i)))
  assert.equal(new Set(all.map((s) => s.sandboxId)).size, 10)
})

test('a port is reached by its host name', { skip: !hosts && 'header routing has no host names' }, async () => {
  const sandbox = await create()
  await sandbox.commands.run('python3 -m http.server 3000', { background: true })
  const url = `https://${sandbox.getHost(3000)}/`
  const response = await until('the server', async () => {
    const r = await fetch(url)
    return r.status === 200 && r
  })
  assert.match(await response.text(), /Directory listing/)
  const closed = await fetch(`https://${sandbox.getHost(3999)}/`)
  assert.equal(closed.status, 502)
  assert.match((await closed.json()).message, /port is not open/)
})

test('host names hold the id and the port', () => {
  assert.ok(sdkName.startsWith('e2b'))
})
