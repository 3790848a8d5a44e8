// Real files: what is read equals what independent programs wrote, and nothing else is read.
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { openGguf } from '#sluice/format/gguf/read.js'
import type { ModelReader, TensorEntry } from '#sluice/format/reader.js'
import { openSafetensors } from '#sluice/format/safetensors/read.js'
import { EXACT_FORM } from '#sluice/quant/ggml-form.js'
import type { GgmlType } from '#sluice/quant/scheme.js'
import { type CountedSource, counted } from '#sluice/source/counted.js'
import { openFile } from '#sluice/source/openFile.js'
import type { ByteSource } from '#sluice/source/source.js'
import { openTensors } from '#sluice/tensor/lazy.js'
import { data, dataTest } from '../data.ts'
import { gguf } from '../format/gguf/build.ts'
import { folder, safetensors } from '../format/safetensors/build.ts'
import { numbers } from './readers.ts'
import { readNpz } from './readnpy.ts'

const sha = (x: Float32Array) =>
  createHash('sha256')
    .update(new Uint8Array(x.buffer, x.byteOffset, x.byteLength))
    .digest('hex')

function counting(mode: 'pread' | 'auto' = 'pread') {
  const sources: CountedSource[] = []
  const open = async (path: string): Promise<ByteSource> => {
    sources.push(counted(await openFile(path, { mode }), { record: true }))
    return sources.at(-1)!
  }
  return { sources, open }
}

async function withReaders<T>(
  readers: Promise<ModelReader>[],
  use: (...readers: ModelReader[]) => Promise<T>,
): Promise<T> {
  const open = await Promise.all(readers)
  try {
    return await use(...open)
  } finally {
    for (const r of open) await r.close()
  }
}

test('opening reads the header; a row reads its bytes: safetensors and GGUF from a file', async () => {
  const values = numbers(1000 * 64)
  const bytes = new Uint8Array(values.buffer)
  const root = folder({
    'm.safetensors': safetensors([{ name: 'w', dtype: 'F32', shape: [1000, 64], bytes }]),
    'm.gguf': gguf([], [{ name: 'w', ne: [64, 1000], type: 0, bytes }]),
  })
  for (const [open, path] of [
    [openSafetensors, `${root}/m.safetensors`],
    [openGguf, `${root}/m.gguf`],
  ] as const) {
    const c = counting()
    await withReaders([open(path, { open: c.open })], async (reader) => {
      expect(c.sources[0]!.bytes).toBe(reader.bytesRead)
      expect(reader.bytesRead).toBeLessThanOrEqual(16 * 1024)
      c.sources[0]!.reset()
      const row = await openTensors(reader).get('w').rows(999, 1000)
      expect(row).toEqual(values.slice(999 * 64))
      expect(c.sources[0]!.ranges).toEqual([
        { offset: reader.tensors.get('w')!.segments[0]!.offset + 999 * 256, length: 256 },
      ])
    })
  }
})

dataTest('tensors of a checkpoint in shards equal those numpy saved', async () => {
  const npz = readNpz(readFileSync(data('foreign/numpy/stories260k-layer0.npz')))
  const golden = (
    JSON.parse(readFileSync(data('foreign/numpy/golden.json'), 'utf8')) as {
      npz: Record<string, { shape: number[]; sha256: string }>
    }
  ).npz
  await withReaders([openSafetensors(data('stories260k/hf'))], async (reader) => {
    const tensors = openTensors(reader)
    expect(npz.size).toBe(Object.keys(golden).length)
    for (const [name, { shape, sha256 }] of Object.entries(golden)) {
      const values = await tensors.get(name).astype('float32')
      expect(tensors.get(name).shape).toEqual(shape)
      expect(sha(values), name).toBe(sha256)
      const saved = npz.get(name)!
      const { cols, rows } = tensors.get(name).entry
      const row = await tensors.get(name).rows(rows - 1, rows)
      expect(Buffer.from(row.buffer).equals(saved.data.subarray((rows - 1) * cols * 4)), name).toBe(true)
    }
  })
})

