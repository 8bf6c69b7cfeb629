// A template of a Dockerfile. TestDockerfile names the directory, and looks at the template.
import fs from 'node:fs'
import path from 'node:path'
import { test } from 'node:test'
import { sdk } from './lib.mjs'

const dir = process.env.CONTEXT
const { Template } = sdk

test('a Dockerfile', { skip: dir === undefined ? 'no context: TestDockerfile runs this file' : false }, async () => {
  const template = Template({ fileContextPath: dir }).fromDockerfile(fs.readFileSync(path.join(dir, 'Dockerfile'), 'utf8'))
  await Template.build(template, process.env.NAME, { cpuCount: 1, memoryMB: 512 })
})
