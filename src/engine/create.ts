// Opens an engine: graph → plan → budget → pager → threads. Everything that can be refused is refused here, before a weight is read.

import type { ArchOutput } from '../arch/arch.ts'
import { formatBytes } from '../base/bytes.ts'
import { BudgetError, isSluiceError, type SluiceError, ValidationError } from '../base/errors.ts'
import type { ModelReader } from '../format/reader.ts'
import { compile } from '../graph/compile.ts'
import type { Plan } from '../graph/plan.ts'
import type { KernelSetName } from '../kernels/kernels.ts'
import { selectKernels } from '../kernels/select.ts'
import { createArenas } from '../memory/arena.ts'
import { createBudget } from '../memory/budget.ts'
import { addressSpaceLeft, cpuCount, machineMemory, processResident } from '../memory/machine.ts'
import type { Budget } from '../memory/memory.ts'
import { createPager } from '../pager/create.ts'
import type { IoMode } from '../source/source.ts'
import { type AttachedAdapter, adapterWeight } from './adapters.ts'
import { processAllowance } from './allowance.ts'
import { allocate, bind, reservedBytes } from './bind.ts'
import type { Engine, Precision } from './engine.ts'
import { type Layout, layoutOf } from './layout.ts'
import { firstGroups } from './program.ts'
import { RunningEngine } from './running.ts'
import { Threads } from './threads.ts'
import { loadRopes, Weights } from './weights.ts'

export interface EngineOptions {
  /** Bytes for the whole process. Default: what the machine and its control group allow, less a reserve. */
  readonly memory?: number
  /** Cap on resident weight pages (pinned and ring), for experiments. */
  readonly weightMemory?: number
  readonly threads?: number
  readonly precision?: Precision
  readonly ioMode?: 'auto' | IoMode
  readonly verify?: 'eager' | 'lazy' | 'off'
  /** Positions to keep room for over all sequences. Default: the model's context, at most 4096. */
  readonly context?: number
  readonly kernels?: KernelSetName
  readonly adapters?: readonly AttachedAdapter[]
}

/** Default room of the cache: longer contexts are asked for. */
const CONTEXT_DEFAULT = 4096
/** Kept free of the machine's memory when no budget is given. */
const MACHINE_RESERVE = 0.1
/** Activations of a prompt chunk may take this share of the budget, and at least 8 MiB. */
const ACTIVATION_SHARE = 0.08

/** What an engine will hold, before anything is allocated or read: the same numbers createEngine uses. */
export interface Sizing {
  readonly plan: Plan
  readonly layout: Layout
  readonly threads: number
  readonly context: number
  readonly totalBytes: number
  readonly processBytes: number
  readonly weightBytes: number
  /** The pager's refusal, which speaks of weights, as one that speaks of the budget the caller gave. */
  tooSmall(cause: SluiceError): BudgetError
}

/** Pure but for looking at the machine: how a budget is divided. Throws BUDGET_TOO_SMALL, REQUEST_INVALID. */
export function sizeEngine(reader: ModelReader, arch: ArchOutput, options: EngineOptions): Sizing {
  const adapters = options.adapters ?? []
  const plan = compile(arch.graph, {
    adapters: adapters.flatMap((adapter, i) =>
      adapter.pairs.map((p) => ({
        target: p.target,
        a: adapterWeight(i, p, 'A'),
        b: adapterWeight(i, p, 'B'),
        rank: p.rank,
        scale: p.scale * adapter.scale,
      })),
    ),
  })
  const threads = options.threads ?? cpuCount()
  if (!Number.isInteger(threads) || threads < 1 || threads > 64)
    throw new ValidationError('REQUEST_INVALID', {
      what: 'thread count is out of range',
      expected: '1 … 64',
      got: threads,
    })
  const context = options.context ?? Math.min(plan.contextLength, CONTEXT_DEFAULT)
  if (!Number.isInteger(context) || context < 1 || context > plan.contextLength)
    throw new ValidationError('REQUEST_INVALID', {
      what: 'context is out of range',
      expected: `1 … ${plan.contextLength}`,
      got: context,
    })
  const machine = machineMemory()
  const totalBytes = options.memory ?? Math.floor(processResident() + machine.availableBytes * (1 - MACHINE_RESERVE))
  const processBytes = processAllowance(processResident(), threads + 1)
  const weights = new Weights(reader, arch, adapters)
  const layout = layoutOf(plan, {
    precision: options.precision ?? 'fast',
    threads,
    context,
    activationBytes: Math.max(8 * 1024 * 1024, Math.floor(totalBytes * ACTIVATION_SHARE)),
    vectorFloats: weights.vectorFloats(plan),
    adapterBytes: weights.adapterBytes(),
  })
  const own = Object.values(layout.bytes).reduce((a, b) => a + b, 0)
  const rest = totalBytes - processBytes - own
  const weightBytes = Math.min(rest, options.weightMemory ?? Number.POSITIVE_INFINITY)
  const tooSmall = (cause?: SluiceError): BudgetError => {
    const weightsNeed = Number(cause?.details.requiredBytes ?? 0)
    const capped = options.weightMemory !== undefined && weightBytes < rest
    const [required, got] = capped ? [weightsNeed, weightBytes] : [processBytes + own + weightsNeed, totalBytes]
    return new BudgetError('BUDGET_TOO_SMALL', {
      what: capped ? 'weight memory is too small for this model' : 'memory budget is too small for this model',
      expected: `≥ ${formatBytes(required)}`,
      got: formatBytes(got),
      remedy: capped ? 'Give more weight memory.' : 'Give more memory, a shorter context, or fewer threads.',
      details: { budgetBytes: got, requiredBytes: required },
      cause,
    })
  }
  if (rest <= 0) throw tooSmall()
  return { plan, layout, threads, context, totalBytes, processBytes, weightBytes, tooSmall }
}

