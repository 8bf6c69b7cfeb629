// What may leave a sandbox. Outside there are api.example.com, other.example.com and
// www.example.net, which tell what they were asked (values of headers backwards), and a
// SOCKS5 proxy.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sandbox, create, get, real, sdk, sdkName, until } from './lib.mjs'

const { ALL_TRAFFIC } = sdk

/** ask makes a request inside and returns what the site tells, or the exit code of curl. */
async function ask(sandbox, url, options = '') {
  const r = await sandbox.commands.run(`curl -sS --max-time 30 ${options} ${url} || echo "exit $?"`)
  return r.stdout.startsWith('{') ? JSON.parse(r.stdout) : r.stdout + r.stderr
}

/** refused says whether a request came to nothing, and fast. */
async function refused(sandbox, url) {
  const before = Date.now()
  const answer = await ask(sandbox, url)
  assert.ok(Date.now() - before < 25_000, 'it hung')
  return typeof answer === 'string'
}

const header = (told, name) => [...(told.headers[name] ?? '')].reverse().join('')

test('internet access on, off, and by default', async () => {
  for (const [options, open] of [[{}, true], [{ allowInternetAccess: true }, true], [{ allowInternetAccess: false }, false]]) {
    const sandbox = await create(options)
    if (open) assert.equal((await ask(sandbox, 'http://www.example.net/x')).host, 'www.example.net')
    else assert.ok(await refused(sandbox, 'http://www.example.net/x'))
    for (const never of ['http://169.254.169.254/latest/meta-data/', 'http://10.0.0.1/', 'http://127.0.0.1:1/']) {
      const answer = await ask(sandbox, never)
      assert.ok(!answer.host, `${never} answered`)
    }
  }
})

test('allowOut by name, denyOut of all traffic', async () => {
  const sandbox = await create({ network: { allowOut: ['api.example.com', '*.example.net'], denyOut: [ALL_TRAFFIC] } })
  assert.equal((await ask(sandbox, 'http://api.example.com/one')).path, '/one')
  assert.equal((await ask(sandbox, 'https://api.example.com/two', '-k')).tls, true)
  assert.equal((await ask(sandbox, 'https://www.example.net/', '-k')).host, 'www.example.net')
  assert.ok(await refused(sandbox, 'http://other.example.com/'))
  assert.ok(await refused(sandbox, 'https://other.example.com/ -k'))
  assert.ok(await refused(sandbox, 'http://203.0.113.10/'))
  const info = await sandbox.getInfo()
  assert.deepEqual(info.network.allowOut, ['api.example.com', '*.example.net'])
  assert.deepEqual(info.network.denyOut, [ALL_TRAFFIC])
})

test('allowOut and denyOut by address, and as callbacks', async () => {
  const sandbox = await create({ network: { denyOut: ['203.0.113.10'] } })
  assert.equal((await ask(sandbox, 'http://api.example.com/')).host, 'api.example.com')
  assert.ok(await refused(sandbox, 'http://other.example.com/'))
  const other = await create({ network: { denyOut: ({ allTraffic }) => [allTraffic], allowOut: ['203.0.113.8/31'] } })
  assert.equal((await ask(other, 'http://203.0.113.9/')).host, '203.0.113.9')
  assert.ok(await refused(other, 'http://203.0.113.10/'))
})

test('rules put headers in, and open nothing', async () => {
  const sandbox = await create({
    network: {
      allowOut: ({ rules }) => [...rules.keys()],
      denyOut: [ALL_TRAFFIC],
      rules: { 'api.example.com': [{ transform: { headers: { 'X-Added': 'by the wire', 'User-Agent': 'changed/1' } } }] },
    },
  })
  // No option: the sandbox trusts the wire.
  const told = await ask(sandbox, 'https://api.example.com/', '-H "X-Added: by the program"')
  assert.equal(header(told, 'x-added'), 'by the wire')
  assert.equal(header(told, 'user-agent'), 'changed/1')
  assert.ok(await refused(sandbox, 'https://other.example.com/ -k'))
  const info = await sandbox.getInfo()
  assert.equal(info.network.rules['api.example.com'][0].transform.headers['X-Added'], 'by the wire')
  const closed = await create({
    network: { denyOut: [ALL_TRAFFIC], rules: { 'api.example.com': [{ transform: { headers: { 'X-Added': 'x' } } }] } },
  })
  assert.ok(await refused(closed, 'https://api.example.com/ -k'))
})

test('a server that repeats what rules put in', async () => {
  const headers = { 'X-Api-Key': 'a-key-in-the-clear', Authorization: 'Bearer in-the-clear-too', Cookie: 'session=in-the-clear' }
  const sandbox = await create({
    network: { allowOut: ['api.example.com'], denyOut: [ALL_TRAFFIC], rules: { 'api.example.com': [{ transform: { headers } }] } },
  })
  const { echo } = await ask(sandbox, 'https://api.example.com/')
  for (const [name, value] of Object.entries(headers)) assert.equal(echo[name.toLowerCase()], value)
})

test('rules for a host and port, as getHost has them', async () => {
  const rule = [{ transform: { headers: { 'X-Added': 'by the wire' } } }]
  const server = await create()
  const host = server.getHost(3000)
  const sandbox = await create({
    network: { allowOut: ({ rules }) => [...rules.keys()], denyOut: [ALL_TRAFFIC], rules: { [host]: rule, 'api.example.com:8443': rule } },
  })
  const info = await sandbox.getInfo()
  assert.deepEqual([...info.network.allowOut].sort(), [host, 'api.example.com:8443'].sort())
  assert.equal(info.network.rules[host][0].transform.headers['X-Added'], 'by the wire')
  const told = await ask(sandbox, 'https://api.example.com:8443/')
  assert.equal(header(told, 'x-added'), 'by the wire')
  assert.ok(await refused(sandbox, 'https://api.example.com/ -k'))
})

