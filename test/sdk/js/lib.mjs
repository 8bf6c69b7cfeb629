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
export async function until(what, condition, limit = 60_000) {
  const end = Date.now() + limit
  for (;;) {
    const value = await condition()
    if (value) return value
    if (Date.now() > end) throw new Error(`waited ${limit} ms for: ${what}`)
    await sleep(50)
  }
}

/** get asks a port of the sandbox, the way a browser or a webhook would. */
export function get(sandbox, port, headers = {}) {
  if (hosts) return fetch(`https://${sandbox.getHost(port)}/`, { headers })
  return fetch(process.env.E2B_SANDBOX_URL, { headers: { 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': `${port}`, ...headers } })
}

/** api makes a request of the control plane that no SDK would make. */
export function api(method, path, body, more = {}) {
  const base = process.env.E2B_API_URL ?? `https://api.${process.env.E2B_DOMAIN}`
  return fetch(base + path, {
    method, body: body && JSON.stringify(body), headers: { 'X-API-KEY': process.env.E2B_API_KEY, 'Content-Type': 'application/json', ...more },
  })
}

/** collect keeps every sandbox that it is given for the end, when they are killed. */
export function collect(...sandboxes) {
  made.push(...sandboxes)
  return sandboxes
}

/** bootId tells one life of a machine from another. A simulated one has none to tell. */
export async function bootId(sandbox) {
  if (!real) return 'simulated'
  return (await sandbox.commands.run('cat /proc/sys/kernel/random/boot_id')).stdout
}
