// Real files through the pager: what kernels decode from its pages is what the plain decoders make of the stored bytes.
import { expect } from 'vitest'
import { openGguf } from '#sluice/format/gguf/read.js'
import type { ModelReader, TensorEntry } from '#sluice/format/reader.js'
import { openSafetensors } from '#sluice/format/safetensors/read.js'
import { createKernels, selectKernels } from '#sluice/kernels/select.js'
import { createArenas } from '#sluice/memory/arena.js'
import { createBudget } from '#sluice/memory/budget.js'
import { createPageClient } from '#sluice/pager/client.js'
import { createPager } from '#sluice/pager/create.js'
import { codecOf } from '#sluice/quant/codec.js'
import { data, dataTest } from '../data.ts'

async function decodeAll(reader: ModelReader, entry: TensorEntry): Promise<Float32Array> {
  const out = new Float32Array(entry.rows * entry.cols)
  for (const s of entry.segments) {
    const bytes = await reader.sources[s.source]!.read(s.offset, s.length)
    const values = out.subarray(s.rowStart * entry.cols, (s.rowStart + s.rows) * entry.cols)
    codecOf(entry.encoding).decode(bytes, s.rows, entry.cols, values)
  }
  return out
}

const cases: [string, () => Promise<ModelReader>][] = [
  ...[
    'F32',
    'F16',
    'BF16',
    ...['Q8_0', 'Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'IQ4_NL', 'MXFP4'].map((t) => `ffn192-${t}`),
  ].map((name): [string, () => Promise<ModelReader>] => [
    `GGUF ${name}`,
    () => openGguf(data('stories260k', 'gguf', `stories260K-${name}.gguf`)),
  ]),
  ...['Q2_K', 'Q4_K_M-by-llamacpp', 'IQ4_XS'].map((name): [string, () => Promise<ModelReader>] => [
    `GGUF ${name}`,
    () => openGguf(data('stories4m', 'gguf', `stories4m-${name}.gguf`)),
  ]),
  ['safetensors, four shards', () => openSafetensors(data('stories4m', 'hf'))],
]

for (const [title, open] of cases)
  dataTest(`${title}: half of it pinned, three passes`, async () => {
    const reader = await open()
    const names = [...reader.tensors.values()].filter((t) => t.shape.length === 2).map((t) => t.name)
    const arenas = createArenas()
    const kernels = await selectKernels()
    const bytes = names.reduce((sum, n) => sum + reader.tensors.get(n)!.byteLength, 0)
    const weightBytes = Math.floor(bytes / 2)
    const pager = await createPager({
      reader,
      names,
      arenas,
      budget: createBudget(weightBytes),
      weightBytes,
      threads: 1,
      kernels,
    })
    expect(pager.plan().pinnedPages).toBeGreaterThan(0)
    expect(pager.plan().streamedPages).toBeGreaterThan(0)
    await pager.start()
    const client = createPageClient(pager.shared)
    const wanted = await Promise.all(names.map((n) => decodeAll(reader, reader.tensors.get(n)!)))
    const stride = Math.ceil(Math.max(...pager.matrices.map((m) => m.cols)) / 64) * 64
    const rowsMost = Math.max(...pager.matrices.map((m) => m.rowsPerPage))
    const bound = arenas.arenas.map((a) => ({
      kernels: createKernels(kernels, a.memory, 0),
      out: a.alloc(rowsMost * stride * 4, 64).address,
      memory: a.memory,
    }))
    for (let pass = 1; pass <= 3; pass++)
      pager.matrices.forEach((m, k) => {
        for (let i = 0; i < m.pageCount; i++) {
          const page = m.firstPage + i
          expect(client.acquire(page, pass)).toBe(true)
          const here = bound[client.arenaOf(page)]!
          const rows = Math.min(m.rowsPerPage, m.rows - i * m.rowsPerPage)
          here.kernels.decode({ ...m, address: client.addressOf(page), rows }, here.out, stride)
          const got = new Float32Array(here.memory.buffer, here.out, rows * stride)
          for (let r = 0; r < rows; r++) {
            const from = (i * m.rowsPerPage + r) * m.cols
            const row = wanted[k]!.subarray(from, from + m.cols)
            if (!row.every((v, c) => v === got[r * stride + c])) expect.unreachable(`${m.name}, page ${i}, row ${r}`)
          }
          client.release(page)
        }
      })
    expect(pager.failure).toBeUndefined()
    await pager.close()
    await reader.close()
  })
