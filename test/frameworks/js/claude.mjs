// A sandbox with Claude Code, from the template that docs/with/claude-code.md makes.
import { Sandbox, Secret } from 'e2b'

export const placeholder = 'added-on-the-wire'

/** create makes a sandbox that may reach the vendor's API, with the key on the wire or without. */
export async function create(t, { withKey }) {
  const host = 'api.anthropic.com'
  const headers = withKey ? { 'X-Api-Key': Secret.fill('anthropic') } : { 'X-Other': 'a header' }
  const rules = { [host]: [{ transform: { headers } }] }
  const sandbox = await Sandbox.create('claude-code', {
    envs: { ANTHROPIC_API_KEY: placeholder }, timeoutMs: 900_000,
    network: { allowOut: [host], denyOut: ['0.0.0.0/0'], rules },
  })
  t.after(() => sandbox.kill())
  return sandbox
}
