import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import type { DType } from '#sluice/base/dtype.js'
import { floatToHalf } from '#sluice/quant/half.js'
import type { TensorArray } from '#sluice/tensor/array.js'
import { npyHeader, npyStream } from '#sluice/tensor/npy.js'
import { data, dataTest } from '../data.ts'
import { readNpy } from './readnpy.ts'

async function file(dtype: DType, shape: number[], ...chunks: TensorArray[]): Promise<Buffer> {
  const out: Uint8Array[] = []
  for await (const piece of npyStream(dtype, shape, chunks)) out.push(piece)
  return Buffer.concat(out)
}

test('the header is numpy’s, byte for byte', () => {
  // numpy.save of zeros((2, 3), float32), numpy 1.24
  const text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
  const wanted = Buffer.concat([
    Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, 118, 0]),
    Buffer.from(`${text.padEnd(117)}\n`),
  ])
  expect(Buffer.from(npyHeader('float32', [2, 3])).equals(wanted)).toBe(true)
})

test.each([[[]], [[7]], [[0, 3]], [[1, 2, 3, 4]], [Array(16).fill(123456789)]])('shape %j comes back', (shape) => {
  const header = npyHeader('int64', shape)
  expect(header.length % 64).toBe(0)
  expect(readNpy(header)).toMatchObject({ descr: '<i8', shape })
})

test('types numpy does not have are refused', () => {
  for (const dtype of ['bfloat16', 'float8_e4m3', 'float8_e5m2'] as const)
    expect(() => npyHeader(dtype, [1])).toThrowError(expect.objectContaining({ code: 'QUANT_UNSUPPORTED' }))
})

test('a stream of another length than the shape is an error', async () => {
  await expect(file('float32', [3], new Float32Array(2))).rejects.toMatchObject({ code: 'INTERNAL' })
  await expect(file('float32', [3], new Float32Array(2), new Float32Array(2))).rejects.toMatchObject({
    code: 'INTERNAL',
  })
  expect(readNpy(await file('float32', [3], new Float32Array([1, 2]), new Float32Array([3]))).data.length).toBe(12)
})

dataTest('files equal those numpy wrote', async () => {
  const count = Array.from({ length: 24 }, (_, i) => i)
  const cases: [string, DType, TensorArray][] = [
    ['c-f4', 'float32', new Float32Array(count)],
    ['c-f8', 'float64', new Float64Array(count)],
    ['c-f2', 'float16', new Uint16Array(count.map(floatToHalf))],
    ['c-i8', 'int64', new BigInt64Array(count.map(BigInt))],
    ['c-i4', 'int32', new Int32Array(count)],
    ['c-i2', 'int16', new Int16Array(count)],
    ['c-i1', 'int8', new Int8Array(count)],
    ['c-u8', 'uint64', new BigUint64Array(count.map(BigInt))],
    ['c-u4', 'uint32', new Uint32Array(count)],
    ['c-u2', 'uint16', new Uint16Array(count)],
    ['c-u1', 'uint8', new Uint8Array(count)],
    ['c-b1', 'bool', new Uint8Array(count.map((i) => (i === 0 ? 0 : 1)))],
    ['c-c8', 'complex64', new Float32Array(count.flatMap((i) => [i, 0]))],
  ]
  for (const [name, dtype, values] of cases)
    expect(
      (await file(dtype, [2, 3, 4], values)).equals(readFileSync(data('foreign/numpy', `${name}.npy`))),
      name,
    ).toBe(true)
  expect((await file('float64', [], new Float64Array([3.5]))).length).toBe(
    readFileSync(data('foreign/numpy/scalar-f8.npy')).length,
  )
  expect((await file('float32', [0, 3])).equals(readFileSync(data('foreign/numpy/empty-f4.npy')))).toBe(true)
})
