// From tensor names in plan order to pages, and what of them stays in memory. Reads nothing.
import { BudgetError, isSluiceError, ModelFormatError, ValidationError } from '../base/errors.ts'
import type { ModelReader, TensorEntry } from '../format/reader.ts'
import { type Compute, computeBytes, computeOf } from '../kernels/compute.ts'
import { ggmlBlock, ggmlBytes } from '../quant/ggml.ts'
import type { PagedMatrix, PagerPlan } from './pager.ts'
import { cutMatrix, PAGE_BYTES, pageExtent } from './pages.ts'
import { pageSize, readBytes, type SourceShape } from './place.ts'
import { decideResidency, type PageSize, type Residency } from './residency.ts'
import { SHARED_BYTES_PER_PAGE } from './shared.ts'
import type { StreamMatrix } from './stream.ts'

export interface PlanInput {
  readonly reader: Pick<ModelReader, 'tensors'>
  /** Tensor names in plan order. */
  readonly names: readonly string[]
  /** Group of each name (an expert), or -1 for what every pass needs. Absent: all are needed. */
  readonly groups?: readonly number[]
  /** By source index. */
  readonly sources: readonly SourceShape[]
  /** Everything the pager may hold: pages, ring, staging area, tables. */
  readonly weightBytes: number
  readonly ringBytes?: number
  readonly reads: number
  /** Page size where the format does not fix it; otherwise chosen. */
  readonly pageBytes?: number
}

export interface PagePlan {
  /** Entries without aliases, in plan order. */
  readonly entries: readonly TensorEntry[]
  readonly paged: readonly PagedMatrix[]
  readonly matrices: readonly StreamMatrix[]
  readonly pageCount: number
  /** Group of each page, or -1. */
  readonly group: Int32Array
  readonly residency: Residency
  /** Bytes of state and checksum tables. */
  readonly tableBytes: number
  readonly summary: PagerPlan
}

/** Bytes of shared tables a page takes: its state, and its checksum. */
const TABLE_BYTES_PER_PAGE = SHARED_BYTES_PER_PAGE + 32
const MIN_PAGE_BYTES = 16 * 1024
/** At least so many pages fit into the memory given: small memories get small pages, or a ring of two would be most of them. */
const PAGES_IN_MEMORY = 64

/**
 * Cuts the tensors and decides what stays. Throws TENSOR_NOT_FOUND, QUANT_UNSUPPORTED (not a matrix kernels compute with, by name),
 * FORMAT_INVALID, BUDGET_TOO_SMALL (details.requiredBytes), REQUEST_INVALID.
 */
export function planPages(input: PlanInput): PagePlan {
  const { sources, weightBytes } = input
  if (!Number.isSafeInteger(weightBytes) || weightBytes < 0)
    throw new ValidationError('REQUEST_INVALID', { what: 'weightBytes is a count of bytes', got: weightBytes })
  const target = input.pageBytes ?? Math.max(MIN_PAGE_BYTES, Math.min(PAGE_BYTES, weightBytes / PAGES_IN_MEMORY))
  const entries = input.names.map((name) => resolveTensor(input.reader, name))
  const matrices: StreamMatrix[] = []
  const paged: PagedMatrix[] = []
  let pageCount = 0
  for (const entry of entries) {
    const form = computeForm(entry)
    const cut = cutMatrix(entry, target)
    checkBytes(entry, form, cut)
    matrices.push({ ...cut, firstPage: pageCount, hashed: entry.pages !== undefined })
    const { rows, cols, rowsPerPage, pageCount: count } = cut
    paged.push({ name: entry.name, rows, cols, ...form, firstPage: pageCount, pageCount: count, rowsPerPage })
    pageCount += count
  }
  const sizes: PageSize[] = []
  for (const m of matrices) for (let i = 0; i < m.pageCount; i++) sizes.push(pageSize(m, i, sources))
  const group = new Int32Array(pageCount).fill(-1)
  matrices.forEach((m, i) => {
    group.fill(input.groups?.[i] ?? -1, m.firstPage, m.firstPage + m.pageCount)
  })
  const tableBytes = pageCount * TABLE_BYTES_PER_PAGE
  const residency = withTables(tableBytes, weightBytes, (bytes) =>
    decideResidency({
      pages: sizes,
      optional: Uint8Array.from(group, (g) => (g < 0 ? 0 : 1)),
      weightBytes: bytes,
      reads: input.reads,
      ...(input.ringBytes === undefined ? {} : { ringBytes: input.ringBytes }),
    }),
  )
  const summary = summarize(matrices, sizes, group, residency, tableBytes, sources)
  return { entries, paged, matrices, pageCount, group, residency, tableBytes, summary }
}

/** The tensor that has the bytes. Throws TENSOR_NOT_FOUND, FORMAT_INVALID for aliases in a circle. */
export function resolveTensor(reader: Pick<ModelReader, 'tensors'>, name: string): TensorEntry {
  let entry = reader.tensors.get(name)
  for (let hops = 0; entry?.aliasOf !== undefined; hops++) {
    if (hops === 16)
      throw new ModelFormatError('FORMAT_INVALID', {
        what: 'aliases go in a circle',
        where: name,
        details: { tensor: name },
      })
    entry = reader.tensors.get(entry.aliasOf)
  }
  if (entry === undefined)
    throw new ModelFormatError('TENSOR_NOT_FOUND', {
      what: 'the model has no such tensor',
      where: name,
      details: { tensor: name },
    })
  return entry
}

