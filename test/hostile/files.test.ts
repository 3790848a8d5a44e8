// Files that shrink, grow, are written to or vanish while a model is open: typed errors or the right numbers, in every I/O mode, never SIGBUS.
import { spawn } from 'node:child_process'
import { closeSync, copyFileSync, ftruncateSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { scratch, writeModel } from './models.ts'

const root = scratch()
const dist = fileURLToPath(new URL('../../dist/', import.meta.url))

/** Opens argv[1] in mode argv[2], says "open", reads tensors and runs passes until it has been told to stop, says what it ended with. */
const PROGRAM = `
import { open } from ${JSON.stringify(`${dist}api/model.js`)}
const [path, mode, kind] = process.argv.slice(1)
const endings = new Set()
let stop = false
process.stdin.on('data', () => { stop = true })
const attempt = async (work) => {
  try { await work(); endings.add('ok') } catch (e) {
    endings.add(e.code ?? 'UNTYPED ' + e.stack)
    return false
  }
  return true
}
const ends = () => { console.log(JSON.stringify([...endings])); process.exit(0) }
let model, engine, sequence
if (!await attempt(async () => {
  model = await open(path, { ioMode: mode })
  if (kind === 'run') {
    engine = await model.engine({ memory: 300 * 2 ** 20 + process.memoryUsage().rss, weightMemory: 120 * 1024, threads: 2, ioMode: mode, context: 64 })
    sequence = engine.createSequence()
    await sequence.forward([1, 2], { logits: 'last' })
  }
})) ends()
console.log('open')
for (let i = 0; !stop || i < 30; i++) {
  if (kind === 'run') await attempt(async () => { sequence.truncate(2); await sequence.forward([3, 4, 5], { logits: 'last' }) })
  else for (const name of model.tensorNames) await attempt(async () => { (await model.tensor(name).astype('float32')).at(-1) })
  if (stop && i > 200) break
  await new Promise((r) => setTimeout(r, 1))
}
await engine?.close()
await model.close()
ends()
`

interface Ending {
  signal: NodeJS.Signals | null
  code: number | null
  endings: string[]
  stderr: string
}

function attack(folder: string, mode: string, kind: string, act: () => void): Promise<Ending> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', PROGRAM, folder, mode, kind], { stdio: 'pipe' })
  let out = ''
  let stderr = ''
  let acted = false
  child.stderr.on('data', (t) => (stderr += t))
  child.stdout.on('data', (t) => {
    out += t
    if (acted || !out.includes('open\n')) return
    acted = true
    setTimeout(() => {
      act()
      setTimeout(() => child.stdin.end('stop'), 100)
    }, 30)
  })
  child.stdin.on('error', () => undefined)
  const timer = setTimeout(() => child.kill('SIGKILL'), 30_000)
  return new Promise((resolve) => {
    child.on('close', (code, signal) => {
      clearTimeout(timer)
      const last = out.trim().split('\n').at(-1) ?? ''
      resolve({ code, signal, stderr, endings: last.startsWith('[') ? (JSON.parse(last) as string[]) : [last] })
    })
  })
}

const ACTS: Record<string, (file: string) => void> = {
  shrinks: (file) => {
    const fd = openSync(file, 'r+')
    ftruncateSync(fd, 8192)
    closeSync(fd)
  },
  'is emptied': (file) => closeSync(openSync(file, 'w')),
  'is overwritten': (file) => {
    const fd = openSync(file, 'r+')
    writeSync(fd, Buffer.alloc(200_000, 255), 0, 200_000, 4096)
    closeSync(fd)
  },
}
const MODES = ['auto', 'mmap', 'pread', 'direct']

describe('a file that changes while it is open', () => {
  for (const kind of ['run', 'read'])
    for (const mode of MODES)
      it.each(Object.keys(ACTS))(`${kind}, ${mode}: %s`, async (name) => {
        const folder = writeModel(join(root, `${kind}-${mode}-${name}`))
        const e = await attack(folder, mode, kind, () => ACTS[name]!(join(folder, 'model.safetensors')))
        expect(e.signal, e.stderr).toBe(null)
        expect(e.code, e.stderr).toBe(0)
        if (e.endings.includes('SOURCE_MODE')) return // not offered here
        expect(e.endings).toContain('SOURCE_CHANGED')
        expect(
          e.endings.every((x) => ['ok', 'SOURCE_CHANGED'].includes(x)),
          e.endings.join(),
        ).toBe(true)
      })

  it.each(MODES)('%s: deleted or replaced by renaming, the open one stays right', async (mode) => {
    const folder = writeModel(join(root, `gone-${mode}`))
    const file = join(folder, 'model.safetensors')
    const other = join(folder, 'other')
    copyFileSync(file, other)
    for (const act of [() => renameSync(other, file), () => rmSync(file)]) {
      const e = await attack(folder, mode, 'read', act)
      expect(e.signal, e.stderr).toBe(null)
      expect(
        e.endings.every((x) => ['ok', 'SOURCE_MODE'].includes(x)),
        e.endings.join(),
      ).toBe(true)
    }
  })
})
