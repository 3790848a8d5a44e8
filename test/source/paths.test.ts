// The path rule: text, links, loops, hub caches, writing.
import { mkdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { checkRelative, resolveForWriting, resolveInside } from '#sluice/source/paths.js'
import { scratchFolder } from './files.ts'

const folder = realpathSync(scratchFolder())
const root = join(folder, 'package')
mkdirSync(join(root, 'weights'), { recursive: true })
mkdirSync(join(folder, 'package-evil'))
for (const f of ['package/manifest.json', 'package/weights/a.bin', 'package-evil/x.bin', 'secret.bin'])
  writeFileSync(join(folder, f), f)

const codeOf = async (p: Promise<unknown>) =>
  p.then(
    () => 'resolved',
    (e) => (isSluiceError(e) ? e.code : e),
  )

test('plain paths resolve', async () => {
  expect(await resolveInside(root, 'weights/a.bin')).toBe(join(root, 'weights/a.bin'))
  expect(await resolveInside(root, './weights//a.bin')).toBe(join(root, 'weights/a.bin'))
  expect(await resolveInside(`${root}/`, 'manifest.json')).toBe(join(root, 'manifest.json'))
})

const hostile = [
  '../secret.bin',
  'weights/../../secret.bin',
  'weights/../manifest.json',
  '..',
  '.',
  '',
  '/etc/passwd',
  '//server/share/x',
  'C:/x',
  'C:x',
  'c:\\x',
  '..\\secret.bin',
  'weights\\a.bin',
  '\\\\server\\share',
  'file:///etc/passwd',
  'http://example.org/x',
  'weights/a.bin:stream',
  'a\0.bin',
  'weights/a.bin\0.json',
  'a\n.bin',
  '\ud800.bin',
  'x'.repeat(5000),
]
test.each(hostile)('refuses %j', async (path) => {
  expect(await codeOf(resolveInside(root, path))).toBe('PATH_FORBIDDEN')
  expect(await codeOf(resolveForWriting(root, path))).toBe('PATH_FORBIDDEN')
})

test('a path that is not text is refused too', async () => {
  for (const path of [undefined, null, 5, {}, ['a']])
    expect(await codeOf(resolveInside(root, path as unknown as string))).toBe('PATH_FORBIDDEN')
})

test('what is not there says so', async () => {
  expect(await codeOf(resolveInside(root, 'weights/none.bin'))).toBe('SOURCE_IO')
  expect(await codeOf(resolveInside(root, 'manifest.json/x'))).toBe('SOURCE_IO')
  expect(await codeOf(resolveInside(join(folder, 'nowhere'), 'x'))).toBe('SOURCE_IO')
})

test('links inside are followed, links out are refused', async () => {
  symlinkSync('weights/a.bin', join(root, 'inner'))
  symlinkSync(join(root, 'weights'), join(root, 'inner-folder'))
  symlinkSync('../secret.bin', join(root, 'outer'))
  symlinkSync('/etc/passwd', join(root, 'absolute'))
  symlinkSync('../package-evil', join(root, 'neighbour'))
  symlinkSync('..', join(root, 'up'))
  expect(await resolveInside(root, 'inner')).toBe(join(root, 'weights/a.bin'))
  expect(await resolveInside(root, 'inner-folder/a.bin')).toBe(join(root, 'weights/a.bin'))
  for (const path of ['outer', 'absolute', 'neighbour/x.bin', 'up/secret.bin', 'up/package-evil/x.bin']) {
    expect(await codeOf(resolveInside(root, path)), path).toBe('PATH_FORBIDDEN')
    expect(await codeOf(resolveForWriting(root, path)), path).toBe('PATH_FORBIDDEN')
  }
  // A way out and in again ends inside.
  expect(await resolveInside(root, 'up/package/manifest.json')).toBe(join(root, 'manifest.json'))
  expect(await resolveInside(root, 'outer', { extraRoots: [folder] })).toBe(join(folder, 'secret.bin'))
})

test('link loops are refused', async () => {
  symlinkSync('loop-b', join(root, 'loop-a'))
  symlinkSync('loop-a', join(root, 'loop-b'))
  symlinkSync('self', join(root, 'self'))
  for (const path of ['loop-a', 'self', 'self/x']) {
    expect(await codeOf(resolveInside(root, path)), path).toBe('PATH_FORBIDDEN')
    expect(await codeOf(resolveForWriting(root, path)), path).toBe('PATH_FORBIDDEN')
  }
})

test('a root that is a link itself works', async () => {
  symlinkSync('package', join(folder, 'link-to-package'))
  expect(await resolveInside(join(folder, 'link-to-package'), 'weights/a.bin')).toBe(join(root, 'weights/a.bin'))
})

test('a hub cache: snapshots of links into blobs', async () => {
  const hub = join(folder, 'models--some--model')
  const snapshot = join(hub, 'snapshots', '0123abcd')
  mkdirSync(join(hub, 'blobs'), { recursive: true })
  mkdirSync(snapshot, { recursive: true })
  for (const [name, blob] of [
    ['model.safetensors.index.json', 'aaa'],
    ['model-00001-of-00002.safetensors', 'bbb'],
  ] as const) {
    writeFileSync(join(hub, 'blobs', blob), name)
    symlinkSync(`../../blobs/${blob}`, join(snapshot, name))
  }
  symlinkSync('../../../secret.bin', join(snapshot, 'model-00002-of-00002.safetensors'))
  const index = 'model.safetensors.index.json'
  expect(await resolveInside(snapshot, 'model-00001-of-00002.safetensors', { index })).toBe(join(hub, 'blobs/bbb'))
  expect(await resolveInside(snapshot, 'model-00001-of-00002.safetensors', { index: join(snapshot, index) })).toBe(
    join(hub, 'blobs/bbb'),
  )
  // Only what the index itself leads to is allowed, and nothing without it.
  expect(await codeOf(resolveInside(snapshot, 'model-00001-of-00002.safetensors'))).toBe('PATH_FORBIDDEN')
  expect(await codeOf(resolveInside(snapshot, 'model-00002-of-00002.safetensors', { index }))).toBe('PATH_FORBIDDEN')
})

test('writing: new files and folders inside, nothing through a link to nothing', async () => {
  expect(await resolveForWriting(root, 'new/deep/file.bin')).toBe(join(root, 'new/deep/file.bin'))
  expect(await resolveForWriting(root, 'weights/a.bin')).toBe(join(root, 'weights/a.bin'))
  symlinkSync('../not-there-yet.bin', join(root, 'dangling'))
  symlinkSync('inside-not-there-yet.bin', join(root, 'dangling-inside'))
  expect(await codeOf(resolveForWriting(root, 'dangling'))).toBe('PATH_FORBIDDEN')
  expect(await codeOf(resolveForWriting(root, 'dangling-inside'))).toBe('PATH_FORBIDDEN')
  expect(await codeOf(resolveForWriting(root, 'dangling/x'))).toBe('PATH_FORBIDDEN')
  expect(await codeOf(resolveForWriting(root, 'manifest.json/x'))).toBe('OUTPUT_IO')
})

test('whatever the text, the result is inside or refused', async () => {
  const part = fc.constantFrom('..', '.', '', 'weights', 'a.bin', 'x', '/', '\\', 'C:', '\0', '~', '%2e%2e', ' ', '...')
  await fc.assert(
    fc.asyncProperty(fc.array(part, { maxLength: 6 }), async (parts) => {
      const path = parts.join('/')
      try {
        const target = await resolveForWriting(root, path)
        expect(target.startsWith(`${root}/`)).toBe(true)
        expect(checkRelative(root, path).includes('..')).toBe(false)
      } catch (error) {
        expect(isSluiceError(error)).toBe(true)
      }
    }),
    { numRuns: 300 },
  )
})
