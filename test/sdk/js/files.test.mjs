// Files: every call, big ones, odd names, other users, metadata, signed URLs, watching.
import assert from 'node:assert/strict'
import { randomBytes, createHash } from 'node:crypto'
import { before, test } from 'node:test'
import { NotFoundError, create, sleep, until, hosts, sdk, sdkName } from './lib.mjs'

let sandbox
before(async () => { sandbox = await create() })

test('write and read in each form', async () => {
  const info = await sandbox.files.write('notes/deep/a.txt', 'text')
  assert.equal(info.path, '/home/user/notes/deep/a.txt')
  assert.equal(info.name, 'a.txt')
  assert.equal(info.type, 'file')
  assert.equal(await sandbox.files.read('notes/deep/a.txt'), 'text')
  assert.equal(await sandbox.files.read('/home/user/notes/deep/a.txt'), 'text')
  const data = randomBytes(100_000)
  await sandbox.files.write('data.bin', data.buffer.slice(data.byteOffset, data.byteOffset + data.length))
  assert.deepEqual(Buffer.from(await sandbox.files.read('data.bin', { format: 'bytes' })), data)
  await sandbox.files.write('blob', new Blob(['blob ', 'content']))
  assert.equal(await (await sandbox.files.read('blob', { format: 'blob' })).text(), 'blob content')
  await sandbox.files.write('empty', '')
  assert.equal(await sandbox.files.read('empty'), '')
  let streamed = ''
  for await (const chunk of await sandbox.files.read('blob', { format: 'stream' })) streamed += Buffer.from(chunk)
  assert.equal(streamed, 'blob content')
})

test('many files in one request, each at its path', async () => {
  const list = Array.from({ length: 30 }, (_, i) => ({ path: `many/${i % 3}/file-${i}.txt`, data: `content ${i}` }))
  const infos = await sandbox.files.write(list)
  assert.equal(infos.length, 30)
  assert.equal(await sandbox.files.read('many/2/file-29.txt'), 'content 29')
  assert.equal((await sandbox.files.list('many/1')).length, 10)
})

test('overwriting truncates', async () => {
  await sandbox.files.write('over.txt', 'a long first version')
  await sandbox.files.write('over.txt', 'short')
  assert.equal(await sandbox.files.read('over.txt'), 'short')
})

test('odd names', async () => {
  for (const name of ['with space', 'ünïcödé-日本', 'semi;colon"quote', 'plus+percent%20']) {
    await sandbox.files.write(`odd/${name}`, name)
    assert.equal(await sandbox.files.read(`odd/${name}`), name)
  }
  const names = (await sandbox.files.list('odd')).map((e) => e.name).sort()
  assert.equal(names.length, 4)
})

test('what is missing says so', async () => {
  await assert.rejects(sandbox.files.read('no/such/file'), NotFoundError)
  assert.equal(await sandbox.files.exists('no/such/file'), false)
  await assert.rejects(sandbox.files.list('/no/such/dir'), NotFoundError)
  await assert.rejects(sandbox.files.getInfo('no/such/file'), NotFoundError)
})

test('directories: make, list, depth, rename, remove', async () => {
  assert.equal(await sandbox.files.makeDir('tree/one/two'), true)
  assert.equal(await sandbox.files.makeDir('tree/one/two'), false)
  await sandbox.files.write('tree/one/two/leaf', 'x')
  assert.deepEqual((await sandbox.files.list('tree')).map((e) => e.name), ['one'])
  const deep = await sandbox.files.list('tree', { depth: 3 })
  assert.deepEqual(deep.map((e) => e.path).sort(), ['/home/user/tree/one', '/home/user/tree/one/two', '/home/user/tree/one/two/leaf'])
  const moved = await sandbox.files.rename('tree/one/two/leaf', 'tree/moved')
  assert.equal(moved.path, '/home/user/tree/moved')
  assert.equal(await sandbox.files.exists('tree/one/two/leaf'), false)
  await sandbox.files.remove('tree')
  assert.equal(await sandbox.files.exists('tree'), false)
  await assert.rejects(sandbox.files.list('tree', { depth: 0 }))
})

test('getInfo tells all', async () => {
  await sandbox.files.write('info.txt', 'twelve bytes')
  const info = await sandbox.files.getInfo('info.txt')
  assert.equal(info.size, 12)
  assert.equal(info.type, 'file')
  assert.equal(info.owner, 'user')
  assert.equal(info.mode, 0o644)
  assert.equal(info.permissions, '-rw-r--r--')
  assert.ok(Math.abs(info.modifiedTime - Date.now()) < 60_000)
  await sandbox.commands.run('ln -s info.txt link')
  assert.equal((await sandbox.files.getInfo('link')).symlinkTarget, '/home/user/info.txt')
  assert.equal((await sandbox.files.getInfo('.')).type, 'dir')
})

test('another user\'s files', async () => {
  await sandbox.files.write('/root/secret', 'for root', { user: 'root' })
  assert.equal((await sandbox.files.getInfo('/root/secret', { user: 'root' })).owner, 'root')
  assert.equal(await sandbox.files.read('secret', { user: 'root' }), 'for root')
})

