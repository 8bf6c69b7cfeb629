// Vercel's AI SDK with tools that are a sandbox of E2B.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { generateText, stepCountIs, streamText, tool } from 'ai'
import { anthropic } from '@ai-sdk/anthropic'
import { Sandbox } from 'e2b'
import { z } from 'zod'

/** shellOf makes a tool that streams a command's output as it comes. */
function shellOf(sandbox) {
  return tool({
    description: 'Runs a command.',
    inputSchema: z.object({ command: z.string() }),
    async *execute({ command }, { abortSignal }) {
      const run = await sandbox.commands.run(command, { background: true })
      abortSignal?.addEventListener('abort', () => run.kill())
      yield { status: 'running' }
      const { stdout, exitCode } = await run.wait().catch((e) => e)
      yield { stdout, exitCode }
    },
  })
}

const ask = (sandbox) => ({
  model: anthropic('claude-sonnet-4-5'), tools: { shell: shellOf(sandbox) }, stopWhen: stepCountIs(5),
  prompt: 'What does your kernel say when it starts?',
})

test('a tool that streams, of a model that streams', async (t) => {
  const sandbox = await Sandbox.create()
  t.after(() => sandbox.kill())
  const result = streamText(ask(sandbox))
  const parts = []
  for await (const part of result.fullStream) parts.push(part)
  assert.deepEqual(parts.filter((p) => p.type === 'tool-error' || p.type === 'error'), [])
  const results = parts.filter((p) => p.type === 'tool-result')
  assert.ok(results.some((p) => p.preliminary && p.output.status === 'running'), JSON.stringify(results))
  assert.match(results.at(-1).output.stdout, /Starting gVisor[^]*42/)
  assert.match(await result.text, /Starting gVisor/)
})

test('two agents at once, each in its own sandbox', async (t) => {
  const sandboxes = await Promise.all([Sandbox.create(), Sandbox.create()])
  t.after(() => Promise.all(sandboxes.map((s) => s.kill())))
  const answers = await Promise.all(sandboxes.map((s) => generateText(ask(s))))
  for (const { text, steps } of answers) {
    assert.equal(steps.length, 2)
    assert.match(text, /Starting gVisor/)
  }
})