/** GGUF keeps the two halves of each head of q and k interleaved (llama.cpp's converter): row h·d + 2i + j there is row h·d + j·d/2 + i here. */
function permuted(x: Float32Array, heads: number, rows: number, cols: number): Float32Array {
  const out = new Float32Array(x.length)
  const d = rows / heads
  for (let r = 0; r < rows; r++) {
    const h = Math.floor(r / d)
    const i = Math.floor((r % d) / 2)
    const from = h * d + (r % 2) * (d / 2) + i
    out.set(x.subarray(from * cols, (from + 1) * cols), r * cols)
  }
  return out
}

const NAMES: readonly (readonly [string, string, number?])[] = [
  ['token_embd.weight', 'model.embed_tokens.weight'],
  ['output_norm.weight', 'model.norm.weight'],
  ['blk.3.attn_q.weight', 'model.layers.3.self_attn.q_proj.weight', 8],
  ['blk.3.attn_k.weight', 'model.layers.3.self_attn.k_proj.weight', 4],
  ['blk.3.attn_v.weight', 'model.layers.3.self_attn.v_proj.weight'],
  ['blk.3.attn_output.weight', 'model.layers.3.self_attn.o_proj.weight'],
  ['blk.4.ffn_gate.weight', 'model.layers.4.mlp.gate_proj.weight'],
  ['blk.4.ffn_down.weight', 'model.layers.4.mlp.down_proj.weight'],
  ['blk.4.ffn_norm.weight', 'model.layers.4.post_attention_layernorm.weight'],
]

dataTest.each([
  ['F32', 'hf'],
  ['F16', 'hf-f16'],
  ['BF16', 'hf-bf16'],
])('GGUF %s and the safetensors of the same model have the same numbers', async (type, hf) => {
  await withReaders(
    [
      openGguf(data(`stories260k/gguf/stories260K-${type}.gguf`)),
      openSafetensors(data('stories260k', hf)),
      openSafetensors(data('stories260k/hf')),
    ],
    async (a, b, full) => {
      for (const [there, here, heads] of NAMES) {
        // Norms are float32 in every GGUF: as the float32 checkpoint has them.
        const from = openTensors(there.includes('norm') ? full! : b!).get(here)
        const values = await from.astype('float32')
        const { rows, cols } = from.entry
        const wanted = heads === undefined ? values : permuted(values, heads, rows, cols)
        const got = openTensors(a!).get(there)
        expect(got.shape).toEqual(from.shape)
        expect(sha(await got.astype('float32')), there).toBe(sha(wanted))
        expect(await got.rows(rows - 1, rows)).toEqual(wanted.slice(-cols))
      }
    },
  )
})

async function digests(reader: ModelReader): Promise<Map<string, string>> {
  const tensors = openTensors(reader)
  const out = new Map<string, string>()
  for (const name of reader.tensors.keys()) out.set(name, sha(await tensors.get(name).astype('float32')))
  return out
}

dataTest.each([
  [
    'big-endian Q8_0',
    'foreign/gguf/stories260K-ffn192-Q8_0-bigendian.gguf',
    'stories260k/gguf/stories260K-ffn192-Q8_0.gguf',
  ],
  ['big-endian F16', 'foreign/gguf/stories260K-F16-bigendian.gguf', 'stories260k/gguf/stories260K-F16.gguf'],
  [
    'aligned to 128',
    'foreign/gguf/stories260K-ffn192-Q8_0-align128.gguf',
    'stories260k/gguf/stories260K-ffn192-Q8_0.gguf',
  ],
  ['version 2', 'foreign/gguf/stories260K-ffn192-Q8_0-v2.gguf', 'stories260k/gguf/stories260K-ffn192-Q8_0.gguf'],
  ['split', 'foreign/gguf/split', 'stories260k/gguf/stories260K-ffn192-Q8_0.gguf'],
])('%s has the same numbers', async (_, path, same) => {
  await withReaders([openGguf(data(path)), openGguf(data(same))], async (a, b) => {
    const wanted = await digests(b!)
    expect(wanted.size).toBe(47)
    expect(await digests(a!)).toEqual(wanted)
  })
})