/** Address space of a thread: V8's code range (128 MiB), heap and stack, WebAssembly tables. Measured: 0.6 GB. */
const THREAD_ADDRESS_BYTES = 1024 ** 3

function checkAddressSpace(threads: number): void {
  const needed = threads * THREAD_ADDRESS_BYTES
  const left = addressSpaceLeft()
  if (left >= needed) return
  throw new BudgetError('BUDGET_EXCEEDED', {
    what: `the limit on address space (ulimit -v) leaves too little for ${threads} threads`,
    expected: `≥ ${formatBytes(needed)} left`,
    got: formatBytes(left),
    remedy: 'Raise ulimit -v, or use fewer threads.',
    details: { wantedBytes: needed, availableBytes: left },
  })
}

function reserveAll(budget: Budget, s: Sizing): void {
  const b = s.layout.bytes
  budget.reserve(s.processBytes, 'process', 'Node, threads and tokenizer')
  budget.reserve(b.kv, 'kv', `cache for ${s.context} tokens`)
  budget.reserve(b.adapters, 'adapters', 'adapter matrices')
  budget.reserve(
    b.activations + b.logits + b.quantized + b.tables + b.vectors,
    'scratch',
    'activations, logits and tables',
  )
}

/** Tensor names of those steps. */
export function pagedNames(plan: Plan, weights: Weights): string[] {
  return pagedSteps(plan, weights).map((i) => weights.tensorName((plan.steps[i] as { weight: string }).weight))
}

/** Which expert each of them belongs to: a group of the pager, numbered over all routes; -1 for what every pass needs. */
export function pagedGroups(plan: Plan, weights: Weights): number[] {
  const first = firstGroups(plan)
  return pagedSteps(plan, weights).map((i) => {
    const step = plan.steps[i]!
    return step.op === 'linear' && step.tokens.kind === 'expert' ? first[step.tokens.route]! + step.tokens.expert : -1
  })
}

/** Indices of the linear steps whose weights are paged, in plan order. */
function pagedSteps(plan: Plan, weights: Weights): number[] {
  return plan.steps.flatMap((s, i) => (s.op === 'linear' && !weights.isAdapter(s.weight) ? [i] : []))
}

/**
 * Opens an engine over a model. Nothing is read but norm weights and adapters; pages come with the first pass.
 * Throws BUDGET_TOO_SMALL, ARCH_UNSUPPORTED, TENSOR_*, QUANT_UNSUPPORTED, SOURCE_MODE, KERNEL_UNAVAILABLE, REQUEST_INVALID.
 */
export async function createEngine(
  reader: ModelReader,
  arch: ArchOutput,
  options: EngineOptions = {},
): Promise<Engine> {
  const sizing = sizeEngine(reader, arch, options)
  const { plan, layout, threads } = sizing
  const precision = options.precision ?? 'fast'
  const kernels = await selectKernels(options.kernels === undefined ? {} : { force: options.kernels })
  const budget = createBudget(sizing.totalBytes)
  reserveAll(budget, sizing)

  const weights = new Weights(reader, arch, options.adapters ?? [])
  const arenas = createArenas({ reserved: reservedBytes(layout, threads) })
  const areas = allocate(plan, layout, arenas, threads)
  const base = arenas.arenas[0]!
  checkAddressSpace(threads + 1)
  const pager = await createPager({
    reader: weights.reader,
    names: pagedNames(plan, weights),
    groups: pagedGroups(plan, weights),
    arenas,
    budget,
    weightBytes: sizing.weightBytes,
    ioMode: options.ioMode ?? 'auto',
    verify: options.verify === 'off' ? 'off' : 'lazy',
    threads,
    kernels,
  }).catch((err: unknown) => {
    throw isSluiceError(err, 'BUDGET_TOO_SMALL') ? sizing.tooSmall(err) : err
  })
  try {
    const paged = new Map(pagedSteps(plan, weights).map((step, at) => [step, pager.matrices[at]!]))
    const residents = await weights.load(plan, base.memory, areas.vectors, areas.adapters)
    const bound = bind({
      plan,
      layout,
      arenas,
      areas,
      precision,
      threads,
      weight: (step) => {
        const matrix = paged.get(step)
        if (matrix !== undefined) return { paged: matrix }
        return { resident: residents.matrices.get((plan.steps[step] as { weight: string }).weight)! }
      },
      vector: (name) => residents.vectors.get(name)!,
    })
    const ropes = await loadRopes(plan, weights) // before the threads: what fails after they started would leave them running
    const pool = await Threads.start(threads, {
      pages: pager.shared,
      memories: arenas.arenas.map((a) => a.memory),
      program: bound.program,
      kernels,
    })
    return new RunningEngine({
      plan,
      layout,
      bound,
      pager,
      threads: pool,
      weights,
      memory: base.memory,
      budget,
      precision,
      kernels: kernels.set,
      context: sizing.context,
      ropes,
    })
  } catch (err) {
    await pager.close()
    throw err
  }
}
