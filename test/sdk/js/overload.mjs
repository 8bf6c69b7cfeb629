// One creation that the server refuses: it must end in the SDK's own error of the name
// given, with the server's words.
import assert from 'node:assert/strict'
const sdk = await import(process.env.SDK ?? 'e2b')

await assert.rejects(sdk.Sandbox.create('base'), (err) => {
  assert.equal(err.name, process.argv[2], `${err.name}: ${err.message}`)
  assert.match(err.message, /1000 requests wait/)
  return true
})
