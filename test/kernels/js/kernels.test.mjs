// The unmodified npm package against the template code-interpreter-v1. MEMORY says whether the tier
// keeps memory in a snapshot.
import { after, before, test } from 'node:test'
import assert from 'node:assert/strict'
import { stripVTControlCharacters } from 'node:util'
import { Sandbox, NotFoundError, TimeoutError } from '@e2b/code-interpreter'

const memory = process.env.MEMORY === 'true'
let sandbox
before(async () => { sandbox = await Sandbox.create({ timeoutMs: 300_000, envs: { FROM_CREATE: 'c' } }) })
after(() => sandbox?.kill())

test('state stays, the last expression is the result', async () => {
  await sandbox.runCode('x = 1')
  const e = await sandbox.runCode('x += 1; x')
  assert.equal(e.text, '2')
  assert.equal(e.results[0].isMainResult, true)
  assert.ok(e.executionCount >= 2)
})

test('output is streamed', async () => {
  const seen = []
  const e = await sandbox.runCode(
    'import sys, time\nprint("a"); sys.stdout.flush(); time.sleep(0.3); print("b", file=sys.stderr); "c"',
    { onStdout: (m) => seen.push(m.line), onStderr: (m) => seen.push(m.line), onResult: (r) => seen.push(r.text) })
  assert.deepEqual(seen, ['a\n', 'b\n', 'c'])
  assert.deepEqual(e.logs, { stdout: ['a\n'], stderr: ['b\n'] })
})

test('errors have name, value and traceback', async () => {
  let called
  const e = await sandbox.runCode('def f(): return nope\nf()', { onError: (err) => { called = err } })
  assert.equal(e.error.name, 'NameError')
  assert.match(e.error.value, /nope/)
  assert.match(stripVTControlCharacters(e.error.traceback), /f\(\)/)
  assert.equal(called.name, 'NameError')
  assert.equal((await sandbox.runCode('1')).error, undefined)
})

test('environment of the sandbox and of one cell', async () => {
  const code = 'import os; (os.environ.get("FROM_CREATE"), os.environ.get("ONE"))'
  assert.equal((await sandbox.runCode(code, { envs: { ONE: '1' } })).text, "('c', '1')")
  assert.equal((await sandbox.runCode(code)).text, "('c', None)")
  const bash = await sandbox.runCode('echo $FROM_CREATE $ONE', { language: 'bash', envs: { ONE: '2' } })
  assert.deepEqual(bash.logs.stdout, ['c 2\n'])
})

test('every form of a result', async () => {
  const e = await sandbox.runCode(`
from IPython.display import display, HTML, Markdown, Latex, JSON, Javascript, SVG
display(HTML('<b>h</b>')); display(Markdown('*m*')); display(Latex('$l$'))
display(JSON({'j': [1]})); display(Javascript('1')); display(SVG('<svg xmlns="http://www.w3.org/2000/svg"/>'))
display({'text/plain': 'p', 'application/x-own': 'o'}, raw=True)`)
  assert.equal(e.error, undefined)
  const [html, markdown, latex, json, javascript, svg, own] = e.results
  assert.equal(html.html, '<b>h</b>')
  assert.equal(markdown.markdown, '*m*')
  assert.equal(latex.latex, '$l$')
  assert.deepEqual(json.json, { j: [1] })
  assert.equal(javascript.javascript, '1')
  assert.match(svg.svg, /<svg/)
  assert.equal(own.text, 'p')
  assert.equal(own.raw.extra['application/x-own'], 'o')
})

test('a table and a chart have data', async () => {
  const t = await sandbox.runCode('import pandas as pd; pd.DataFrame({"a": [1, 2], "b": ["x", None]})')
  assert.deepEqual(t.results[0].data, { a: [1, 2], b: ['x', null] })
  assert.match(t.results[0].html, /<table/)
  const c = await sandbox.runCode(`
import matplotlib.pyplot as plt
plt.bar(['one', 'two'], [1, 2], label='n'); plt.title('t'); plt.xlabel('x'); plt.ylabel('y (kg)'); plt.show()`)
  const { chart, png } = c.results[0]
  assert.equal(Buffer.from(png, 'base64').subarray(1, 4).toString(), 'PNG')
  assert.equal(chart.type, 'bar')
  assert.equal(chart.y_unit, 'kg')
  assert.deepEqual(chart.elements, [
    { label: 'one', group: 'n', value: 1 }, { label: 'two', group: 'n', value: 2 }])
})

