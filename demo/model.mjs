// A model endpoint that wants a key: it answers whoever has it, and says what else it was given.
import { createServer } from 'node:http'
import { writeFileSync } from 'node:fs'

const [portFile, key] = process.argv.slice(2)
const server = createServer((req, res) => {
  const given = req.headers.authorization
  res.statusCode = given === `Bearer ${key}` ? 200 : 401
  res.end(res.statusCode === 200 ? `the model answers; your header was "${given}"\n` : `wrong key: ${given}\n`)
})
server.listen(0, '127.0.0.1', () => writeFileSync(portFile, String(server.address().port)))
