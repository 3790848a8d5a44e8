// What conversion must not change: numbers that are kept, files of a second conversion, logits in other shards, aliases, what lies beside the tensors.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { DType } from '#sluice/base/dtype.js'
import { convertToWia } from '#sluice/convert/convert.js'
import { openWia } from '#sluice/format/wia/read.js'
import { createWiaWriter } from '#sluice/format/wia/write.js'
import type { PlannedTensor } from '#sluice/format/writer.js'
import { SIZE } from '../arch/toy.ts'
import { folder, safetensors } from '../format/safetensors/build.ts'
import { maxDifference } from '../npy.ts'
import { contents, convert, run, STORYTELLER, scratch, toyFiles, toyTensors, withModel } from './made.ts'

const root = scratch()
const at = (name: string) => join(root, name)
const IDS = [3, 1, 4, 1, 5, 9]

test('converted again: the same files, the same identity; twice: the same files', async () => {
  for (const quantization of ['keep', 'int4', 'nf4'] as const) {
    await convert(STORYTELLER, at(`a-${quantization}`), { quantization })
    await convert(STORYTELLER, at(`b-${quantization}`), { quantization })
    expect(contents(at(`b-${quantization}`))).toEqual(contents(at(`a-${quantization}`)))
    await convert(at(`a-${quantization}`), at(`c-${quantization}`))
    expect(contents(at(`c-${quantization}`))).toEqual(contents(at(`a-${quantization}`)))
    const identity = (p: string) => withModel(p, async (m) => m.reader.identity)
    expect(await identity(at(`c-${quantization}`))).toBe(await identity(at(`a-${quantization}`)))
  }
  // Quantized as it is already: nothing is rounded a second time.
  const again = await convert(at('a-int4'), at('d-int4'), { quantization: 'int4' })
  expect(again.tensors.filter((t) => t.error !== undefined)).toEqual([])
  expect(contents(at('d-int4'))).toEqual(contents(at('a-int4')))
})

test('kept tensors are bit-equal, tokenizer, adapter and metadata come along', async () => {
  await withModel(STORYTELLER, (from) =>
    withModel(at('a-keep'), async (to) => {
      for (const name of from.tensorNames)
        expect(Buffer.compare(await to.tensor(name).bytes(), await from.tensor(name).bytes()), name).toBe(0)
      expect(to.reader.metadata).toEqual(from.reader.metadata)
      expect(to.reader.metadata).toMatchObject({ model_name: 'storyteller', license: 'CC0-1.0' })
      expect(to.reader.config).toEqual(from.reader.config)
      const names = [...from.reader.tokenizerFiles.keys()]
      expect([...to.reader.tokenizerFiles.keys()].sort()).toEqual(names.sort())
      const adapter = await to.adapter('pirate')
      expect(adapter.pairs.length).toBeGreaterThan(0)
      await adapter.reader.close()
    }),
  )
  for (const file of ['adapters/pirate/adapter_model.safetensors', 'tokenizer/tokenizer.json'])
    expect(readFileSync(join(at('a-keep'), file)).equals(readFileSync(join(STORYTELLER, file))), file).toBe(true)
})

test('small shards split tensors; numbers and logits stay', async () => {
  await convert(STORYTELLER, at('split'), { maxShardBytes: 96 * 1024 })
  await withModel(at('split'), async (model) => {
    expect(model.reader.sources.length).toBeGreaterThan(50)
    for (const s of model.reader.sources) expect(s.size).toBeLessThanOrEqual(96 * 1024)
    const embedding = model.tensor('model.embed_tokens.weight').entry
    expect(embedding.byteLength).toBeGreaterThan(96 * 1024)
    expect(embedding.segments.length).toBeGreaterThan(7)
  })
  expect(maxDifference(await run(at('split'), IDS), await run(STORYTELLER, IDS))).toBe(0)
  // Back into one shard, in place, as `shard` does it.
  await convert(at('split'), at('split'), { force: true })
  expect(contents(at('split'))).toEqual(contents(at('a-keep')))
})

test('tied and untied heads', async () => {
  const tied = folder(toyFiles(SIZE, { tie_word_embeddings: true }, (t) => t.delete('lm_head.weight')))
  const untied = folder(toyFiles(SIZE))
  for (const [name, source] of Object.entries({ tied, untied })) {
    await convert(source, at(name))
    expect(maxDifference(await run(at(name), IDS), await run(source, IDS))).toBe(0)
    await withModel(at(name), async (m) => expect(m.tensorNames.includes('lm_head.weight')).toBe(name === 'untied'))
  }
  // Both stored although they are tied: one is kept, and the model says the same.
  const both = folder(
    toyFiles(SIZE, { tie_word_embeddings: true }, (t) => {
      t.set('lm_head.weight', t.get('model.embed_tokens.weight')!)
    }),
  )
  await convert(both, at('both'))
  expect(maxDifference(await run(at('both'), IDS), await run(both, IDS))).toBe(0)
  expect(maxDifference(await run(at('both'), IDS), await run(tied, IDS))).toBe(0)
})

