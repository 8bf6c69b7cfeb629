// just-bash in one process: the peer of the simulated machine. Reads the tasks from argument 1 and prints the times of
// each in milliseconds as JSON.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const tasks = JSON.parse(readFileSync(process.argv[2]))
const { Bash } = await import(pathToFileURL(createRequire(process.argv[3] + '/').resolve('just-bash')).href)
const limits = { executionLimits: Object.fromEntries(['maxCallDepth', 'maxCommandCount', 'maxLoopIterations', 'maxAwkIterations', 'maxSedIterations', 'maxStringLength',
  'maxOutputSize', 'maxFileSystemBytes', 'maxExecutionTimeMs'].map((k) => [k, Number.MAX_SAFE_INTEGER])) }
delete limits.executionLimits.maxExecutionTimeMs
const out = {}
for (const t of tasks) {
  const files = t.file ? { '/home/user/big': readFileSync(t.file, 'utf8') } : {}
  let bash = new Bash({ ...limits, files, cwd: '/home/user' })
  out[t.name] = []
  for (let i = 0; i < t.rounds + t.warm; i++) {
    const began = performance.now()
    if (t.fresh) bash = new Bash({ ...limits, files, cwd: '/home/user' })
    const r = await bash.exec(t.script)
    const took = performance.now() - began
    if (r.stdout !== t.want && t.want !== undefined) {
      out[t.name] = 'wrong output: ' + JSON.stringify((r.stdout + r.stderr).slice(0, 200))
      break
    }
    if (i >= t.warm) out[t.name].push(took)
    if (took > 5000) break // once is enough to know
  }
}
console.log(JSON.stringify(out))
