// Without the rule, the vendor's API gets what the sandbox has: no key.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { create } from './claude.mjs'

test('no rule, no key', async (t) => {
  const sandbox = await create(t, { withKey: false })
  // It tries again for minutes when it is refused.
  const command = `CLAUDE_CODE_MAX_RETRIES=0 timeout 60 claude -p 'Say hello.'`
  const claude = await sandbox.commands.run(command, { timeoutMs: 200_000 }).catch((e) => e)
  assert.ok(claude.exitCode > 0, JSON.stringify(claude))
})
