// Measures E2B's npm SDK: creates and exec round trips. Prints JSON of milliseconds.
import { createRequire } from 'node:module'
const { Sandbox } = createRequire(process.argv[3] + '/')('e2b')

const rounds = Number(process.argv[2])
const result = { Create: [], Exec: [] }
for (let i = 0; i < Math.max(3, rounds / 10) + 1; i++) {
  const t = performance.now()
  const sandbox = await Sandbox.create('base')
  await sandbox.commands.run('echo ready')
  if (i > 0) result.Create.push(performance.now() - t)
  await sandbox.kill()
}
const sandbox = await Sandbox.create('base')
for (let i = 0; i < rounds + 5; i++) {
  const t = performance.now()
  await sandbox.commands.run('true')
  if (i >= 5) result.Exec.push(performance.now() - t)
}
await sandbox.kill()
console.log(JSON.stringify(result))
