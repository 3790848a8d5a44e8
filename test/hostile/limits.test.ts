// Limits of the system: few file descriptors, little address space. A code and a sentence, never an abort of V8.

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { open } from '#sluice/api/model.js'
import { cli, isRefusal } from './cli.ts'
import { safetensors, scratch, weights, writeModel } from './models.ts'

const linux = process.platform === 'linux'
const root = scratch()
const model = writeModel(join(root, 'model'))
const run = ['run', model, '--ids', '5', '--memory', '512MiB', '--max-tokens', '2']

describe.skipIf(!linux)('limits', () => {
  // KiB. Below a gigabyte Node itself does not start.
  it.each([2_000_000, 9_000_000, 12_000_000, 13_000_000, 20_000_000, 45_000_000])('ulimit -v %d', async (kib) => {
    const o = await cli(run, { before: `ulimit -v ${kib}` })
    expect(o.signal, o.stderr).toBe(null)
    if (o.code !== 0) expect(isRefusal(o), o.stderr).toBe(true)
    if (kib <= 13_000_000) expect(o.code).toBe(4)
  })

  it.each([24, 32, 48])('ulimit -n %d', async (files) => {
    const o = await cli(run, { before: `ulimit -n ${files}` })
    if (o.code !== 0) expect(isRefusal(o), o.stderr).toBe(true)
  })

  it('more shards than descriptors', async () => {
    const folder = writeModel(join(root, 'shards'))
    const map: Record<string, string> = {}
    const all = [...weights()]
    for (let i = 0; i < 300; i++) {
      const file = `s${i}.safetensors`
      const tensors = i < all.length ? [all[i]!] : [[`extra${i}`, { shape: [1], data: new Float32Array(1) }] as const]
      for (const [name] of tensors) map[name] = file
      writeFileSync(join(folder, file), safetensors(new Map(tensors)))
    }
    writeFileSync(join(folder, 'x.safetensors.index.json'), JSON.stringify({ weight_map: map }))
    const o = await cli(['verify', join(folder, 'x.safetensors.index.json')], { before: 'ulimit -n 200' })
    expect(isRefusal(o), o.stderr).toBe(true)
    expect(o.stderr).toContain('too many open files')
    await (await open(join(folder, 'x.safetensors.index.json'))).close()
  })
})