test('an alias that the graph uses stays an alias, quantized or not', async () => {
  const source = folder(toyFiles(SIZE, {}, (t) => t.set('lm_head.weight', t.get('model.embed_tokens.weight')!)))
  await convert(source, at('stored'))
  // A package like another writer may have made it: the head is an alias of the embedding.
  await withModel(at('stored'), async (m) => {
    const { reader } = m
    const writer = createWiaWriter(at('alias'), {
      metadata: reader.metadata,
      architecture: reader.architecture!,
      config: reader.config,
    })
    const planned = [...reader.tensors.values()].map((t) => ({
      ...t,
      ...(t.name === 'lm_head.weight' ? { aliasOf: 'model.embed_tokens.weight' } : {}),
    }))
    writer.plan(planned)
    for (const t of planned) if (!('aliasOf' in t)) await writer.put(t.name, [await m.tensor(t.name).bytes()])
    await writer.finish()
  })
  for (const quantization of ['keep', 'int4'] as const) {
    const output = at(`alias-${quantization}`)
    const report = await convert(at('alias'), output, { quantization })
    expect(report.tensors.some((t) => t.name === 'lm_head.weight')).toBe(false)
    await withModel(output, async (m) => {
      expect(m.tensor('lm_head.weight').entry.aliasOf).toBe('model.embed_tokens.weight')
      if (quantization === 'int4') expect(m.tensor('lm_head.weight').entry.encoding).toMatchObject({ scheme: 'int8' })
    })
    await convert(at('stored'), at(`stored-${quantization}`), { quantization })
    expect(maxDifference(await run(output, IDS), await run(at(`stored-${quantization}`), IDS))).toBe(0)
  }
})

test('without an architecture every tensor is kept as it is: strides, LINEAR codes, inline constants, aliases, files beside them', async () => {
  const writer = createWiaWriter(at('odd'), {
    metadata: { model_name: 'odd', version: '2.1.0', tags: ['a', 'b'], metadata: { note: { deep: true } } },
    sideFiles: new Map([['metadata/notes.txt', Buffer.from('notes')]]),
    extensions: { used: ['acme.notes', 'acme.empty'], data: { 'acme.notes': { color: 'blue' } } },
    quantization: { calibrationDataset: 'some texts', calibrationSamples: 12 },
  })
  const tensor = (name: string, dtype: DType, shape: [number, number], more: Partial<PlannedTensor>): PlannedTensor => {
    const [rows, cols] = shape
    return { name, dtype, encoding: { kind: 'plain', dtype }, shape, rows, cols, byteLength: 0, ...more }
  }
  const linear = { scheme: 'linear', scales: [0.5, 0.25], zeroPoints: [3, -1], axis: 0 } as const
  writer.plan([
    tensor('strided', 'float32', [2, 3], { byteLength: 32, strides: [1, 3] }),
    tensor('linear', 'int8', [2, 4], { dtype: 'float32', byteLength: 8, linear }),
    tensor('inline', 'int64', [1, 2], { byteLength: 16, inline: true }),
    tensor('none', 'float32', [0, 5], {}),
    tensor('twin', 'float32', [0, 5], { aliasOf: 'none' }),
  ])
  await writer.put('strided', [new Uint8Array(32).map((_, i) => i)])
  await writer.put('linear', [Uint8Array.of(1, 2, 3, 4, 250, 6, 7, 8)])
  await writer.put('inline', [new Uint8Array(16).fill(7)])
  await writer.put('none', [])
  await writer.finish()
  const reader = await openWia(at('odd'))
  try {
    await convertToWia(reader, undefined, at('odd-again'))
  } finally {
    await reader.close()
  }
  expect(contents(at('odd-again'))).toEqual(contents(at('odd')))
})

test('what other formats say of themselves is carried; what breaks a rule stands under metadata', async () => {
  const files = toyFiles(SIZE)
  const path = join(root, 'Some Model')
  mkdirSync(path)
  for (const [name, content] of Object.entries(files)) writeFileSync(join(path, name), content)
  await convert(path, at('named'), { metadata: { license: 'MIT' } })
  await withModel(at('named'), async (m) =>
    expect(m.reader.metadata).toEqual({ model_name: 'Some Model', version: '1.0.0', license: 'MIT' }),
  )
  const safe = folder({
    'config.json': files['config.json']!,
    'model.safetensors': safetensors(toyTensors(SIZE), { version: 'v2', author: 'someone', format: 'pt' }),
  })
  await convert(safe, at('worded'))
  await withModel(at('worded'), async (m) =>
    expect(m.reader.metadata).toMatchObject({ version: '1.0.0', author: 'someone', metadata: { version: 'v2' } }),
  )
})

test('the report counts bytes and parameters, each tensor once', async () => {
  const source = folder(toyFiles(SIZE))
  const report = await convert(source, at('counted'), { quantization: 'f16' })
  const elements = toyTensors(SIZE).reduce((n, t) => n + t.shape.reduce((a, b) => a * b, 1), 0)
  expect([report.parameters, report.bytesIn, report.bytesOut]).toEqual([elements, 4 * elements, 2 * elements])
})
