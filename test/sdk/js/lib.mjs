// What every test file needs: the SDK under test, and sandboxes that end with it.
//
// SDK names the package ("e2b" or "e2b-2.45"); the E2B_* variables say where the
// daemon is. TEMPLATE is the template to use ("base" or "sim").
import { after } from 'node:test'

export const sdkName = process.env.SDK ?? 'e2b'
export const sdk = await import(sdkName)
export const { Sandbox, CommandExitError, NotFoundError, TimeoutError, SandboxError } = sdk
export const template = process.env.TEMPLATE ?? 'base'
export const hosts = process.env.E2B_DOMAIN !== undefined // host-name routing with TLS
export const real = template !== 'sim' // real processes, python, coreutils

const made = []

/** create makes a sandbox that is killed after the file's tests. */
export async function create(opts = {}) {
  const sandbox = await Sandbox.create(template, { timeoutMs: 120_000, ...opts })
  made.push(sandbox)
  return sandbox
}

after(async () => {
  await Promise.all(made.map((s) => s.kill().catch(() => {})))
})

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

/** until waits for a condition, at most limit milliseconds. */
export async function until(what, condition, limit = 10_000) {
  const end = Date.now() + limit
  for (;;) {
    const value = await condition()
    if (value) return value
    if (Date.now() > end) throw new Error(`waited ${limit} ms for: ${what}`)
    await sleep(50)
  }
}