test('rules put identity tokens in', async () => {
  const sandbox = await create({
    iam: { tokens: { vault: { audience: 'https://vault.example.com', tokenType: 'JWT-SVID' } } },
    network: {
      allowOut: ({ rules }) => [...rules.keys()],
      denyOut: [ALL_TRAFFIC],
      rules: { 'api.example.com': [{ transform: ({ iam }) => ({ headers: { Authorization: `Bearer ${iam.tokens.vault}` } }) }] },
    },
  })
  const given = header(await ask(sandbox, 'https://api.example.com/'), 'authorization')
  assert.match(given, /^Bearer [\w-]+\.[\w-]+\.[\w-]+$/)
  const claims = JSON.parse(Buffer.from(given.split('.')[1], 'base64url'))
  assert.ok([claims.aud].flat().includes('https://vault.example.com'))
  assert.ok(claims.exp * 1000 > Date.now() && claims.exp * 1000 <= Date.now() + 3_600_000)
  assert.ok(claims.sub.includes(sandbox.sandboxId))
  // The program's own way to the same header gets it nowhere: it never sees a token.
  const inside = await sandbox.commands.run('env; cat /proc/*/environ 2>/dev/null | tr "\\0" "\\n"')
  assert.ok(!inside.stdout.includes(given.split(' ')[1]))
})

test('all TCP through a SOCKS5 proxy', async () => {
  const egressProxy = { address: 'proxy.example.com:1080', username: 'user', password: 'password' }
  const sandbox = await create({ network: { allowOut: ['api.example.com'], denyOut: [ALL_TRAFFIC], egressProxy } })
  const told = await ask(sandbox, 'http://api.example.com/through')
  assert.equal(told.path, '/through')
  assert.ok(told.proxied.includes('api.example.com:80'), `${told.proxied}`)
  assert.equal((await ask(sandbox, 'https://api.example.com/', '-k')).tls, true)
  assert.ok(await refused(sandbox, 'http://other.example.com/'))
  const info = await sandbox.getInfo()
  assert.equal(info.network.egressProxy.address, 'proxy.example.com:1080')
  assert.ok(!JSON.stringify(info).includes('"password":"password"'))
  const wrong = await create({ network: { egressProxy: { ...egressProxy, password: 'wrong' } } })
  assert.ok(await refused(wrong, 'https://api.example.com/ -k'))
})

test('updateNetwork changes a running sandbox', async () => {
  const sandbox = await create({ allowInternetAccess: false })
  assert.ok(await refused(sandbox, 'http://api.example.com/'))
  await sandbox.updateNetwork({ allowOut: ['api.example.com'], denyOut: [ALL_TRAFFIC] })
  assert.equal((await ask(sandbox, 'http://api.example.com/')).host, 'api.example.com')
  assert.ok(await refused(sandbox, 'http://other.example.com/'))
  assert.deepEqual((await sandbox.getInfo()).network.allowOut, ['api.example.com'])
  await sandbox.updateNetwork({ allowOut: ['other.example.com'], denyOut: [ALL_TRAFFIC], rules: { 'other.example.com': [{ transform: { headers: { 'X-Now': 'yes' } } }] } })
  assert.equal(header(await ask(sandbox, 'https://other.example.com/'), 'x-now'), 'yes')
  assert.ok(await refused(sandbox, 'http://api.example.com/'))
  await Sandbox.updateNetwork(sandbox.sandboxId, { allowInternetAccess: false })
  assert.ok(await refused(sandbox, 'http://other.example.com/'))
  await Sandbox.updateNetwork(sandbox.sandboxId, { allowInternetAccess: true })
  assert.equal((await ask(sandbox, 'http://www.example.net/')).host, 'www.example.net')
})

test('what is set survives a pause', async () => {
  const sandbox = await create({ network: { allowOut: ['api.example.com'], denyOut: [ALL_TRAFFIC], rules: { 'api.example.com': [{ transform: { headers: { 'X-Kept': 'yes' } } }] } } })
  await (sdkName === 'e2b' ? sandbox.pause() : sandbox.betaPause?.() ?? sandbox.pause())
  const again = await Sandbox.connect(sandbox.sandboxId)
  assert.equal(header(await ask(again, 'https://api.example.com/'), 'x-kept'), 'yes')
  assert.ok(await refused(again, 'http://other.example.com/'))
})

test('what is wrong is refused with the field', async () => {
  for (const network of [{ allowOut: ['exa mple.com'] }, { denyOut: ['api.example.com'] }, { allowOut: ['10.0.0.0/99'] },
    { egressProxy: { address: 'no port' } }, { rules: { 'api.example.com': [{ transform: { headers: { 'X-Bad': 'a\r\nX-Evil: b' } } }] } }]) {
    await assert.rejects(create({ network }), undefined, JSON.stringify(network))
  }
})

test('private traffic and a masked host', { skip: !real && 'nothing listens in sim' }, async () => {
  const sandbox = await create({ network: { allowPublicTraffic: false, maskRequestHost: 'masked.example.com:${PORT}' } })
  await sandbox.commands.run('python3 -m http.server 8000', { background: true })
  const token = { 'e2b-traffic-access-token': sandbox.trafficAccessToken }
  await until('the server', async () => (await get(sandbox, 8000, token)).status === 200, 30_000)
  assert.equal((await get(sandbox, 8000)).status, 403)
})
