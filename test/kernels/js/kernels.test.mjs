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
  const shown = await sandbox.runCode('\n{ [Symbol.for("Jupyter.display")]() { return { "text/html": "<b>" } } }\n',
    { language: 'ts' })
  assert.equal(shown.results[0]?.html, '<b>')
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

test('an interpreter that is killed starts again', async () => {
  const s = await Sandbox.create({ timeoutMs: 300_000 })
  const all = '[g]uest interpreter' // the brackets keep it from its own shell
  const kills = {
    // The kernel's parent is the interpreter. The client's connection ends with it, or its request does.
    'a cell': () => s.runCode('import os, signal; os.kill(os.getppid(), signal.SIGKILL)', { timeoutMs: 20_000 }),
    'a cell, by the name': () => s.runCode(`!pkill -f "${all}"`, { timeoutMs: 20_000 }),
    'the user, by the name': () => s.commands.run(`pkill -f "${all}"`),
    'root, by the name': () => s.commands.run(`pkill -9 -f "${all}"`, { user: 'root' }),
  }
  try {
    for (const [who, kill] of Object.entries(kills)) {
      await s.runCode('v = 1')
      const before = (await s.commands.run(`pgrep -f "${all}"`)).stdout
      await kill().catch(() => {})
      const began = Date.now()
      let e
      while (!e && Date.now() - began < 60_000) {
        e = await s.runCode('"v" in globals()').catch(() => {})
        if (!e) await new Promise((resolve) => setTimeout(resolve, 200))
      }
      assert.equal(e?.text, 'False', who)
      console.log(`killed by ${who}: a cell runs after ${Date.now() - began} ms`)
      assert.notEqual((await s.commands.run(`pgrep -f "${all}"`)).stdout, before, who)
      // The old kernel went with its interpreter.
      const kernels = await s.commands.run('pgrep -fc carrel_kernel.py')
      assert.equal(kernels.stdout.trim(), '1', who)
    }
  } finally {
    await s.kill()
  }
})

