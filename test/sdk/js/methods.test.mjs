// Every public method of the SDK's template builder: a case uses it, or says why it is refused.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { test } from 'node:test'
import { sdk, sdkName, sleep } from './lib.mjs'

const image = process.env.IMAGE
const { Sandbox, Template, waitForFile, waitForTimeout } = sdk
const newest = sdkName === 'e2b' // the older one has fewer methods
const only = { skip: image === undefined || !newest ? 'TestBuilds runs this file with the newest SDK' : false }
const size = { cpuCount: 1, memoryMB: 512 }

// covered are the methods that the cases below use. Each case names its own.
const covered = new Set()
function method(name, methods, fn) {
  for (const m of methods) covered.add(m)
  test(name, only, fn)
}

// refused are methods that the SDK itself or another service refuses here, and why.
const refused = {
  addMcpServer: 'the SDK allows it in E2B\'s own template mcp-gateway only',
  betaDevContainerPrebuild: 'the SDK allows it in E2B\'s own template devcontainer only',
  betaSetDevContainerStart: 'the SDK allows it in E2B\'s own template devcontainer only',
  fromAWSRegistry: 'it needs a token that only AWS gives; the daemon asks AWS for it',
}

// named are methods that only name a public image. The SDK makes a fromImage of each.
const named = {
  fromDebianImage: 'debian', fromUbuntuImage: 'ubuntu', fromPythonImage: 'python', fromNodeImage: 'node', fromBunImage: 'oven/bun',
  fromFedoraImage: 'fedora', fromAlpineImage: 'alpine', fromArchImage: 'archlinux',
}

// inner are methods that the SDK's types declare private.
const inner = ['constructor', 'collectStackTrace', 'instructionsWithHashes', 'serialize']

async function run(template, command) {
  const sandbox = await Sandbox.create(template, { timeoutMs: 120_000 })
  try {
    return (await sandbox.commands.run(command)).stdout.trim()
  } finally {
    await sandbox.kill()
  }
}

// The package managers are stand-ins that note how they were called: TestDockerfile has real ones.
const standIn = '#!/bin/sh\necho "$(id -un) ${0##*/} $*" >> /usr/calls\n'
const steps = ['fromImage', 'copy', 'copyItems', 'setEnvs', 'runCmd', 'makeDir', 'makeSymlink', 'rename', 'remove', 'aptInstall', 'bunInstall', 'pipInstall',
  'npmInstall', 'gitClone', 'setUser', 'setWorkdir', 'setStartCmd', 'build']
method('steps', steps, async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'carrel-methods-'))
  try {
    for (const [name, text] of [['tool', standIn], ['calls', ''], ['data.txt', 'data']]) fs.writeFileSync(path.join(dir, name), text)
    const tools = ['apt-get', 'bun', 'pip', 'npm', 'git'].map((name) => ({ src: 'tool', dest: `/usr/bin/${name}`, user: 'root', mode: 0o755 }))
    const template = Template({ fileContextPath: dir }).fromImage(image)
      .copyItems([...tools, { src: 'calls', dest: '/usr/calls', user: 'root', mode: 0o666 }])
      .copy('data.txt', 'work/').setEnvs({ WORD: 'hello' }).setEnvs({ SAYS: '"$WORD" ${NONE:-there}' }).runCmd('echo "$SAYS" > ~/said; touch ~/gone')
      .makeDir('/home/user/made').makeSymlink('/home/user/said', '/home/user/made/link').rename('/home/user/work/data.txt', '/home/user/moved').remove('/home/user/gone')
      .aptInstall(['vim']).bunInstall('one').pipInstall('two').npmInstall(['three']).gitClone('https://example.com/r', '/home/user/r', { branch: 'b', depth: 1 })
      .setUser('root').setWorkdir('/srv/$WORD').runCmd('id -un > who').setUser('user').setStartCmd('touch /tmp/up; sleep 1000', waitForFile('/tmp/up'))
    await Template.build(template, 'methods', size)
    const look = 'cat ~/said; readlink ~/made/link; cat ~/moved; echo; ls ~/gone 2>/dev/null; cat who; pwd; id -un; ' +
      // On a machine without time to spare the template is not started ahead, and its command comes with the sandbox.
      'for i in $(seq 200); do [ -e /tmp/up ] && break; sleep 0.1; done; ls /tmp/up; cat /usr/calls'
    assert.deepEqual((await run('methods', look)).split('\n'), ['"hello" there', '/home/user/said', 'data', 'root', '/srv/hello', 'user', '/tmp/up',
      'root apt-get update', 'root apt-get install -y vim', 'user bun install one', 'root pip install two', 'user npm install three',
      'user git clone https://example.com/r --branch b --single-branch --depth 1 /home/user/r'])
  } finally {
    fs.rmSync(dir, { recursive: true })
  }
})

