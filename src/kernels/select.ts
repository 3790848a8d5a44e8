// Which kernel set to use: the fastest one that this engine compiles and that passes its self-test; or exactly the one asked for.
import { SluiceError } from '../base/errors.ts'
import type { KernelSetName, Kernels } from './kernels.ts'
import { createScalarKernels } from './scalar/scalar.ts'
import { selfTest } from './selftest.ts'
import { compileKernels, createWasmKernels, kernelBytes, type WasmSetName } from './wasm/wasm.ts'

/** What selectKernels found; can be posted to worker threads and given to createKernels there. */
export interface KernelSelection {
  readonly set: KernelSetName
  /** The compiled module; null for scalar. */
  readonly module: WebAssembly.Module | null
  /** Why this set, and why not a faster one: for doctor and reports. */
  readonly reason: string
}

export const KERNEL_SETS: readonly KernelSetName[] = ['wasm-relaxed', 'wasm-baseline', 'scalar']

/**
 * Chooses a kernel set. `force`, or else the environment variable SLUICE_KERNELS, names the only one that will do.
 * Throws KERNEL_UNAVAILABLE when that set is unknown, does not compile here or fails its self-test.
 */
export async function selectKernels({
  force = forcedByEnvironment(),
}: {
  force?: KernelSetName | undefined
} = {}): Promise<KernelSelection> {
  if (force !== undefined) {
    if (!KERNEL_SETS.includes(force))
      throw new SluiceError('KERNEL_UNAVAILABLE', {
        what: 'unknown kernel set',
        expected: KERNEL_SETS.join(', '),
        got: force,
        remedy: 'Set SLUICE_KERNELS to one of these, or leave it unset.',
      })
    const tried = await trySet(force)
    if (typeof tried === 'string')
      throw new SluiceError('KERNEL_UNAVAILABLE', {
        what: `kernel set ${force} was asked for and cannot be used here: ${tried}`,
        remedy: 'Ask for another set, or for none.',
      })
    return { set: force, module: tried, reason: 'asked for' }
  }
  const refused: string[] = []
  for (const set of KERNEL_SETS) {
    const tried = await trySet(set)
    if (typeof tried === 'string') refused.push(`${set}: ${tried}`)
    else return { set, module: tried, reason: ['the fastest set that passed its self-test', ...refused].join('; not ') }
  }
  throw new SluiceError('INTERNAL', { what: 'no kernel set can be used' })
}

/** Binds the chosen set to a memory, in any thread. `thread` is 0…63 and no two threads may have the same. */
export function createKernels(
  selection: Pick<KernelSelection, 'set' | 'module'>,
  memory: WebAssembly.Memory,
  thread: number,
): Kernels {
  if (selection.set === 'scalar') return createScalarKernels(memory)
  if (selection.module === null)
    throw new SluiceError('INTERNAL', { what: `kernel set ${selection.set} without a module` })
  return createWasmKernels({ set: selection.set, module: selection.module, memory, thread })
}

function forcedByEnvironment(): KernelSetName | undefined {
  const value = globalThis.process?.env?.SLUICE_KERNELS
  return value === undefined || value === '' ? undefined : (value as KernelSetName)
}

/** The module, null for scalar, or why the set cannot be used. */
async function trySet(set: KernelSetName): Promise<WebAssembly.Module | null | string> {
  if (set === 'scalar') return null
  if (set === 'wasm-relaxed') await enableRelaxedSimd()
  if (!WebAssembly.validate(kernelBytes(set))) return 'this engine does not have the instructions'
  const module = compileKernels(set)
  const wrong = selfTest(set, module)
  return wrong === undefined ? module : `the self-test failed: ${wrong}`
}

/** Node 20 has relaxed SIMD behind a flag of V8, which may be set while running. */
async function enableRelaxedSimd(): Promise<void> {
  const relaxed: WasmSetName = 'wasm-relaxed'
  if (WebAssembly.validate(kernelBytes(relaxed)) || globalThis.process?.versions?.node === undefined) return
  const name = 'node:v8'
  const v8 = (await import(name)) as typeof import('node:v8')
  v8.setFlagsFromString('--experimental-wasm-relaxed-simd')
}