function computeForm(entry: TensorEntry): Compute {
  const refuse = (what: string, got: unknown): never => {
    throw new ModelFormatError('QUANT_UNSUPPORTED', {
      what,
      where: entry.name,
      got,
      remedy: 'Convert the model to a package first.',
      details: { tensor: entry.name },
    })
  }
  if (entry.shape.length !== 2)
    refuse('only matrices are paged, and this tensor has another rank', `[${entry.shape.join(', ')}]`)
  if (entry.rows < 1 || entry.cols < 1) refuse('a paged matrix has rows and columns', `[${entry.shape.join(', ')}]`)
  if (entry.strides !== undefined) refuse('a strided tensor cannot be computed with', entry.strides)
  if (entry.layout !== undefined && entry.layout !== 'row-major')
    refuse('this layout cannot be computed with', entry.layout)
  if (entry.linear !== undefined) refuse('per-tensor linear quantization cannot be computed with', entry.linear.scheme)
  // Byte order is settled on arrival; what is left is the encoding kernels see.
  const e = entry.encoding
  const form = computeOf(e.kind === 'panel' ? e : { ...e, bigEndian: false })
  if (form === undefined)
    return refuse(
      'no kernel computes with this encoding',
      e.kind === 'plain' ? e.dtype : e.kind === 'panel' ? e.scheme : e.type,
    )
  if (e.kind === 'ggml' && entry.cols % ggmlBlock(e.type).columns !== 0)
    refuse(`${e.type} blocks take whole groups of ${ggmlBlock(e.type).columns} columns`, `${entry.cols} columns`)
  const { encoding, block, scaleF32, multiplier } = form
  return { encoding, block, scaleF32, multiplier }
}

// Kernels read as many bytes as the encoding says: a page that is shorter would make them read its neighbour.
function checkBytes(entry: TensorEntry, form: Compute, cut: ReturnType<typeof cutMatrix>): void {
  const e = entry.encoding
  const stored = e.kind === 'ggml' ? ggmlBytes(ggmlBlock(e.type), 1, entry.cols) : cut.unitBytes
  if (stored !== cut.unitBytes)
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'blocks do not have the size of their type',
      where: entry.name,
      expected: `${stored} bytes a row`,
      got: cut.unitBytes,
      details: { tensor: entry.name },
    })
  for (const page of [0, cut.pageCount - 1]) {
    const { rows, computeBytes: got } = pageExtent(cut, page)
    const expected = computeBytes(form, rows, entry.cols)
    if (expected === got) continue
    throw new ModelFormatError('FORMAT_INVALID', {
      what: 'bytes do not have the size of the encoding',
      where: `${entry.name}, page ${page}`,
      expected,
      got,
      details: { tensor: entry.name },
    })
  }
}

/** The tables come out of the same memory: what the decision sees, and what it reports, differ by them. */
function withTables(tableBytes: number, weightBytes: number, decide: (bytes: number) => Residency): Residency {
  try {
    return decide(weightBytes - tableBytes)
  } catch (error) {
    if (!isSluiceError(error, 'BUDGET_TOO_SMALL')) throw error
    const requiredBytes = (error.details.requiredBytes as number) + tableBytes
    throw new BudgetError('BUDGET_TOO_SMALL', {
      what: 'the memory for weights is below the smallest that can run this model',
      expected: `≥ ${requiredBytes} bytes`,
      got: `${weightBytes} bytes`,
      remedy: 'Give more memory, or convert the model with smaller pages or fewer bits.',
      details: { requiredBytes, weightBytes },
      cause: error,
    })
  }
}

function summarize(
  matrices: readonly StreamMatrix[],
  sizes: readonly PageSize[],
  group: Int32Array,
  r: Residency,
  tableBytes: number,
  sources: readonly SourceShape[],
): PagerPlan {
  let streamedBytesPerPass = 0
  let optionalBytesPerPass = 0
  const parts = matrices.map((m) => {
    let bytes = 0
    let pinnedBytes = 0
    for (let i = 0; i < m.pageCount; i++) {
      const page = m.firstPage + i
      bytes += sizes[page]!.pinned
      if (r.pinned[page] === 1) pinnedBytes += sizes[page]!.pinned
      else {
        const read = readBytes(m, i, sources, false)
        streamedBytesPerPass += read
        if (group[page]! >= 0) optionalBytesPerPass += read
      }
    }
    return { name: m.name, bytes, pinnedBytes }
  })
  return {
    weightBytes: parts.reduce((sum, p) => sum + p.bytes, 0),
    pinnedBytes: r.pinnedBytes,
    pinnedPages: r.pinnedPages,
    streamedPages: r.streamedPages,
    streamedBytesPerPass,
    optionalBytesPerPass,
    ringBytes: r.ringBytes,
    stageBytes: r.stageSlots * r.stageSlotBytes,
    totalBytes: r.totalBytes + tableBytes,
    requiredBytes: r.requiredBytes + tableBytes,
    residentBytes: r.residentBytes + tableBytes,
    matrices: parts,
  }
}