test('pictures of Pillow are results', async () => {
  const e = await sandbox.runCode(
    'from PIL import Image\ni = Image.new("RGB", (4, 4)); i.show(); i.save("p.png")\ni')
  assert.deepEqual(e.results.map((r) => r.png?.slice(0, 5)), ['iVBOR', 'iVBOR', 'iVBOR'])
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

test('a page calls a sandbox that is closed to the public', async () => {
  const s = await Sandbox.create({ timeoutMs: 300_000, network: { allowPublicTraffic: false } })
  try {
    assert.ok(s.trafficAccessToken)
    const page = { 'E2b-Sandbox-Id': s.sandboxId, 'E2b-Sandbox-Port': '49999', Origin: 'https://page.example.com',
      'Sec-Fetch-Site': 'cross-site' }
    const call = (headers) => fetch(process.env.E2B_SANDBOX_URL + '/execute', { method: 'POST',
      body: JSON.stringify({ code: '6*7' }), headers: { ...page, 'Content-Type': 'application/json', ...headers } })
    const token = { 'E2B-Traffic-Access-Token': s.trafficAccessToken }
    const mine = { 'X-Access-Token': s.envdAccessToken ?? '' }
    for (const headers of [{}, mine, { 'E2B-Traffic-Access-Token': 'guessed', ...mine }]) {
      const r = await call(headers)
      assert.ok(r.status === 401 || r.status === 403, `${Object.keys(headers)}: ${r.status}`)
      assert.doesNotMatch(await r.text(), /"text"/) // an ID may have any digits
    }
    // The traffic token opens the port; a cell needs the sandbox's own token as well.
    assert.equal((await call(token)).status, 401)
    // What a page can send without asking first: a form.
    assert.equal((await call({ ...token, ...mine, 'Content-Type': 'text/plain' })).status, 415)
    const r = await call({ ...token, ...mine })
    assert.equal(r.status, 200)
    assert.match(await r.text(), /"text":"42"/)
    // A browser adds nothing of its user's, whichever site asks.
    assert.equal(r.headers.get('access-control-allow-credentials'), null)
    assert.equal((await s.runCode('6*7')).text, '42')
  } finally {
    await s.kill()
  }
})

// api calls a route of the daemon that the package has no call for.
async function api(path, body) {
  const r = await fetch(process.env.E2B_API_URL + path, { method: 'POST', body: JSON.stringify(body),
    headers: { 'Content-Type': 'application/json', 'X-API-Key': process.env.E2B_API_KEY } })
  assert.ok(r.ok, `${path}: ${r.status} ${await r.text()}`)
}

// keep leaves a variable in three kernels of different makes, and returns the context of one.
async function keep(s) {
  const context = await s.createCodeContext({ language: 'python' })
  await s.runCode('v = [1]')
  await s.runCode('v = ["own"]', { context })
  await s.runCode('var v = [1]', { language: 'js' })
  await s.runCode('v=1; f() { echo "$v$1"; }', { language: 'bash' })
  return context
}

// more adds to each variable and returns all.
async function more(s, context, x) {
  const [own, py, js, sh] = await Promise.all([s.runCode(`v.append(${x}); v`, { context }),
    s.runCode(`v.append(${x}); v`), s.runCode(`v.push(${x}); v.join()`, { language: 'js' }),
    s.runCode(`v=$v,${x}; f`, { language: 'bash' })])
  for (const e of [own, py, js, sh]) assert.equal(e.error, undefined)
  return [own.text, py.text, js.text, sh.logs.stdout.join('')]
}

const all = (...xs) => [`['own', ${xs.join(', ')}]`, `[1, ${xs.join(', ')}]`, [1, ...xs].join(), `1,${xs.join()}\n`]

test('variables live through a pause, in each fork and in a copy of a snapshot', { skip: !memory }, async () => {
  const s = await Sandbox.create({ timeoutMs: 300_000 })
  const made = []
  try {
    const context = await keep(s)
    await s.pause()
    const again = await Sandbox.connect(s.sandboxId)
    assert.deepEqual(await more(again, context, 2), all(2))
    const forks = await again.fork({ count: 2, timeoutMs: 300_000 })
    for (const f of forks) {
      assert.ok(f instanceof Sandbox, f)
      made.push(f)
    }
    const snapshot = await again.createSnapshot()
    made.push(await Sandbox.create(snapshot.snapshotId, { timeoutMs: 300_000 }))
    // Each goes on with what it was given, and none sees what another one adds.
    const got = await Promise.all(made.map((f, i) => more(f, context, 10 + i)))
    assert.deepEqual(got, made.map((_, i) => all(2, 10 + i)))
    assert.deepEqual(await more(again, context, 3), all(2, 3))
    assert.deepEqual(await more(made[0], context, 4), all(2, 10, 4))
  } finally {
    await Promise.all([s, ...made].map((f) => f.kill()))
  }
})

test('a rollback takes variables back to what they were', { skip: !memory }, async () => {
  const s = await Sandbox.create({ timeoutMs: 300_000 })
  try {
    const context = await keep(s)
    await more(s, context, 2)
    const { snapshotId } = await s.createSnapshot()
    await more(s, context, 3)
    const late = await s.createCodeContext()
    await api(`/carrel/v1/sandboxes/${s.sandboxId}/rollback`, { to: snapshotId })
    assert.deepEqual(await more(s, context, 4), all(2, 4))
    // What was made after the snapshot is not there.
    await assert.rejects(s.runCode('1', { context: late }), NotFoundError)
  } finally {
    await s.kill()
  }
})

test('a fork does not disturb the cell that runs, which ends in the fork', { skip: !memory }, async () => {
  const s = await Sandbox.create({ timeoutMs: 300_000 })
  let fork
  try {
    let began
    const on = new Promise((resolve) => { began = resolve })
    const cell = s.runCode('import time\nprint("on", flush=True)\nfor n in range(40): time.sleep(0.1)\nn',
      { onStdout: () => began() })
    await on;
    [fork] = await s.fork({ count: 1, timeoutMs: 300_000 })
    assert.ok(fork instanceof Sandbox, fork)
    // Its client is the first sandbox's. In the fork nobody waits for it, so it is interrupted there.
    const there = await fork.runCode('n < 39')
    assert.equal(there.text, 'True')
    assert.equal((await cell).text, '39')
  } finally {
    await Promise.all([s, fork].map((f) => f?.kill()))
  }
})

test('without memory in snapshots there are files, and kernels that start empty', { skip: memory }, async () => {
  const s = await Sandbox.create({ timeoutMs: 300_000 })
  const made = []
  // fresh checks one sandbox that goes on from a moment of s.
  const fresh = async (f, want) => {
    assert.equal((await f.runCode('open("kept").read()')).text, want)
    assert.equal((await f.runCode('v')).error?.name, 'NameError')
  }
  try {
    await s.runCode('v = 1; open("kept", "w").write("of before")')
    await s.pause()
    const again = await Sandbox.connect(s.sandboxId)
    await fresh(again, 'of before')
    await again.runCode('v = 2')
    const forks = await again.fork({ count: 2, timeoutMs: 300_000 })
    for (const f of forks) {
      assert.ok(f instanceof Sandbox, f)
      made.push(f)
    }
    const { snapshotId } = await again.createSnapshot()
    await Promise.all(made.map((f) => fresh(f, 'of before')))
    // The sandbox that was forked goes on, with its variables.
    assert.equal((await again.runCode('v')).text, '2')
    await again.runCode('open("kept", "w").write("of later")')
    await api(`/carrel/v1/sandboxes/${s.sandboxId}/rollback`, { to: snapshotId })
    await fresh(s, 'of before')
  } finally {
    await Promise.all([s, ...made].map((f) => f.kill()))
  }
})
