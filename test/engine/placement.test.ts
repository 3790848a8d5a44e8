// Where bytes lie and who computes what decides speed, never the answer: random budgets, threads, files, arenas, and stale memory.
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { type Model, open } from '#sluice/api/model.js'
import { convertToWia } from '#sluice/convert/convert.js'
import type { AttachedAdapter } from '#sluice/engine/adapters.js'
import { allocate, reservedBytes } from '#sluice/engine/bind.js'
import { createEngine, type EngineOptions, sizeEngine } from '#sluice/engine/create.js'
import type { KernelSetName } from '#sluice/kernels/kernels.js'
import { KERNEL_SETS } from '#sluice/kernels/select.js'
import { createArenas } from '#sluice/memory/arena.js'
import { data, dataTest } from '../data.ts'
import { logitsOf, randomOf, sameBytes } from './run.ts'
import { attached, STORYTELLER } from './storyteller.ts'

/** Memories that engines of this file made, so that a test can look at them. */
const memories: WebAssembly.Memory[] = []
const RealMemory = WebAssembly.Memory
WebAssembly.Memory = class extends RealMemory {
  constructor(descriptor: WebAssembly.MemoryDescriptor) {
    super(descriptor)
    memories.push(this)
  }
}

const dir = mkdtempSync(join(tmpdir(), 'sluice-placement-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

/** 40 ids, all below 400: real enough for every model here. */
const IDS = Array.from({ length: 40 }, (_, i) => 1 + ((i * 97) % 390))
const MiB = 1024 ** 2

async function run(
  model: Model,
  options: EngineOptions,
  parts: readonly number[] = [IDS.length],
): Promise<Float32Array> {
  const engine = await model.engine({ context: 64, ...options })
  try {
    const sequence = engine.createSequence()
    const out = new Float32Array(IDS.length * engine.vocabulary)
    let at = 0
    for (const n of parts) {
      out.set(await sequence.forward(IDS.slice(at, at + n), { logits: 'all' }), at * engine.vocabulary)
      at += n
    }
    return out
  } finally {
    await engine.close()
  }
}

/** Cuts n into random parts. */
function cut(n: number, random: (n: number) => number): number[] {
  const parts: number[] = []
  for (let left = n; left > 0; left -= parts.at(-1)!) parts.push(1 + random(Math.min(left, 17)))
  return parts
}

/** The smallest weight memory that runs the model so. */
async function smallest(model: Model, options: EngineOptions): Promise<number> {
  const err = await model.engine({ ...options, weightMemory: 1 }).then(
    () => undefined,
    (e: { code: string; details: { requiredBytes: number } }) => e,
  )
  expect(err?.code).toBe('BUDGET_TOO_SMALL')
  return err!.details.requiredBytes
}

/** Random variants of one model: within a kernel set and precision all logits are the same bytes. */
async function invariant(
  path: string,
  seed: number,
  variants: number,
  adapter?: (m: Model) => Promise<AttachedAdapter[]>,
) {
  const random = randomOf(seed)
  const model = await open(path)
  try {
    const adapters = (await adapter?.(model)) ?? []
    for (const precision of ['exact', 'fast'] as const) {
      for (const kernels of KERNEL_SETS as KernelSetName[]) {
        if (kernels === 'scalar' && random(3) > 0) continue // slow, and the truth of other tests
        let first: Float32Array | undefined
        for (let i = 0; i < variants; i++) {
          const base = {
            precision,
            kernels,
            adapters,
            threads: 1 + random(4),
            ioMode: (['auto', 'mmap', 'pread', 'direct'] as const)[random(4)]!,
          }
          const least = await smallest(model, base)
          const options: EngineOptions = {
            ...base,
            context: 40 + random(88),
            verify: random(2) === 0 ? 'lazy' : 'off',
            // The minimum, a little more, or anything up to all of it.
            ...[
              { weightMemory: least },
              { weightMemory: least + random(4096) },
              { weightMemory: least + random(8 * MiB) },
              {},
            ][random(4)],
          }
          const parts = random(2) === 0 ? [IDS.length] : cut(IDS.length, random)
          const got = await run(model, options, parts)
          first ??= got
          expect(sameBytes(got, first), JSON.stringify({ ...options, adapters: adapters.length, parts })).toBe(true)
        }
        expect(first!.every(Number.isFinite)).toBe(true)
      }
    }
  } finally {
    await model.close()
  }
}

async function converted(path: string, quantization: 'int8' | 'int4' | 'int4m' | 'nf4' | 'fp8_e4m3'): Promise<string> {
  const out = join(dir, `${path.replaceAll(/[^a-z0-9]/gi, '_').slice(-30)}-${quantization}.wia`)
  if (existsSync(out)) return out
  const model = await open(path)
  try {
    await convertToWia(model.reader, model.architecture(), out, { quantization })
  } finally {
    await model.close()
  }
  return out
}

const pirate = async (m: Model) => [await attached(m, 'pirate', 0.7)]

describe('random budgets, threads, files, chunks', () => {
  test('storyteller', () => invariant(STORYTELLER, 1, 3))
  test('storyteller with an adapter', () => invariant(STORYTELLER, 2, 2, pirate))
  test.each(['int8', 'int4', 'int4m', 'nf4', 'fp8_e4m3'] as const)('storyteller in %s', async (q) =>
    invariant(await converted(STORYTELLER, q), 3, 2, q === 'int4' ? pirate : undefined),
  )
  dataTest('checkpoint of three shards', () => invariant(data('stories260k', 'hf'), 4, 3))
  dataTest('GGUF Q4_0', () => invariant(data('stories260k', 'gguf', 'stories260K-ffn192-Q4_0.gguf'), 5, 2))
  dataTest('GGUF Q8_0 with bytes the other way round', () =>
    invariant(data('foreign', 'gguf', 'stories260K-ffn192-Q8_0-bigendian.gguf'), 6, 2),
  )
  dataTest('mixture of experts', () => invariant(data('stories-moe', 'hf'), 7, 2))
  dataTest('mixture of experts in int4', async () =>
    invariant(await converted(data('stories-moe', 'hf'), 'int4'), 8, 2),
  )
})

describe('several arenas', () => {
  async function spread(path: string, arenaBytes: number, adapter?: (m: Model) => Promise<AttachedAdapter[]>) {
    const model = await open(path)
    try {
      const adapters = (await adapter?.(model)) ?? []
      for (const precision of ['exact', 'fast'] as const) {
        const want = await run(model, { precision, threads: 2, adapters })
        for (const options of [{ threads: 1 }, { threads: 3 }, { threads: 2, weightMemory: 2 * MiB }]) {
          memories.length = 0
          const got = await run(model, { precision, adapters, arenaBytes, ...options }, [1, 20, 19])
          if (!('weightMemory' in options)) expect(memories.length).toBeGreaterThan(2)
          expect(sameBytes(got, want), JSON.stringify(options)).toBe(true)
        }
      }
    } finally {
      await model.close()
    }
  }

  test('storyteller', () => spread(STORYTELLER, 64 * 65536))
  test('storyteller with an adapter', () => spread(STORYTELLER, 64 * 65536, pirate))
  test('storyteller in int8', async () => spread(await converted(STORYTELLER, 'int8'), 40 * 65536))
  test('storyteller in int4', async () => spread(await converted(STORYTELLER, 'int4'), 40 * 65536, pirate))
  dataTest('mixture of experts', () => spread(data('stories-moe', 'hf'), 64 * 65536))
  dataTest('mixture of experts in int4', async () =>
    spread(await converted(data('stories-moe', 'hf'), 'int4'), 40 * 65536),
  )
})

describe('stale memory', () => {
  // The addresses that createEngine gives out are a function of its options: a second allocation tells them.
  async function poisoned(path: string, options: EngineOptions) {
    const model = await open(path)
    try {
      const all = { context: 64, threads: 2, ...options, adapters: path === STORYTELLER ? await pirate(model) : [] }
      const sizing = sizeEngine(model.reader, model.architecture(), all)
      const { plan, layout } = sizing
      memories.length = 0
      const engine = await createEngine(model.reader, model.architecture(), all)
      const memory = memories[0]!
      const areas = allocate(plan, layout, createArenas({ reserved: reservedBytes(layout, 2) }), 2)
      const rowsOf = (i: number) => (plan.buffers[i]!.offset < plan.logitsFrom ? layout.tokensMax : layout.logitRows)
      const floats = new Float32Array(memory.buffer)
      const want = await logitsOf(engine, IDS)
      let padding = 0
      for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 1e30]) {
        areas.buffers.forEach((b, i) => {
          for (let t = 0; t < rowsOf(i); t++) {
            const at = b.address / 4 + t * b.stride
            for (let c = b.width; c < b.stride; c++) {
              padding++
              if (floats[at + c] !== 0)
                throw new Error(`padding of ${plan.buffers[i]!.name}, row ${t}, column ${c}: ${floats[at + c]}`)
            }
            floats.fill(value, at, at + b.width)
          }
        })
        expect(sameBytes(await logitsOf(engine, IDS.slice(0, 40)), want)).toBe(true)
      }
      await engine.close()
      return padding
    } finally {
      await model.close()
    }
  }

  test.each(['exact', 'fast'] as const)(
    'no step reads what it has not written, and padding stays zero: %s',
    async (precision) => {
      expect(await poisoned(STORYTELLER, { precision })).toBeGreaterThan(0)
    },
  )
  dataTest.each(['exact', 'fast'] as const)('… with experts and odd widths: %s', async (precision) => {
    expect(await poisoned(data('stories-moe', 'hf'), { precision })).toBeGreaterThanOrEqual(0)
    expect(await poisoned(data('stories260k', 'hf'), { precision })).toBeGreaterThan(0)
  })
})
