// Safetensors files built by hand, byte for byte, so that tests need no file of others.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll } from 'vitest'

export interface Tensor {
  name: string
  dtype: string
  shape: number[]
  bytes: Uint8Array
}

/** A file with header text `json` as it stands. */
export function rawFile(json: string | Uint8Array, data: Uint8Array = new Uint8Array(0)): Uint8Array {
  const header = typeof json === 'string' ? new TextEncoder().encode(json) : json
  const out = new Uint8Array(8 + header.length + data.length)
  new DataView(out.buffer).setBigUint64(0, BigInt(header.length), true)
  out.set(header, 8)
  out.set(data, 8 + header.length)
  return out
}

/** A valid file: tensors in the order given, header padded to 8 bytes. */
export function safetensors(tensors: readonly Tensor[], metadata?: Record<string, string>): Uint8Array {
  let at = 0
  const entries = tensors.map((t) => {
    const begin = at
    at += t.bytes.length
    return [t.name, { dtype: t.dtype, shape: t.shape, data_offsets: [begin, at] }] as const
  })
  const data = new Uint8Array(at)
  at = 0
  for (const t of tensors) {
    data.set(t.bytes, at)
    at += t.bytes.length
  }
  const json = JSON.stringify(
    Object.fromEntries([...(metadata ? [['__metadata__', metadata] as const] : []), ...entries]),
  )
  return rawFile(json.padEnd(Math.ceil(json.length / 8) * 8, ' '), data)
}

export function f32(...values: number[]): Uint8Array {
  return new Uint8Array(new Float32Array(values).buffer)
}

/** A folder with these files, removed after the tests of the file. */
export function folder(files: Record<string, Uint8Array | string>): string {
  const root = mkdtempSync(join(tmpdir(), 'sluice-readers-'))
  afterAll(() => rmSync(root, { recursive: true, force: true }))
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true })
    writeFileSync(join(root, name), content)
  }
  return root
}
