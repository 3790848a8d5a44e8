// Choice of a kernel set, the committed modules, and instances over shared memory.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { afterEach, expect, test, vi } from 'vitest'
import { computeBytes, computeOf } from '#sluice/kernels/compute.js'
import { COMPUTE, type KernelSetName } from '#sluice/kernels/kernels.js'
import { createKernels, KERNEL_SETS, selectKernels } from '#sluice/kernels/select.js'
import { selfTest } from '#sluice/kernels/selftest.js'
import { compileKernels, createWasmKernels, kernelBytes } from '#sluice/kernels/wasm/wasm.js'

afterEach(() => vi.unstubAllEnvs())

test('the fastest set that passes is chosen and says why', async () => {
  vi.stubEnv('SLUICE_KERNELS', '')
  const chosen = await selectKernels()
  expect(chosen.set).toBe('wasm-relaxed')
  expect(chosen.reason).toMatch(/passed its self-test/)
})

test.each(KERNEL_SETS)('%s can be forced, by option and by environment', async (force) => {
  expect((await selectKernels({ force })).set).toBe(force)
  vi.stubEnv('SLUICE_KERNELS', force)
  const { set, module } = await selectKernels()
  expect(set).toBe(force)
  expect(module === null).toBe(force === 'scalar')
})

test('an unknown set is refused by name', async () => {
  await expect(selectKernels({ force: 'neon' as KernelSetName })).rejects.toMatchObject({ code: 'KERNEL_UNAVAILABLE' })
  vi.stubEnv('SLUICE_KERNELS', 'fast')
  await expect(selectKernels()).rejects.toThrow(/wasm-relaxed, wasm-baseline, scalar.*fast/)
})

test('a set that computes wrongly is not used: forced it is an error, else the next one is taken', async () => {
  // A module whose integer dot products are subtraction: i32x4.add (0xae 01) becomes i32x4.sub (0xb1 01).
  const broken = (bytes: Uint8Array) => {
    const copy = Uint8Array.from(bytes)
    let changed = 0
    for (let i = 0; i + 2 < copy.length; i++)
      if (copy[i] === 0xfd && copy[i + 1] === 0xae && copy[i + 2] === 0x01) {
        copy[i + 1] = 0xb1
        changed++
      }
    expect(changed).toBeGreaterThan(10)
    return copy
  }
  for (const set of ['wasm-baseline', 'wasm-relaxed'] as const) {
    const module = new WebAssembly.Module(broken(kernelBytes(set)))
    expect(selfTest(set, module)).toMatch(/computes|differs/)
    expect(selfTest(set, compileKernels(set))).toBeUndefined()
  }
  // The engine refuses the instructions of the relaxed set.
  const validate = vi
    .spyOn(WebAssembly, 'validate')
    .mockImplementation((b) => (b as Uint8Array).length !== kernelBytes('wasm-relaxed').length)
  try {
    const chosen = await selectKernels()
    expect(chosen.set).toBe('wasm-baseline')
    expect(chosen.reason).toMatch(/not wasm-relaxed: this engine does not have/)
    await expect(selectKernels({ force: 'wasm-relaxed' })).rejects.toMatchObject({ code: 'KERNEL_UNAVAILABLE' })
  } finally {
    validate.mockRestore()
  }
})

test('the committed modules were built from the committed sources', () => {
  const root = join(import.meta.dirname, '../..')
  const folder = join(root, 'native/kernels')
  const names = readdirSync(folder)
    .filter((n) => /\.[ch]$/.test(n))
    .sort()
  for (const set of ['baseline', 'relaxed']) {
    const text = readFileSync(join(root, `src/kernels/wasm/${set}.wasm.ts`), 'utf8')
    const [, , compile, link] = text.match(/\/\/ (\S+) (--target.*)\n\/\/ \S+ (.*)\n/)!
    const hash = createHash('sha256').update(JSON.stringify({ compile: compile!.split(' '), link: link!.split(' ') }))
    for (const name of names) hash.update(`\n${name}\n`).update(readFileSync(join(folder, name)))
    expect(text, `run node scripts/build-wasm.mjs`).toContain(hash.digest('hex'))
  }
})

