// The loud neighbour: it fills its quota, asks for more all the time, and tries what it knows of the
// other project. The two meet in a directory.
import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
const { Sandbox } = await import(process.env.SDK ?? 'e2b')

const dir = process.argv[2]
const template = process.env.TEMPLATE ?? 'base'
const opts = { metadata: { who: 'loud' }, timeoutMs: 120_000 }
const until = async (name) => {
  for (let i = 0; i < 600 && !existsSync(join(dir, name)); i++) await sleep(50)
  return readFileSync(join(dir, name), 'utf8')
}

const made = await Promise.allSettled(Array.from({ length: 12 }, () => Sandbox.create(template, { ...opts, requestTimeoutMs: 60_000 })))
const mine = made.filter((m) => m.status === 'fulfilled').map((m) => m.value)
assert.equal(mine.length, 3, 'exactly the quota is made')
for (const m of made.filter((m) => m.status === 'rejected')) {
  assert.equal(m.reason.name, 'RateLimitError', `${m.reason}`)
  assert.match(m.reason.message, /project "loud" may have 3 sandboxes alive at once and has 3/)
}
writeFileSync(join(dir, 'full'), '')

// The storm lasts until the other one has done its work.
let refused = 0
const storm = Array.from({ length: 4 }, async () => {
  while (!existsSync(join(dir, 'done'))) {
    await Sandbox.create(template, { ...opts, requestTimeoutMs: 20_000 }).then(
      () => assert.fail('more than the quota'),
      (err) => { assert.equal(err.name, 'RateLimitError', `${err}`); refused++ },
    )
    await sleep(20)
  }
})
const theirs = await until('theirs')
assert.notEqual(theirs, '')
for (const attempt of [
  () => Sandbox.connect(theirs),
  () => Sandbox.setTimeout(theirs, 1_000),
  () => Sandbox.getInfo(theirs),
  () => Sandbox.create(theirs),
]) {
  await assert.rejects(attempt, (err) => /NotFound|not found|doesn't exist|404|RateLimit/i.test(`${err.name} ${err.message}`))
}
assert.equal(await Sandbox.kill(theirs), false, 'it kills what is not its own')
const pages = Sandbox.list()
const seen = []
while (pages.hasNext) seen.push(...(await pages.nextItems()))
assert.deepEqual(seen.map((s) => s.sandboxId).sort(), mine.map((s) => s.sandboxId).sort())
await Promise.all(storm)
assert.ok(refused > 0)
console.log(`${refused} refused`)
await Promise.all(mine.map((s) => s.kill()))