test('a big file arrives whole', async () => {
  const data = randomBytes(48 << 20)
  const hash = createHash('sha256').update(data).digest('hex')
  await sandbox.files.write('big', data.buffer.slice(data.byteOffset, data.byteOffset + data.length))
  assert.equal((await sandbox.commands.run('sha256sum big')).stdout.split(' ')[0], hash)
  const back = await sandbox.files.read('big', { format: 'bytes' })
  assert.equal(createHash('sha256').update(back).digest('hex'), hash)
  await sandbox.files.remove('big')
})

test('octet-stream and gzip uploads', { skip: sdkName !== 'e2b' && 'an option of newer SDKs' }, async () => {
  await sandbox.files.write('raw.txt', 'plain octets', { useOctetStream: true })
  assert.equal(await sandbox.files.read('raw.txt'), 'plain octets')
  await sandbox.files.write('zipped.txt', 'z'.repeat(100_000), { gzip: true })
  assert.equal((await sandbox.files.read('zipped.txt', { gzip: true })).length, 100_000)
})

test('metadata is kept', { skip: sdkName !== 'e2b' && 'an option of newer SDKs' }, async () => {
  await sandbox.files.write('tagged.txt', 'x', { metadata: { author: 'someone', kind: 'report' } })
  assert.deepEqual((await sandbox.files.getInfo('tagged.txt')).metadata, { author: 'someone', kind: 'report' })
})

test('watching sees what happens', async () => {
  await sandbox.files.makeDir('watched/sub')
  const events = []
  const watch = await sandbox.files.watchDir('watched', (e) => { events.push(e) })
  const has = (type, name) => until(`${type} ${name}`, () => events.some((e) => e.type === type && e.name === name))
  await sandbox.files.write('watched/new.txt', 'a')
  await has('create', 'new.txt')
  await has('write', 'new.txt')
  await sandbox.files.rename('watched/new.txt', 'watched/renamed.txt')
  await has('rename', 'new.txt')
  await has('create', 'renamed.txt')
  await sandbox.files.remove('watched/renamed.txt')
  await has('remove', 'renamed.txt')
  await sandbox.files.write('watched/sub/inner', 'not watched')
  await sleep(300)
  assert.ok(!events.some((e) => e.name.includes('inner')))
  await watch.stop()
  const count = events.length
  await sandbox.files.write('watched/after', 'x')
  await sleep(300)
  assert.equal(events.length, count)
})

test('watching below', async () => {
  await sandbox.files.makeDir('deepwatch')
  const events = []
  const watch = await sandbox.files.watchDir('deepwatch', (e) => { events.push(e) }, { recursive: true })
  await sandbox.files.write('deepwatch/x/y/z.txt', 'new directories too')
  await until('the file far below', () => events.some((e) => e.name === 'x/y/z.txt'))
  await watch.stop()
  await assert.rejects(sandbox.files.watchDir('no/such/dir', () => {}), NotFoundError)
})

test('watching with entries, and on any mount', { skip: sdkName !== 'e2b' && 'options of newer SDKs' }, async () => {
  await sandbox.files.makeDir('entries')
  const events = []
  const watch = await sandbox.files.watchDir('entries', (e) => { events.push(e) }, { includeEntry: true, allowNetworkMounts: true })
  await sandbox.files.write('entries/file', '12345')
  await until('the entry', () => events.some((e) => e.entry?.name === 'file' && e.entry.size === 5))
  await watch.stop()
})

test('signed URLs', async () => {
  await sandbox.files.write('shared.txt', 'by URL')
  const url = await sandbox.downloadUrl('shared.txt')
  assert.match(url, /signature=v1_/)
  const response = await fetch(url)
  assert.equal(response.status, 200)
  assert.equal(await response.text(), 'by URL')
  const tampered = await fetch(url.replace('shared.txt', 'blob'))
  assert.equal(tampered.status, 401)
  const expiring = await sandbox.downloadUrl('shared.txt', { useSignatureExpiration: 120_000 })
  assert.equal(await (await fetch(expiring)).text(), 'by URL')
  const form = new FormData()
  form.append('file', new Blob(['uploaded by URL']), 'file')
  const up = await fetch(await sandbox.uploadUrl('up.txt'), { method: 'POST', body: form })
  assert.equal(up.status, 200, await up.clone().text())
  assert.equal(await sandbox.files.read('up.txt'), 'uploaded by URL')
  const expired = await sandbox.downloadUrl('shared.txt', { useSignatureExpiration: 1 })
  await sleep(2100)
  const late = await fetch(expired)
  assert.equal(late.status, 401)
  assert.deepEqual(await late.json(), { code: 401, message: 'signature is already expired' })
})

test('ranges', async () => {
  await sandbox.files.write('range.txt', '0123456789')
  const response = await fetch(await sandbox.downloadUrl('range.txt'), { headers: { Range: 'bytes=2-5' } })
  assert.equal(response.status, 206)
  assert.equal(await response.text(), '2345')
})

test('paths with a NUL are refused', async () => {
  await assert.rejects(sandbox.files.read('a\0b'))
  await assert.rejects(sandbox.files.makeDir('a\0b'))
  assert.ok(sdk && hosts !== undefined)
})