test('threads over one memory, each with its own instance, compute the same as one', async () => {
  const selection = await selectKernels()
  const memory = new WebAssembly.Memory({ initial: 64, maximum: 64, shared: true })
  const [at, count] = [2 ** 20, 4096]
  const x = new Float32Array(memory.buffer, at, 4 * count)
  for (let i = 0; i < x.length; i++) x[i] = Math.sin(i)
  const source = `
    const { parentPort, workerData: d } = require('node:worker_threads')
    import(d.url).then(({ createKernels }) => {
      const k = createKernels(d.selection, d.memory, d.thread)
      for (let i = 0; i < 200; i++) k.rmsNorm(d.at, d.count, d.at, d.at + d.thread * d.count * 4, d.count, d.count, 1e-5, 0, 1)
      k.softmax(d.at + d.thread * d.count * 4, d.count)
      parentPort.postMessage('done')
    })`
  const url = import.meta.resolve('#sluice/kernels/select.js')
  const run = (thread: number) =>
    new Promise<void>((resolve, reject) => {
      const worker = new Worker(source, { eval: true, workerData: { url, selection, memory, thread, at, count } })
      worker.once('message', () => resolve())
      worker.once('error', reject)
    })
  await Promise.all([1, 2, 3].map(run))
  const k = createKernels(selection, memory, 0)
  const own = at + 2 ** 19
  k.rmsNorm(at, count, at, own, count, count, 1e-5, 0, 1)
  k.softmax(own, count)
  const expected = new Float32Array(memory.buffer, own, count).slice()
  for (const thread of [1, 2, 3]) expect(x.slice(thread * count, (thread + 1) * count)).toEqual(expected)
})

test('a thread without a stack and a memory without room are refused', () => {
  const module = compileKernels('wasm-baseline')
  const memory = new WebAssembly.Memory({ initial: 32, maximum: 32, shared: true })
  for (const thread of [-1, 64, 0.5])
    expect(() => createWasmKernels({ set: 'wasm-baseline', module, memory, thread })).toThrow(/stack/)
  const small = new WebAssembly.Memory({ initial: 1, maximum: 32, shared: true })
  expect(() => createWasmKernels({ set: 'wasm-baseline', module, memory: small, thread: 0 })).toThrow(/reserve/)
})

test('computeOf: what runs as it lies, what is re-laid, what needs a transcode', () => {
  expect(computeOf({ kind: 'plain', dtype: 'bfloat16' })).toMatchObject({ encoding: COMPUTE.bf16, repack: 'none' })
  expect(computeOf({ kind: 'plain', dtype: 'float32', bigEndian: true })).toBeUndefined()
  expect(computeOf({ kind: 'plain', dtype: 'int8' })).toBeUndefined()
  expect(computeOf({ kind: 'ggml', type: 'Q4_0' })).toMatchObject({ encoding: COMPUTE.int4, block: 32, repack: 'Q4_0' })
  expect(computeOf({ kind: 'ggml', type: 'Q4_K' })).toEqual({
    encoding: COMPUTE.int4m,
    block: 32,
    scaleF32: 1,
    multiplier: 1,
    repack: 'exactForm',
  })
  expect(computeOf({ kind: 'ggml', type: 'Q6_K' })).toMatchObject({ encoding: COMPUTE.f32, repack: 'exactForm' })
  expect(() => computeOf({ kind: 'ggml', type: 'constructor' as 'Q4_K' })).toThrow(
    expect.objectContaining({ code: 'QUANT_UNSUPPORTED' }),
  )
  expect(computeOf({ kind: 'ggml', type: 'Q8_0', bigEndian: true })).toBeUndefined()
  const panel = computeOf({ kind: 'panel', scheme: 'nf4', block: 64, scale: 'f32', exponent: -3 })!
  expect(panel).toEqual({ encoding: COMPUTE.nf4, block: 64, scaleF32: 1, multiplier: 0.125, repack: 'none' })
  expect(computeBytes(panel, 17, 65)).toBe(2 * 2 * (512 + 64))
  expect(computeBytes({ encoding: COMPUTE.int4, block: 32, scaleF32: 0 }, 16, 32)).toBe(288)
  expect(computeBytes({ encoding: COMPUTE.int4m, block: 32, scaleF32: 0 }, 16, 32)).toBe(320)
  expect(computeBytes({ encoding: COMPUTE.bf16, block: 0, scaleF32: 0 }, 3, 5)).toBe(30)
})