method('the cache', ['skipCache', 'setReadyCmd', 'fromGCPRegistry'], async () => {
  const registry = Template().fromGCPRegistry(image, { serviceAccountJSON: { type: 'service_account', project_id: 'x' } })
  const template = registry.runCmd('date +%N > ~/kept; : JavaScript').skipCache().runCmd('date +%N > ~/forced').setReadyCmd(waitForTimeout(100))
  const times = []
  for (let i = 0; i < 2; i++) {
    await Template.build(template, 'forced', size)
    times.push((await run('forced', 'cat ~/kept ~/forced')).split('\n'))
  }
  assert.equal(times[0][0], times[1][0])
  assert.notEqual(times[0][1], times[1][1])
})

method('builds in the background, and tags', ['buildInBackground', 'getBuildStatus', 'exists', 'aliasExists', 'assignTags', 'getTags', 'removeTags', 'fromBaseImage', 'fromTemplate'], async () => {
  await Template.build(Template().fromBaseImage().setEnvs({ OF: 'base' }), 'of-base', size)
  const info = await Template.buildInBackground(Template().fromTemplate('of-base').setEnvs({ MORE: '$OF!' }), 'background', size)
  for (const end = Date.now() + 120_000; ; await sleep(100)) {
    const status = await Template.getBuildStatus(info)
    if (status.status === 'ready') break
    assert.ok(['building', 'waiting'].includes(status.status) && Date.now() < end, JSON.stringify(status))
  }
  assert.equal(await run('background', 'echo $MORE'), 'base!')
  assert.equal(await Template.exists('background'), true)
  assert.equal(await Template.aliasExists('background'), true)
  await Template.assignTags('background', ['t1'])
  assert.deepEqual((await Template.getTags(info.templateId)).map((t) => t.tag).sort(), ['default', 't1'])
  await Template.removeTags('background', ['t1'])
})

method('texts', ['toJSON', 'toDockerfile', 'fromDockerfile', ...Object.keys(named)], async () => {
  const template = Template().fromDockerfile('FROM example.com/x\nRUN true\n')
  assert.match(Template.toDockerfile(template), /^FROM example.com\/x\n/)
  assert.equal(JSON.parse(await Template.toJSON(template)).fromImage, 'example.com/x')
  for (const [name, want] of Object.entries(named)) {
    assert.equal(JSON.parse(await Template.toJSON(Template()[name]())).fromImage.split(':')[0], want, name)
  }
})

test('methods that are refused say so', only, async () => {
  const template = Template().fromImage(image)
  for (const name of Object.keys(refused).filter((n) => !n.startsWith('from'))) {
    assert.throws(() => template[name]('x'), /template/, name)
  }
  const aws = Template().fromAWSRegistry(image, { accessKeyId: 'x', secretAccessKey: 'y', region: 'z' })
  await assert.rejects(Template.build(aws, 'of-aws', size))
})

test('every method is known', only, () => {
  const statics = Object.getOwnPropertyNames(Template).filter((n) => typeof Template[n] === 'function' && n !== 'prototype')
  const own = Object.getOwnPropertyNames(Object.getPrototypeOf(Template()))
  assert.ok(own.length > 30 && statics.length > 8, 'the SDK hides its methods elsewhere now')
  const known = new Set([...covered, ...Object.keys(refused), ...inner])
  assert.deepEqual([...statics, ...own].filter((n) => !known.has(n)), [])
})
