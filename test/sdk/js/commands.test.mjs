// Commands: foreground, background, input, signals, users, directories, big output.
import assert from 'node:assert/strict'
import { before, test } from 'node:test'
import { CommandExitError, TimeoutError, create, sleep, until, real } from './lib.mjs'

let sandbox
before(async () => { sandbox = await create() })

test('stdout, stderr and exit code', async () => {
  const result = await sandbox.commands.run('echo out; echo err >&2')
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 0])
})

test('a failing command throws with all it wrote', async () => {
  await assert.rejects(sandbox.commands.run('echo partial; echo why >&2; exit 42'), (err) => {
    assert.ok(err instanceof CommandExitError)
    assert.deepEqual([err.exitCode, err.stdout, err.stderr], [42, 'partial\n', 'why\n'])
    return true
  })
})

test('special characters survive', async () => {
  const text = 'ünïcödé "quotes" $dollar `back` \\ 日本語'
  const result = await sandbox.commands.run(`cat <<'END'\n${text}\nEND`)
  assert.equal(result.stdout, text + '\n')
})

test('output streams while the command runs', async () => {
  const seen = []
  await sandbox.commands.run('for i in 1 2 3; do echo $i; sleep 1; done', {
    onStdout: (s) => { seen.push([s, Date.now()]) },
  })
  assert.equal(seen.map(([s]) => s).join(''), '1\n2\n3\n')
  assert.ok(seen.at(-1)[1] - seen[0][1] > 400, 'the lines came apart in time')
})

