// The SDK's Secret class.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { create, sdk } from './lib.mjs'

const { Secret } = sdk
const canary = 'sk-canary-' + randomBytes(8).toString('hex')
const fresh = (name) => `js-${randomBytes(6).toString('hex')}-${name}`

/** told asserts that what was answered does not have the value. */
function told(answer) {
  assert.ok(!JSON.stringify(answer).includes(canary), 'the value is told')
  return answer
}

test('a secret is kept, told of and destroyed', async () => {
  const name = fresh('Life')
  const made = told(await Secret.create(name, canary, { metadata: { team: 'größe' } }))
  assert.equal(made.name, name.toLowerCase())
  assert.match(made.secretId, /^sec_[a-z0-9]+$/)
  assert.equal(made.version, 1)
  assert.deepEqual(made.metadata, { team: 'größe' })
  assert.ok(Math.abs(made.createdAt - Date.now()) < 600_000, `${made.createdAt}`)
  for (const ref of [made.secretId, name, name.toLowerCase()]) {
    assert.equal(told(await Secret.getInfo(ref)).secretId, made.secretId)
    assert.equal(await Secret.exists(ref), true)
  }
  const second = told(await Secret.update(name, canary + '2'))
  assert.equal(second.version, 2)
  assert.deepEqual(second.metadata, { team: 'größe' })
  const third = told(await Secret.update(made.secretId, canary + '3', { metadata: {} }))
  assert.equal(third.version, 3)
  assert.deepEqual(third.metadata, {})
  assert.equal(await Secret.destroy(made.secretId), true)
  assert.equal(await Secret.destroy(made.secretId), false)
  assert.equal(await Secret.exists(name), false)
})

test('what is not there and what is wrong', async () => {
  const name = fresh('wrong')
  await assert.rejects(Secret.getInfo(name), sdk.SecretNotFoundError)
  await assert.rejects(Secret.update(name, canary), sdk.SecretNotFoundError)
  for (const bad of ['', 'sec_mine', 'a b', '../x', 'x'.repeat(129)]) {
    await assert.rejects(Secret.create(bad, canary), (e) => told(e.message) && e instanceof sdk.SecretError, bad)
  }
  await assert.rejects(Secret.create(name, ''), sdk.SecretError)
  await assert.rejects(Secret.create(name, canary.repeat(5000)), (e) => told(e.message) && e instanceof sdk.SecretError)
  await assert.rejects(Secret.create(name, canary, { metadata: { k: 'v'.repeat(1025) } }), sdk.SecretError)
  await Secret.create(name, canary)
  await assert.rejects(Secret.create(name.toUpperCase(), canary), (e) => /already/.test(e.message) && e instanceof sdk.SecretError)
  await Secret.destroy(name)
})

test('lists come page by page, sorted', async () => {
  const names = ['c', 'a', 'b', 'e', 'd'].map((n) => fresh(n))
  await Promise.all(names.map((n) => Secret.create(n, canary)))
  const found = []
  const pages = Secret.list({ limit: 2 })
  while (pages.hasNext) {
    const page = told(await pages.nextItems())
    assert.ok(page.length <= 2)
    found.push(...page.map((s) => s.name))
  }
  assert.deepEqual(found, [...found].sort())
  for (const n of names) assert.ok(found.includes(n), n)
  await Promise.all(names.map((n) => Secret.destroy(n)))
})

test('a sandbox proves who it is', async () => {
  const audience = 'sts.example.com'
  const sandbox = await create({ iam: { tokens: { aws: Secret.iamToken({ audience, tokenType: 'JWT-SVID' }) } } })
  const { stdout } = await sandbox.commands.run('carrel-guest token --name aws')
  const claims = JSON.parse(Buffer.from(stdout.split('.')[1], 'base64url').toString())
  assert.equal(claims.aud, audience)
  assert.match(claims.sub, new RegExp(`^spiffe://.*/sandbox/${sandbox.sandboxId}$`))
  await assert.rejects(sandbox.commands.run('carrel-guest token --name other'), (e) => /no such token/.test(e.stderr))
  await assert.rejects(create({ iam: { tokens: { x: Secret.iamToken({ audience, tokenType: 'OTHER' }) } } }), /tokenType/)
})
