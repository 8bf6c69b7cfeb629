// Terminals: input, size, reconnect, end.
import assert from 'node:assert/strict'
import { before, test } from 'node:test'
import { create, until } from './lib.mjs'

let sandbox
before(async () => { sandbox = await create() })

const encode = (s) => new TextEncoder().encode(s)

/** open starts a terminal and collects what it shows. */
async function open(opts = {}) {
  const screen = { text: '' }
  const decoder = new TextDecoder()
  const handle = await sandbox.pty.create({
    cols: 80, rows: 24, timeoutMs: 60_000, ...opts,
    onData: (d) => { screen.text += decoder.decode(d, { stream: true }) },
  })
  return { handle, screen }
}

test('a shell on a terminal', async () => {
  const { handle, screen } = await open({ envs: { MARK: 'yes' } })
  await sandbox.pty.sendInput(handle.pid, encode('echo "mark=$MARK" $((6 * 7)); tty >/dev/null && echo on-a-tty\n'))
  await until('the answer', () => screen.text.includes('mark=yes 42'))
  await until('the tty', () => /\r\non-a-tty/.test(screen.text))
  await sandbox.pty.sendInput(handle.pid, encode('exit\n'))
  assert.equal((await handle.wait()).exitCode, 0)
})

test('its size is set and changed', async () => {
  const { handle, screen } = await open({ cols: 101, rows: 31 })
  await sandbox.pty.sendInput(handle.pid, encode('stty size\n'))
  await until('the first size', () => screen.text.includes('31 101'))
  await sandbox.pty.resize(handle.pid, { cols: 132, rows: 50 })
  await sandbox.pty.sendInput(handle.pid, encode('stty size\n'))
  await until('the second size', () => screen.text.includes('50 132'))
  assert.equal(await sandbox.pty.kill(handle.pid), true)
})

test('Ctrl-C interrupts the program, not the shell', async () => {
  const { handle, screen } = await open()
  await sandbox.pty.sendInput(handle.pid, encode('sleep 60\n'))
  await until('the sleep', () => screen.text.includes('sleep 60'))
  await new Promise((resolve) => setTimeout(resolve, 500))
  await sandbox.pty.sendInput(handle.pid, Uint8Array.of(3))
  await sandbox.pty.sendInput(handle.pid, encode('echo alive-$((1+1))\n'))
  await until('the shell', () => screen.text.includes('alive-2'))
  await sandbox.pty.kill(handle.pid)
})

test('a terminal is left and found again', async () => {
  const { handle, screen } = await open()
  await sandbox.pty.sendInput(handle.pid, encode('KEPT=here\n'))
  await until('the prompt', () => screen.text.includes('KEPT=here'))
  await handle.disconnect()
  const again = { text: '' }
  const second = await sandbox.pty.connect(handle.pid, { onData: (d) => { again.text += new TextDecoder().decode(d) } })
  await sandbox.pty.sendInput(handle.pid, encode('echo still-$KEPT\n'))
  await until('the variable', () => again.text.includes('still-here'))
  await sandbox.pty.sendInput(handle.pid, encode('exit\n'))
  await second.wait()
})
