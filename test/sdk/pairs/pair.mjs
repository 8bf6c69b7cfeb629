// A round through the calls of one version of E2B's npm package for code interpreters, with one version
// of the SDK below it. PAIR is the directory where both are installed. Calls that a version does not
// have are left out, and named in the output.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const require = createRequire(process.env.PAIR + '/')
const { Sandbox } = await import(pathToFileURL(require.resolve('@e2b/code-interpreter')).href)
const missing = []
const has = (of, name) => typeof of?.[name] === 'function' || (missing.push(name), false)

const s = await Sandbox.create({ timeoutMs: 300_000, envs: { FROM_CREATE: 'c' } })
try {
  const seen = []
  const e = await s.runCode('x = 1; print("out"); x + 1', { onStdout: (m) => seen.push(m.line) })
  assert.equal(e.text, '2')
  assert.deepEqual(seen, ['out\n'])
  assert.deepEqual(e.logs.stdout, ['out\n'])
  assert.equal((await s.runCode('x += 1; x')).text, '2')
  assert.equal((await s.runCode('1/0')).error.name, 'ZeroDivisionError')
  const env = await s.runCode('import os; os.environ["FROM_CREATE"] + os.environ["ONE"]', { envs: { ONE: '1' } })
  assert.equal(env.text, 'c1')
  assert.equal((await s.runCode('6 * 7', { language: 'js' })).text, '42')
  const plot = await s.runCode('import matplotlib.pyplot as plt\nplt.bar(["a"], [1]); plt.show()')
  assert.equal(plot.results[0].chart.type, 'bar')
  assert.ok(plot.results[0].png)
  const context = await s.createCodeContext({ cwd: '/tmp' })
  assert.equal((await s.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  if (has(s, 'listCodeContexts')) assert.ok((await s.listCodeContexts()).some((c) => c.id === context.id))
  if (has(s, 'restartCodeContext')) await s.restartCodeContext(context)
  if (has(s, 'removeCodeContext')) await s.removeCodeContext(context)
  await s.files.write('f.txt', 'text')
  assert.equal((await s.runCode('open("f.txt").read()')).text, 'text')
} finally {
  await s.kill()
}
console.log(missing.length ? `all but ${missing.join(', ')}` : 'all')
