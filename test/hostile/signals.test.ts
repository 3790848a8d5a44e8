// Signals at any moment: the process ends soon, with a documented code or by the signal, and leaves no half file.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { open } from '#sluice/api/model.js'
import { MAIN } from './cli.ts'
import { dice, scratch, type TensorBytes, weights, writeModel } from './models.ts'

const root = scratch()

/** Enough to be in the middle of something: 40 MB of tensors nobody uses. */
function bulky(): string {
  const tensors = new Map<string, TensorBytes>(weights())
  for (let i = 0; i < 10; i++)
    tensors.set(`extra${i}`, { shape: [1000, 1000], data: new Float32Array(1_000_000).fill(i) })
  return writeModel(join(root, 'bulky'), { weights: tensors })
}

interface Ending {
  code: number | null
  signal: NodeJS.Signals | null
  stderr: string
  /** From the signal to the end. */
  ms: number
}

function interrupt(args: readonly string[], signal: NodeJS.Signals, afterMs: number): Promise<Ending> {
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'ignore', 'pipe'] })
  let stderr = ''
  let sent = performance.now()
  child.stderr.on('data', (t) => (stderr += t))
  const timer = setTimeout(() => {
    sent = performance.now()
    child.kill(signal)
  }, afterMs)
  const late = setTimeout(() => child.kill('SIGKILL'), 25_000)
  return new Promise((resolve) => {
    child.on('close', (code, by) => {
      clearTimeout(timer)
      clearTimeout(late)
      resolve({ code, signal: by, stderr, ms: performance.now() - sent })
    })
  })
}

describe.skipIf(process.platform === 'win32')('signals', () => {
  it('convert, logits and tensor leave a whole output or none', { timeout: 240_000 }, async () => {
    const model = bulky()
    const plain = writeModel(join(root, 'plain'))
    const roll = dice(5)
    const endings = new Set<string>()
    for (let i = 0; i < 18; i++) {
      const folder = join(root, `out${i}`)
      mkdirSync(folder)
      const out = join(folder, 'result')
      const args = [
        ['convert', model, '-o', out, '--tensors-only'],
        ['tensor', model, 'extra5', '-o', out, '--as', 'f32'],
        ['logits', plain, '--ids', '5,6,7', '--memory', '512MiB', '-o', out],
      ][i % 3]!
      const e = await interrupt(args, (['SIGINT', 'SIGTERM', 'SIGHUP'] as const)[roll(3)]!, 100 + roll(700))
      endings.add(`${e.signal ?? e.code}`)
      expect(e.signal).not.toBe('SIGKILL')
      if (e.signal === null) expect([0, 130], e.stderr).toContain(e.code)
      expect(e.ms).toBeLessThan(10_000)
      const left = readdirSync(folder)
      expect(
        left.filter((name) => name !== 'result'),
        `${args[0]} ${e.signal ?? e.code}`,
      ).toEqual([])
      if (!existsSync(out)) continue
      if (i % 3 === 0) await (await open(out, { verify: 'eager' })).close()
      else expect(readFileSync(out).length).toBe(i % 3 === 1 ? 4_000_000 : 128 + 3 * 64 * 4)
    }
    expect(endings.size).toBeGreaterThan(1)
  })

  it.each(['SIGINT', 'SIGTERM'] as const)('%s ends a text that is being written', async (signal) => {
    const plain = writeModel(join(root, `run-${signal}`))
    const e = await interrupt(
      ['run', plain, '--ids', '5', '--memory', '512MiB', '--context', '64', '--max-tokens', '60'],
      signal,
      400,
    )
    expect([null, 0, 130]).toContain(e.code)
    expect(e.ms).toBeLessThan(5_000)
  })
})