test('other languages', async () => {
  assert.equal((await sandbox.runCode('const y = await Promise.resolve(20); y + 1', { language: 'js' })).text, '21')
  assert.equal((await sandbox.runCode('y + 2', { language: 'javascript' })).text, '22')
  const ts = await sandbox.runCode('const n: number = 4; n * 2', { language: 'ts' })
  assert.equal(ts.error, undefined)
  assert.equal(ts.text, '8')
  assert.deepEqual((await sandbox.runCode('cd /; pwd', { language: 'bash' })).logs.stdout, ['/\n'])
  await assert.rejects(sandbox.runCode('1', { language: 'cobol' }), /400/)
})

test('contexts', async () => {
  const context = await sandbox.createCodeContext({ cwd: '/tmp', language: 'python' })
  assert.equal(context.cwd, '/tmp')
  await sandbox.runCode('z = 5', { context })
  assert.equal((await sandbox.runCode('z', { context })).text, '5')
  assert.equal((await sandbox.runCode('import os; os.getcwd()', { context })).text, '/tmp')
  assert.equal((await sandbox.runCode('z')).error.name, 'NameError')
  assert.ok((await sandbox.listCodeContexts()).some((c) => c.id === context.id))
  await sandbox.restartCodeContext(context)
  assert.equal((await sandbox.runCode('z', { context })).error.name, 'NameError')
  await sandbox.removeCodeContext(context)
  await assert.rejects(sandbox.runCode('1', { context }), NotFoundError)
  await assert.rejects(sandbox.removeCodeContext('00000000-0000-0000-0000-000000000000'), NotFoundError)
})

test('a client that leaves interrupts its cell', async () => {
  await sandbox.runCode('kept = 1')
  await assert.rejects(sandbox.runCode('while True: pass', { timeoutMs: 1_000 }), TimeoutError)
  assert.equal((await sandbox.runCode('kept')).text, '1')
})

test('a kernel that dies is an error, and the next cell runs', async () => {
  const e = await sandbox.runCode('import os; os._exit(3)')
  assert.equal(e.error.name, 'KernelDied')
  assert.match(e.error.value, /status 3/)
  assert.equal((await sandbox.runCode('1+1')).text, '2')
})

test('the sandbox\'s files', async () => {
  await sandbox.files.write('/home/user/f.txt', 'from files')
  assert.equal((await sandbox.runCode('open("f.txt").read()')).text, 'from files')
  assert.equal((await sandbox.runCode('import getpass; getpass.getuser()')).text, 'user')
})

test('a cell needs the access token', async () => {
  const call = (headers) => fetch(process.env.E2B_SANDBOX_URL + '/execute', {
    method: 'POST', body: JSON.stringify({ code: '1' }),
    headers: { 'Content-Type': 'application/json', 'E2b-Sandbox-Id': sandbox.sandboxId, 'E2b-Sandbox-Port': '49999', ...headers },
  })
  assert.equal((await call({})).status, 401)
  assert.equal((await call({ 'X-Access-Token': 'wrong' })).status, 401)
  assert.equal((await call({ 'Content-Type': 'text/plain' })).status, 415)
})

test('variables live through a pause and in each fork', { skip: !memory }, async () => {
  const s = await Sandbox.create({ timeoutMs: 300_000 })
  try {
    await s.runCode('v = [1]')
    await s.pause()
    const again = await Sandbox.connect(s.sandboxId)
    assert.equal((await again.runCode('v.append(2); v')).text, '[1, 2]')
    const snapshot = await again.createSnapshot()
    const forks = await Promise.all([3, 4].map(() => Sandbox.create(snapshot.snapshotId, { timeoutMs: 300_000 })))
    try {
      const texts = await Promise.all(forks.map(async (f, i) => (await f.runCode(`v.append(${i}); v`)).text))
      assert.deepEqual(texts, ['[1, 2, 0]', '[1, 2, 1]'])
      assert.equal((await again.runCode('v')).text, '[1, 2]')
    } finally {
      await Promise.all(forks.map((f) => f.kill()))
    }
  } finally {
    await s.kill()
  }
})
