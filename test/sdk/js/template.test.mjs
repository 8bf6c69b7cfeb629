// Building templates: images, files, steps, the cache, tags, errors, start commands.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { test } from 'node:test'
import { sdk, sdkName } from './lib.mjs'

const image = process.env.IMAGE
const { Sandbox, Template, BuildError } = sdk ?? {}
const prefix = sdkName.replaceAll('.', '-')
const only = { skip: image === undefined ? 'no image: TestBuilds runs this file' : false }

/** build makes a template and returns what the SDK says of it, with the lines of the log. */
async function build(template, name, opts = {}) {
  const logs = []
  const info = await Template.build(template, `${prefix}-${name}`, { cpuCount: 1, memoryMB: 512, onBuildLogs: (l) => logs.push(l.message), ...opts })
  return { ...info, logs }
}

/** run runs a command in a new sandbox of a template. */
async function run(template, command) {
  const sandbox = await Sandbox.create(template, { timeoutMs: 120_000 })
  try {
    return (await sandbox.commands.run(command)).stdout.trim()
  } finally {
    await sandbox.kill()
  }
}

function context() {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'carrel-context-'))
  fs.mkdirSync(path.join(dir, 'folder'))
  fs.writeFileSync(path.join(dir, 'folder', 'file.txt'), 'content')
  fs.symlinkSync('file.txt', path.join(dir, 'folder', 'link.txt'))
  fs.writeFileSync(path.join(dir, 'script.sh'), 'echo from a script')
  return dir
}

test('an image, files, steps: all of it is in a sandbox', only, async () => {
  const dir = context()
  try {
    const template = Template({ fileContextPath: dir }).fromImage(image)
      .copy('folder/*', 'copied/', { forceUpload: true }).copy('script.sh', '/srv/script.sh', { user: 'root', mode: 0o700 })
      .setEnvs({ GREETING: 'hello' }).setWorkdir('/srv/work').runCmd('echo "$GREETING $OF_IMAGE $(id -un)" > out.txt')
      .runCmd('echo root > /root-was-here', { user: 'root' })
    const first = await build(template, 'whole')
    const look = 'cat out.txt /root-was-here /home/user/copied/file.txt; readlink /home/user/copied/link.txt; stat -c "%U %a" /srv/script.sh; pwd'
    assert.equal(await run(`${prefix}-whole`, look), 'hello yes user\nroot\ncontentfile.txt\nroot 700\n/srv/work')
    const again = await build(template, 'whole')
    assert.equal(again.templateId, first.templateId)
    assert.notEqual(again.buildId, first.buildId)
    const steps = () => build(Template({ fileContextPath: dir }).fromImage(image).copy('script.sh', '/srv/').runCmd('date +%N > ~/when'), 'cached')
    await steps()
    const when = await run(`${prefix}-cached`, 'cat ~/when')
    const { logs } = await steps()
    assert.ok(logs.some((l) => l.startsWith('CACHED RUN')), logs.join('\n'))
    assert.equal(await run(`${prefix}-cached`, 'cat ~/when'), when)
    assert.equal(await Template.exists(`${prefix}-whole`), true)
    assert.equal(await Template.exists(`${prefix}-nothing`), false)
  } finally {
    fs.rmSync(dir, { recursive: true })
  }
})

test('a failed step is named by its place in the program', only, async () => {
  const template = Template().fromImage(image).runCmd('true').runCmd('echo it broke; exit 7')
  await assert.rejects(build(template, 'broken'), (err) => {
    assert.ok(err instanceof BuildError, String(err))
    assert.match(err.message, /exit status 7: it broke/)
    assert.match(err.stack, /template\.test\.mjs/)
    return true
  })
})

test('tags point to builds', only, async () => {
  const one = await build(Template().fromImage(image).runCmd('echo one > ~/n'), 'tagged:v1')
  await build(Template().fromImage(image).runCmd('echo two > ~/n'), 'tagged')
  assert.equal(await run(`${prefix}-tagged:v1`, 'cat ~/n'), 'one')
  assert.equal(await run(`${prefix}-tagged`, 'cat ~/n'), 'two')
  if (Template.assignTags === undefined) return // this SDK is older
  await Template.assignTags(`${prefix}-tagged:v1`, ['stable'])
  assert.equal(await run(`${prefix}-tagged:stable`, 'cat ~/n'), 'one')
  const tags = await Template.getTags(one.templateId)
  assert.deepEqual(tags.map((t) => t.tag).sort(), ['default', 'stable', 'v1'])
  await Template.removeTags(`${prefix}-tagged`, ['stable'])
  await assert.rejects(Sandbox.create(`${prefix}-tagged:stable`))
})

test('a template of a template, with a start command', only, async () => {
  await build(Template().fromImage(image).setEnvs({ A: '1' }).runCmd('echo below > ~/below'), 'below')
  await build(Template().fromTemplate(`${prefix}-below`).setStartCmd('while :; do date +%s%N > /tmp/alive; sleep 0.1; done', 'test -s /tmp/alive'), 'above')
  assert.equal(await run(`${prefix}-above`, 'cat ~/below; echo $A; test -s /tmp/alive && echo alive'), 'below\n1\nalive')
})
