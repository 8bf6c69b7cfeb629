// While Claude Code works, a search of everything in its sandbox does not find the key.
import { test } from 'node:test'
import assert from 'node:assert/strict'
import { create, placeholder } from './claude.mjs'

const key = process.env.ANTHROPIC_API_KEY

/** search prints, as JSON, where two texts are. It gets them backwards, so that it finds no copy of its own. */
const search = `
import json, os, re, sys
texts = {name: word[::-1].encode() for name, word in zip(("key", "placeholder"), sys.argv[1:])}
found = {name: [] for name in texts}
def look(data, place):
    for name, text in texts.items():
        if text in data:
            found[name].append(place)
def read(path):
    try:
        with open(path, "rb") as f:
            look(f.read(64 << 20), path)
    except OSError:
        pass
looked = 0
for pid in (p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()):
    read(f"/proc/{pid}/environ")
    read(f"/proc/{pid}/cmdline")
    try:
        maps = open(f"/proc/{pid}/maps").read().splitlines()
        mem = open(f"/proc/{pid}/mem", "rb", 0)
    except OSError:
        continue
    for line in maps:
        part = re.match(r"(\\w+)-(\\w+) rw", line)
        first, last = (int(x, 16) for x in part.groups()) if part else (0, 0)
        for at in range(first, min(last, first + (128 << 20)), 4 << 20):
            try:
                mem.seek(at)
                data = mem.read(min(4 << 20, last - at))
            except (OSError, ValueError):
                break
            looked += len(data)
            look(data, f"/proc/{pid}/mem")
for top in ("/home", "/tmp", "/run", "/etc", "/root", "/var", "/dev/shm"):
    for d, _, names in os.walk(top):
        for n in names:
            path = os.path.join(d, n)
            if os.path.isfile(path) and not os.path.islink(path):
                read(path)
print(json.dumps({"looked": looked, **{name: sorted(set(places)) for name, places in found.items()}}))
`

test('Claude Code uses a tool, and the key is nowhere', async (t) => {
  const sandbox = await create(t, { withKey: true })
  const backwards = (s) => [...s].reverse().join('')
  const claude = await sandbox.commands.run(
    `claude -p 'Ask the shell.' --allowedTools Bash --verbose --output-format stream-json --include-partial-messages`,
    { background: true, timeoutMs: 240_000 })
  await sandbox.commands.run('until test -e /tmp/ready; do sleep 0.1; done', { timeoutMs: 120_000 })
  await sandbox.files.write('/tmp/search.py', search)
  const { stdout } = await sandbox.commands.run(
    `python3 /tmp/search.py '${backwards(key)}' '${backwards(placeholder)}'`, { user: 'root', timeoutMs: 120_000 })
  const found = JSON.parse(stdout)
  await sandbox.files.write('/tmp/go', '')
  const { stdout: said } = await claude.wait()
  assert.deepEqual(found.key, [], 'the key is inside')
  for (const kind of ['environ', 'mem']) {
    assert.ok(found.placeholder.some((p) => p.endsWith(kind)), `the search finds not even the placeholder: ${stdout}`)
  }
  assert.ok(!said.includes(key))
  const events = said.trim().split('\n').map((line) => JSON.parse(line))
  const result = events.find((e) => e.type === 'result')
  assert.match(result.result, /Starting gVisor[^]*42/)
  assert.ok(events.some((e) => e.type === 'stream_event'), 'nothing was streamed')
  assert.equal(result.num_turns, 2)
})
