// Opens an engine: graph → plan → budget → pager → threads. Everything that can be refused is refused here, before a weight is read.

import type { ArchOutput } from '../arch/arch.ts'
import { formatBytes } from '../base/bytes.ts'
import { BudgetError, isSluiceError, type SluiceError, ValidationError } from '../base/errors.ts'
import { roundUp } from '../base/shape.ts'
import type { ModelReader } from '../format/reader.ts'
import { compile } from '../graph/compile.ts'
import type { Plan } from '../graph/plan.ts'
import type { KernelSetName } from '../kernels/kernels.ts'
import { selectKernels } from '../kernels/select.ts'
import { createArenas, MAX_ARENA_BYTES } from '../memory/arena.ts'
import { createBudget } from '../memory/budget.ts'
import { addressSpaceLeft, cpuCount, machineMemory, processResident } from '../memory/machine.ts'
import type { Budget } from '../memory/memory.ts'
import { createPager, planPager } from '../pager/create.ts'
import type { PagerPlan } from '../pager/pager.ts'
import type { IoMode } from '../source/source.ts'
import { type AttachedAdapter, adapterWeight } from './adapters.ts'
import { processAllowance } from './allowance.ts'
import { allocate, bind, reservedBytes } from './bind.ts'
import { THREADS_MAX } from './control.ts'
import type { Engine, Precision } from './engine.ts'
import { KV_PAGE_TOKENS } from './kv.ts'
import { type Layout, layoutOf, SEQUENCES_MAX, scratchBytes } from './layout.ts'
import { publishEngine } from './news.ts'
import { firstGroups } from './program.ts'
import { RunningEngine } from './running.ts'
import { Threads } from './threads.ts'
import { loadRopes, Weights } from './weights.ts'

/** How an engine is started. Amounts of memory in bytes. */
export interface EngineOptions {
  /** Bytes for the whole process. Default: what the machine and its control group allow, less a reserve. */
  readonly memory?: number
  /** Cap on resident weight pages (pinned and ring), for experiments. */
  readonly weightMemory?: number
  readonly threads?: number
  readonly precision?: Precision
  readonly ioMode?: 'auto' | IoMode
  /** Check SHA-256 of pages on first touch, where the format has them. 'eager' happened when the model was opened; here it is 'lazy'. */
  readonly verify?: 'eager' | 'lazy' | 'off'
  /** Positions a sequence may have. Default: the model's context, at most 4096. */
  readonly context?: number
  /** Positions the cache has room for over all sequences, in blocks of 16. Default: `context`. */
  readonly cacheTokens?: number
  readonly kernels?: KernelSetName
  readonly adapters?: readonly AttachedAdapter[]
  /** Largest arena, a multiple of 65536: for tests of models that take several. */
  readonly arenaBytes?: number
}

/** Default room of the cache: longer contexts are asked for. */
const CONTEXT_DEFAULT = 4096
/** Kept free of the machine's memory when no budget is given. */
const MACHINE_RESERVE = 0.1
/** Activations of a prompt chunk may take this, and so much of the budget, but of what is left for weights only a part. */
const ACTIVATION_BYTES = 8 * 1024 * 1024
const ACTIVATION_SHARE = 0.08
const ACTIVATION_FREE = 1 / 4

