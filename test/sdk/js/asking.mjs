// A program that a policy makes wait. It runs commands in a sandbox, and prints what the SDK says to
// each, one line of JSON a command. Commands are arguments, because nobody else may decide what they are.
import { Sandbox } from 'e2b'

const say = (line) => console.log(JSON.stringify(line))
const [id, ...commands] = process.argv.slice(2)
try {
  const sandbox = await Sandbox.connect(id, { requestTimeoutMs: 120_000 })
  say({ connected: sandbox.sandboxId })
  for (const command of commands) {
    // A command that fails is an error of the SDK, with all that the command printed.
    const r = await sandbox.commands.run(command, { timeoutMs: 120_000, requestTimeoutMs: 120_000 }).catch((err) => err)
    say({ exit: r.exitCode, out: r.stdout, err: r.stderr, thrown: r instanceof Error ? r.name : undefined })
  }
} catch (err) {
  say({ thrown: err.name, message: err.message, cause: err.cause?.message })
}
