// All sources and wrappers against the contract.

import { describe, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { loadAddon } from '#sluice/source/addon.js'
import { cached } from '#sluice/source/cached.js'
import { coalesced } from '#sluice/source/coalesced.js'
import { counted } from '#sluice/source/counted.js'
import { limited } from '#sluice/source/limited.js'
import { MemorySource } from '#sluice/source/memory.js'
import { openFile } from '#sluice/source/openFile.js'
import { slice } from '#sluice/source/slice.js'
import { contract } from './contract.ts'
import { scratchFolder, writeBytes } from './files.ts'

const folder = scratchFolder()

/** Whether a mode works on this machine at all; what it must do where it does not is in openFile.test.ts. */
async function works(mode: 'direct' | 'mmap-io'): Promise<boolean> {
  const path = writeBytes(`${folder}/probe-${mode}.bin`, new Uint8Array(5000))
  try {
    await (await openFile(path, { mode })).close()
    return true
  } catch (error) {
    if (isSluiceError(error, 'SOURCE_MODE')) return false
    throw error
  }
}

contract('memory', folder, async (_path, bytes) => new MemorySource(bytes), { detached: true })
contract('pread', folder, (path) => openFile(path, { mode: 'pread' }))
contract('pread with drop-behind', folder, (path) => openFile(path, { mode: 'pread', dropBehind: true }))
contract('auto', folder, (path) => openFile(path))

if (await works('direct')) contract('direct', folder, (path) => openFile(path, { mode: 'direct' }))
else describe.skip('direct: the file system of the scratch folder has no direct I/O', () => test('skipped', () => {}))

if (loadAddon() !== undefined) {
  contract('mmap', folder, (path) => openFile(path, { mode: 'mmap' }))
  contract('mmap with drop-behind', folder, (path) => openFile(path, { mode: 'mmap', dropBehind: true }))
} else describe.skip('mmap: no addon for this system', () => test('skipped', () => {}))

if (await works('mmap-io')) contract('mmap-io', folder, (path) => openFile(path, { mode: 'mmap-io' }), { small: true })
else describe.skip('mmap-io: the package is not built', () => test('skipped', () => {}))

const file = (path: string) => openFile(path, { mode: 'pread' })
contract('counted', folder, async (path) => counted(await file(path)))
contract('limited', folder, async (path) => limited(await file(path), 3))
contract('coalesced', folder, async (path) => coalesced(await file(path)))
contract('cached', folder, async (path) => cached(await file(path), { capBytes: 16384, blockBytes: 1000 }))
contract(
  'cached over memory',
  folder,
  async (_p, b) => cached(new MemorySource(b), { capBytes: 2048, blockBytes: 512 }),
  {
    detached: true,
  },
)
contract('slice of everything', folder, async (path) => {
  const inner = await file(path)
  const part = slice(inner, 0, inner.size)
  // A slice leaves what it is cut from open; here somebody has to close it.
  return Object.assign(part, {
    close: ((close) => () => {
      close()
      return inner.close()
    })(part.close.bind(part)),
  })
})
contract(
  'slice of memory',
  folder,
  async (_path, bytes) => {
    const padded = new Uint8Array(bytes.byteLength + 123).fill(0xaa)
    padded.set(bytes, 100)
    return slice(new MemorySource(padded), 100, bytes.byteLength)
  },
  { detached: true },
)
contract('wrappers in wrappers', folder, async (path) =>
  cached(coalesced(limited(counted(await file(path)), 2), { maxGapBytes: 100 }), { capBytes: 8192, blockBytes: 700 }),
)