dataTest.each(Object.keys(EXACT_FORM) as GgmlType[])('%s blocks decode to what ggml decodes them to', async (type) => {
  await withReaders([openSafetensors(data('quant/ggml-blocks.safetensors'))], async (reader) => {
    const blocks = reader.tensors.get(`${type}.blocks`)!
    const e: TensorEntry = {
      ...blocks,
      name: 'w',
      shape: [4, 512],
      rows: 4,
      cols: 512,
      dtype: 'float32',
      encoding: { kind: 'ggml', type },
    }
    const wanted = (await openTensors(reader).get(`${type}.f32`).read()) as Float32Array
    const w = openTensors({ ...reader, tensors: new Map([['w', e]]) }).get('w')
    expect(sha(await w.astype('float32'))).toBe(sha(wanted))
    expect(await w.rows(2, 3)).toEqual(wanted.slice(1024, 1536))
    expect(
      await w.slice([
        [1, 3],
        [33, 40],
      ]),
    ).toEqual(new Float32Array([...wanted.slice(545, 552), ...wanted.slice(1057, 1064)]))
  })
})

dataTest('every tensor of the metadata sample has the values its author wrote down', async () => {
  const { tensors } = JSON.parse(readFileSync(data('foreign/gguf/all-metadata-types.json'), 'utf8')) as {
    tensors: Record<string, { values?: (number | string)[]; dequantized?: number[] }>
  }
  await withReaders([openGguf(data('foreign/gguf/all-metadata-types.gguf'))], async (reader) => {
    let checked = 0
    for (const [name, { values, dequantized }] of Object.entries(tensors)) {
      const lazy = openTensors(reader).get(name)
      if (dequantized !== undefined) expect([...(await lazy.astype('float32'))]).toEqual(dequantized)
      else if (values !== undefined) {
        const got =
          lazy.dtype === 'float16' || lazy.dtype === 'bfloat16' ? await lazy.astype('float32') : await lazy.read()
        expect(
          Array.from(got as ArrayLike<number | bigint>, (v) => (typeof v === 'bigint' ? String(v) : v)),
          name,
        ).toEqual(values)
      } else continue
      checked++
    }
    expect(checked).toBe(6)
  })
})

dataTest('rows of ggml blocks are read alone, and are those of the whole tensor', async () => {
  for (const file of readdirSync(data('stories4m/gguf')))
    await withReaders([openGguf(data('stories4m/gguf', file))], async (reader) => {
      const blocks = [...reader.tensors.values()].filter((t) => t.encoding.kind === 'ggml')
      expect(blocks.length, file).toBeGreaterThan(0)
      const tensors = openTensors(reader)
      for (const t of [blocks[0]!, blocks.at(-1)!]) {
        const w = tensors.get(t.name)
        const whole = await w.astype('float32')
        const before = reader.bytesRead
        expect(await w.rows(t.rows - 3, t.rows - 1)).toEqual(whole.slice((t.rows - 3) * t.cols, (t.rows - 1) * t.cols))
        expect(reader.bytesRead - before).toBeLessThanOrEqual(2 * (t.byteLength / t.rows))
      }
    })
})

dataTest('every I/O mode reads the same numbers', async () => {
  const wanted = await withReaders([openSafetensors(data('stories4m/hf'), { mode: 'pread' })], (r) => digests(r!))
  for (const mode of ['auto', 'direct'] as const)
    expect(await withReaders([openSafetensors(data('stories4m/hf'), { mode })], (r) => digests(r!))).toEqual(wanted)
})

dataTest('a mapped file shows its tensors without a copy', async () => {
  await withReaders([openSafetensors(data('stories260k/hf'))], async (reader) => {
    const w = openTensors(reader).get('model.embed_tokens.weight')
    const view = await w.view(3, 5)
    // Without the mapping addon files are read, not mapped.
    if (reader.sources[0]!.view === undefined) expect(view).toBeUndefined()
    else expect(view).toEqual(await w.rows(3, 5))
  })
})
