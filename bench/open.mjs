// How long does opening take, and how much does it read? Medians of 11 after a warm-up, in this process.
//
//   node bench/open.mjs MODEL…            models to open
//   node bench/open.mjs --tensors 100000  also a package and a checkpoint of so many tensors, made for the occasion
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { open } from '../dist/api/model.js'
import { createWiaWriter } from '../dist/format/wia/write.js'

const { values, positionals } = parseArgs({ options: { tensors: { type: 'string' } }, allowPositionals: true })
const dir = mkdtempSync(join(tmpdir(), 'sluice-open-'))
const results = []

async function measure(path, name = path) {
  const times = []
  let bytesRead = 0
  let tensors = 0
  for (let i = -1; i < 11; i++) {
    const started = performance.now()
    const model = await open(path)
    const ms = performance.now() - started
    if (i >= 0) times.push(ms)
    else results.push({ firstOpenMs: ms })
    bytesRead = model.reader.bytesRead
    tensors = model.reader.tensors.size
    await model.close()
  }
  times.sort((a, b) => a - b)
  const r = {
    model: name,
    tensors,
    bytesRead,
    firstMs: results.pop().firstOpenMs,
    minMs: times[0],
    medianMs: times[5],
    maxMs: times[10],
  }
  results.push(r)
  console.error(
    `${name}: ${tensors} tensors, ${bytesRead} bytes read, first ${r.firstMs.toFixed(1)} ms, then ${r.medianMs.toFixed(1)} ms (${r.minMs.toFixed(1)} … ${r.maxMs.toFixed(1)})`,
  )
}

async function many(n) {
  const path = join(dir, 'many.wia')
  const writer = createWiaWriter(path, { metadata: { model_name: 'many', version: '1.0.0' } })
  const planned = Array.from({ length: n }, (_, i) => ({
    name: `model.layers.${i}.weight`,
    shape: [4, 4],
    dtype: 'float32',
    encoding: { kind: 'plain', dtype: 'float32' },
    rows: 4,
    cols: 4,
    byteLength: 64,
  }))
  writer.plan(planned)
  for (const t of planned) await writer.put(t.name, [new Uint8Array(64)])
  await writer.finish()
  const header = {}
  for (let i = 0; i < n; i++)
    header[`model.layers.${i}.weight`] = { dtype: 'F32', shape: [4, 4], data_offsets: [i * 64, i * 64 + 64] }
  const json = Buffer.from(JSON.stringify(header))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(json.length))
  mkdirSync(join(dir, 'many'))
  writeFileSync(join(dir, 'many/model.safetensors'), Buffer.concat([length, json, Buffer.alloc(n * 64)]))
  await measure(path, `package of ${n} tensors`)
  await measure(join(dir, 'many/model.safetensors'), `safetensors of ${n} tensors`)
}

try {
  for (const path of positionals) await measure(path)
  if (values.tensors !== undefined) await many(Number(values.tensors))
  console.log(JSON.stringify(results))
} finally {
  rmSync(dir, { recursive: true, force: true })
}