test('environment, directory, user', async () => {
  assert.equal((await sandbox.commands.run('echo $A-$B', { envs: { A: '1', B: 'two words' } })).stdout, '1-two words\n')
  assert.equal((await sandbox.commands.run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  assert.equal((await sandbox.commands.run('pwd')).stdout, '/home/user\n')
  assert.equal((await sandbox.commands.run('whoami')).stdout, 'user\n')
  assert.equal((await sandbox.commands.run('whoami; id -u; pwd', { user: 'root' })).stdout, 'root\n0\n/root\n')
  assert.equal((await sandbox.commands.run('id -u')).stdout, '1000\n')
  await assert.rejects(sandbox.commands.run('true', { user: 'nobody-by-this-name' }), /user/i)
  await assert.rejects(sandbox.commands.run('true', { cwd: '/no/such/directory' }), /\/no\/such\/directory/)
})

test('sudo works without a password', async () => {
  const out = async (line) => (await sandbox.commands.run(line)).stdout
  assert.equal(await out('sudo echo test'), 'test\n')
  assert.equal(await out('sudo whoami'), 'root\n')
  assert.equal(await out('sudo -n id -u'), '0\n')
  assert.equal(await out('sudo -u user whoami'), 'user\n')
  assert.equal(await out('sudo FOO=1 printenv FOO'), '1\n')
  assert.equal(await out('echo text | sudo tee /root/written-by-sudo'), 'text\n')
  assert.equal(await out('sudo cat /root/written-by-sudo'), 'text\n')
  await assert.rejects(sandbox.commands.run('cat /root/written-by-sudo'), CommandExitError)
  await assert.rejects(sandbox.commands.run("sudo sh -c 'exit 7'"), (err) => err.exitCode === 7)
  await assert.rejects(sandbox.commands.run('sudo'), (err) => err.exitCode === 1 && err.stderr.includes('usage: sudo'))
  if (!real) return
  assert.equal(await out('sudo -i pwd'), '/root\n')
  assert.equal(await out('sudo printenv HOME USER SUDO_USER'), '/root\nroot\nuser\n')
  assert.equal((await sandbox.commands.run('sudo env', { envs: { SECRET: 's', LD_PRELOAD: '' } })).stdout.match(/SECRET|LD_PRELOAD/), null)
  await assert.rejects(sandbox.commands.run('sudo no-such-command'), (err) => err.exitCode === 1 && err.stderr.includes('command not found'))
})

test('standard input: sent, closed, absent', async () => {
  const echo = await sandbox.commands.run('cat', { background: true, stdin: true })
  await sandbox.commands.sendStdin(echo.pid, 'one\n')
  await sandbox.commands.sendStdin(echo.pid, new TextEncoder().encode('two\n'))
  await until('the echo', () => echo.stdout.includes('two'))
  await sandbox.commands.closeStdin(echo.pid)
  const result = await echo.wait()
  assert.equal(result.stdout, 'one\ntwo\n')
  assert.equal((await sandbox.commands.run('cat; echo done')).stdout, 'done\n') // no input: end of file at once
})

test('background: list, kill, wait', async () => {
  const sleeper = await sandbox.commands.run('sleep 100', { background: true })
  assert.ok(sleeper.pid > 0)
  const listed = (await sandbox.commands.list()).find((p) => p.pid === sleeper.pid)
  assert.ok(listed, 'the process is listed')
  assert.equal(listed.cmd, '/bin/bash')
  assert.deepEqual(listed.args, ['-l', '-c', 'sleep 100'])
  assert.equal(await sandbox.commands.kill(sleeper.pid), true)
  await assert.rejects(sleeper.wait(), CommandExitError)
  await until('it to be gone', async () => !(await sandbox.commands.list()).some((p) => p.pid === sleeper.pid))
  assert.equal(await sandbox.commands.kill(sleeper.pid), false)
})

test('disconnecting does not kill, reconnecting goes on', async () => {
  const first = await sandbox.commands.run('for i in $(seq 1 30); do echo tick $i; sleep 0.1; done; echo end', { background: true })
  await until('a tick', () => first.stdout.includes('tick 1'))
  await first.disconnect()
  await sleep(500)
  const second = await sandbox.commands.connect(first.pid)
  const result = await second.wait()
  assert.match(result.stdout, /tick 30\nend\n$/)
})

test('a timeout ends the command', async () => {
  const t = Date.now()
  await assert.rejects(sandbox.commands.run('sleep 30', { timeoutMs: 1000 }), TimeoutError)
  assert.ok(Date.now() - t < 10_000)
  await until('the process to be gone', async () =>
    !(await sandbox.commands.list()).some((p) => p.args.includes('sleep 30')))
})

test('no timeout lets it run', async () => {
  const result = await sandbox.commands.run('sleep 2; echo done', { timeoutMs: 0 })
  assert.equal(result.stdout, 'done\n')
})

test('big output arrives whole and in order', async () => {
  const result = await sandbox.commands.run('seq 1 400000; seq 1 100000 >&2')
  assert.equal(result.stdout.length, 2_688_895)
  assert.ok(result.stdout.endsWith('399999\n400000\n'))
  assert.equal(result.stderr.length, 588_895)
})

test('a child in the background does not hold the command', async () => {
  const t = Date.now()
  const result = await sandbox.commands.run('sleep 20 & echo started')
  assert.equal(result.stdout, 'started\n')
  assert.ok(Date.now() - t < 8000, `took ${Date.now() - t} ms`)
})

test('twenty commands at once keep apart', async () => {
  const results = await Promise.all(Array.from({ length: 20 }, (_, i) => sandbox.commands.run(`echo ${i}; sleep 0.2; echo ${i}`)))
  results.forEach((r, i) => assert.equal(r.stdout, `${i}\n${i}\n`))
})

test('real tools work', async () => {
  assert.equal((await sandbox.commands.run('python3 -c "print(sum(range(101)))"')).stdout, '5050\n')
  assert.equal((await sandbox.commands.run('printf "b\\na\\n" | sort | tr a-z A-Z | paste -sd,')).stdout, 'A,B\n')
  assert.match((await sandbox.commands.run('git --version && git init -q repo && cd repo && git -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m first && git log --oneline')).stdout, /first/)
})