/** What an engine will hold, before anything is allocated or read: the same numbers createEngine uses. */
export interface Sizing {
  readonly plan: Plan
  readonly layout: Layout
  readonly threads: number
  readonly context: number
  readonly totalBytes: number
  readonly processBytes: number
  readonly weightBytes: number
  /** The smallest budget whose weight memory is at least so much; and the one from which on it is, whatever else grows with a budget. */
  requiredBytes(weightBytes: number): number
  residentBytes(weightBytes: number): number
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
  if (!Number.isInteger(threads) || threads < 1 || threads > THREADS_MAX)
    throw new ValidationError('REQUEST_INVALID', {
      what: 'thread count is out of range',
      expected: `1 … ${THREADS_MAX}`,
      got: threads,
    })
  const context = options.context ?? Math.min(plan.contextLength, CONTEXT_DEFAULT)
  if (!Number.isInteger(context) || context < 1 || context > plan.contextLength)
    throw new ValidationError('REQUEST_INVALID', {
      what: 'context is out of range',
      expected: `1 … ${plan.contextLength}`,
      got: context,
    })
  const cacheTokens = options.cacheTokens ?? context
  if (!Number.isSafeInteger(cacheTokens) || cacheTokens < 1 || cacheTokens > context * SEQUENCES_MAX)
    throw new ValidationError('REQUEST_INVALID', {
      what: 'room of the cache is out of range',
      expected: `1 … ${context * SEQUENCES_MAX} tokens`,
      got: cacheTokens,
    })
  checkBytes('memory', options.memory)
  checkBytes('weight memory', options.weightMemory)
  const resident = processResident()
  const totalBytes = options.memory ?? Math.floor(resident + machineMemory().availableBytes * (1 - MACHINE_RESERVE))
  const processBytes = processAllowance(resident, threads + 1, totalBytes)
  const weights = new Weights(reader, arch, adapters)
  const layoutWith = (activationBytes: number): Layout =>
    layoutOf(plan, {
      precision: options.precision ?? 'fast',
      threads,
      context,
      cacheTokens,
      arenas: Math.ceil(totalBytes / (options.arenaBytes ?? MAX_ARENA_BYTES)),
      activationBytes,
      vectorFloats: weights.vectorFloats(plan),
      adapterBytes: weights.adapterBytes(),
    })
  const least = layoutWith(ACTIVATION_BYTES)
  const free = totalBytes - processBytes - least.totalBytes
  // Never more than a part of what weights would have otherwise: so a budget that requiredBytes() names always works.
  const layout = layoutWith(
    ACTIVATION_BYTES + Math.max(0, Math.min(totalBytes * ACTIVATION_SHARE, free * ACTIVATION_FREE)),
  )
  const rest = totalBytes - processBytes - layout.totalBytes
  const weightBytes = Math.min(rest, options.weightMemory ?? Number.POSITIVE_INFINITY)
  const sum = (weightsNeed: number, share: number, own: Layout): number =>
    processAllowance(resident, threads + 1, 0) + own.totalBytes + Math.ceil(weightsNeed * share)
  // Page tables are a share of the sum itself. Whole MiB, so that a text that shows it says it all.
  const budgetFor = (...s: Parameters<typeof sum>): number => roundUp(Math.ceil(sum(...s) * (1 + 1 / 256)), 1024 * 1024)
  const requiredBytes = (weightsNeed: number): number => budgetFor(weightsNeed, 1 / (1 - ACTIVATION_FREE), least)
  const residentBytes = (weightsNeed: number): number => budgetFor(weightsNeed, 1, layoutWith(Number.POSITIVE_INFINITY))
  const tooSmall = (cause?: SluiceError): BudgetError => {
    const weightsNeed = Number(cause?.details.requiredBytes ?? 0)
    const capped = options.weightMemory !== undefined && weightBytes < rest
    const [required, got] = capped ? [weightsNeed, weightBytes] : [requiredBytes(weightsNeed), totalBytes]
    return new BudgetError('BUDGET_TOO_SMALL', {
      what: capped ? 'weight memory is too small for this model' : 'memory budget is too small for this model',
      expected: capped ? `≥ ${required} bytes (${formatBytes(required)})` : `≥ ${required / 1024 ** 2} MiB`,
      got: formatBytes(got),
      remedy: capped ? 'Give more weight memory.' : 'Give more memory, a shorter context, or fewer threads.',
      details: { budgetBytes: got, requiredBytes: required },
      cause,
    })
  }
  return {
    plan,
    layout,
    threads,
    context,
    totalBytes,
    processBytes,
    weightBytes: Math.max(0, weightBytes),
    requiredBytes,
    residentBytes,
    tooSmall,
  }
}

function checkBytes(what: string, bytes: number | undefined): void {
  if (bytes !== undefined && !(Number.isSafeInteger(bytes) && bytes > 0))
    throw new ValidationError('REQUEST_INVALID', { what: `${what} is not a count of bytes`, got: bytes })
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
  budget.reserve(b.kv, 'kv', `cache for ${s.layout.kvBlocks * KV_PAGE_TOKENS} tokens`)
  budget.reserve(b.adapters, 'adapters', 'adapter matrices')
  budget.reserve(scratchBytes(s.layout), 'scratch', 'activations, logits and tables')
}

/** What of the weights would stay and what stream. Throws BUDGET_TOO_SMALL, saying the budget that would do. */
export function planWeights(sizing: Sizing, weights: Weights, options: EngineOptions): PagerPlan {
  try {
    const { plan } = planPager({
      reader: weights.reader,
      names: pagedNames(sizing.plan, weights),
      groups: pagedGroups(sizing.plan, weights),
      weightBytes: sizing.weightBytes,
      ioMode: options.ioMode ?? 'auto',
    })
    return plan.summary
  } catch (err) {
    throw isSluiceError(err, 'BUDGET_TOO_SMALL') ? sizing.tooSmall(err) : err
  }
}

/** Tensor names of those steps. */
function pagedNames(plan: Plan, weights: Weights): string[] {
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
  const verify = options.verify === 'off' ? 'off' : 'lazy'
  const weights = new Weights(reader, arch, options.adapters ?? [], verify)
  planWeights(sizing, weights, options)
  const budget = createBudget(sizing.totalBytes)
  reserveAll(budget, sizing)
  const arenas = createArenas({
    reserved: reservedBytes(layout, threads),
    ...(options.arenaBytes === undefined ? {} : { maxArenaBytes: options.arenaBytes }),
  })
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
    verify,
    threads,
    kernels,
  })
  let pool: Threads | undefined
  try {
    const ropes = await loadRopes(plan, weights)
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
    pool = await Threads.start(threads, {
      pages: pager.shared,
      memories: arenas.arenas.map((a) => a.memory),
      program: bound.program,
      kernels,
    })
    publishEngine(() => {
      const { pinnedBytes, streamedBytesPerPass, ioMode } = pager.report()
      return {
        model: reader.path,
        format: reader.format,
        precision,
        kernels: kernels.set,
        threads,
        context: sizing.context,
        chunkTokens: layout.tokensMax,
        budgetBytes: budget.total,
        byOwner: budget.report(),
        pinnedBytes,
        streamedBytesPerPass,
        ioMode,
      }
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
    await pool?.close()
    await pager.close()
    await weights.close()
    throw err
  }
}
