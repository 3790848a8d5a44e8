// NF4: nearest codes, and double-quantized checkpoints as bitsandbytes writes them.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { decodeBfloat16 } from '#sluice/quant/bfloat16.js'
import { encodeNf4, NF4 } from '#sluice/quant/nf4.js'
import {
  DYNAMIC_MAP,
  decodeNestedAbsmax,
  decodeNf4Packed,
  encodeNestedAbsmax,
  encodeNf4Packed,
} from '#sluice/quant/nf4-double.js'
import { data, dataTest } from '../data.ts'
import { asFloats, readSafetensors } from './read-safetensors.ts'

interface QuantState {
  blocksize: number
  shape: [number, number]
  nested_blocksize: number
  nested_offset: number
}

test('the nearest code, the lower one on a tie', () => {
  const nearest = (x: number) => {
    let best = 0
    for (let i = 1; i < 16; i++) if (Math.abs(x - NF4[i]!) < Math.abs(x - NF4[best]!)) best = i
    return best
  }
  fc.assert(
    fc.property(fc.double({ noNaN: true, min: -1.2, max: 1.2 }), (x) => {
      if (encodeNf4(x) !== nearest(x)) expect([x, encodeNf4(x)]).toEqual([x, nearest(x)])
    }),
    { numRuns: 5000 },
  )
  for (let i = 0; i < 16; i++) expect(encodeNf4(NF4[i]!)).toBe(i)
  for (let i = 0; i < 15; i++) {
    const middle = (NF4[i]! + NF4[i + 1]!) / 2
    expect(encodeNf4(middle)).toBe(i)
    expect(encodeNf4(middle + 1e-9)).toBe(i + 1)
  }
})

dataTest('a QLoRA checkpoint decodes to the published values of every layer', () => {
  const folder = ['quant', 'stories4m-bnb-nf4-double'] as const
  const tensors = readSafetensors(data(...folder, 'model.safetensors'))
  const golden = JSON.parse(readFileSync(data(...folder, 'golden.json'), 'utf8')).dequantized as Record<
    string,
    { shape: [number, number]; sha256_f32: string; first: number[] }
  >
  expect(Object.keys(golden).length).toBeGreaterThan(20)
  for (const [name, { shape, sha256_f32, first }] of Object.entries(golden)) {
    const state = JSON.parse(
      Buffer.from(tensors.get(`${name}.quant_state.bitsandbytes__nf4`)!.bytes).toString(),
    ) as QuantState
    expect(state).toMatchObject({ shape, blocksize: 64, nested_blocksize: 256 })
    expect(asFloats(tensors.get(`${name}.nested_quant_map`)!.bytes)).toEqual(DYNAMIC_MAP)
    const absmax = decodeNestedAbsmax({
      codes: tensors.get(`${name}.absmax`)!.bytes,
      nestedAbsmax: asFloats(tensors.get(`${name}.nested_absmax`)!.bytes),
      offset: state.nested_offset,
    })
    const out = new Float32Array(shape[0] * shape[1])
    decodeNf4Packed(tensors.get(name)!.bytes, out.length, absmax, state.blocksize, out)
    expect([...out.subarray(0, 8)]).toEqual(first)
    expect(createHash('sha256').update(new Uint8Array(out.buffer)).digest('hex')).toBe(sha256_f32)
  }
})

dataTest('encoding the original layers gives the codes and scales of that checkpoint', () => {
  const folder = data('stories4m', 'hf')
  const index = JSON.parse(readFileSync(join(folder, 'model.safetensors.index.json'), 'utf8')).weight_map
  const quantized = readSafetensors(data('quant', 'stories4m-bnb-nf4-double', 'model.safetensors'))
  for (const layer of ['self_attn.q_proj', 'self_attn.v_proj', 'mlp.down_proj']) {
    const name = `model.layers.0.${layer}.weight`
    const original = readSafetensors(join(folder, index[name])).get(name)!
    expect(original.dtype).toBe('BF16')
    const values = new Float32Array(original.bytes.length / 2)
    decodeBfloat16(original.bytes, values.length, values)
    const packed = new Uint8Array(values.length / 2)
    const absmax = new Float32Array(values.length / 64)
    encodeNf4Packed(values, values.length, 64, packed, absmax)
    expect(packed).toEqual(quantized.get(name)!.bytes)
    const nested = encodeNestedAbsmax(absmax)
    expect(nested.codes).toEqual(quantized.get(`${name}.absmax`)!.bytes)
    const expected = asFloats(quantized.get(`${name}.nested_absmax`)!.bytes)
    for (let i = 0; i < expected.length; i++) expect(nested.nestedAbsmax[i]! / expected[i]!).toBeCloseTo(1, 5)
  }
})

test('packed codes and nested scales go there and back', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 20000 }),
      fc.nat(),
      fc.integer({ min: -20, max: 20 }),
      (count, seed, magnitude) => {
        let state = seed
        const values = Float32Array.from({ length: count }, () => {
          state = (Math.imul(state, 1664525) + 1013904223) >>> 0
          return (state / 2 ** 31 - 1) * 2 ** magnitude
        })
        const packed = new Uint8Array(Math.ceil(count / 2))
        const absmax = new Float32Array(Math.ceil(count / 64))
        encodeNf4Packed(values, count, 64, packed, absmax)
        const exact = new Float32Array(count)
        decodeNf4Packed(packed, count, absmax, 64, exact)
        for (let i = 0; i < count; i++)
          if (!(Math.abs(exact[i]! - values[i]!) <= absmax[Math.floor(i / 64)]! * 0.1521))
            expect(exact[i]).toBe(values[i])
        const packedAgain = new Uint8Array(packed.length)
        encodeNf4Packed(exact, count, 64, packedAgain, new Float32Array(absmax.length))
        expect(packedAgain).toEqual(packed)

        const nested = encodeNestedAbsmax(absmax)
        const back = decodeNestedAbsmax(nested)
        for (let i = 0; i < back.length; i++) {
          // Half the widest step of the map is 0.0071 of the nested scale.
          const limit = nested.nestedAbsmax[Math.floor(i / 256)]! * 0.0142 + absmax[i]! * 1e-6
          if (!(Math.abs(back[i]! - absmax[i]!) <= limit)) expect(back[i]).toBe(absmax[i])
        }
      },
    ),
    { numRuns: 8 },
  )
})

test('constant scales, empty tensors and odd counts', () => {
  const same = encodeNestedAbsmax(new Float32Array(300).fill(0.3))
  expect(decodeNestedAbsmax(same).every((x) => x === Math.fround(0.3))).toBe(true)
  expect(decodeNestedAbsmax(encodeNestedAbsmax(new Float32Array(0))).length).toBe(0)
  const packed = new Uint8Array(2)
  const absmax = new Float32Array(1)
  encodeNf4Packed(Float32Array.of(1, -1, 0), 3, 64, packed, absmax)
  expect([...packed]).toEqual([0xf0, 0x77])
})

test('what does not fit together is refused', () => {
  const invalid = expect.objectContaining({ code: 'FORMAT_INVALID' })
  const range = expect.objectContaining({ code: 'QUANT_RANGE' })
  expect(() =>
    decodeNestedAbsmax({ codes: new Uint8Array(257), nestedAbsmax: new Float32Array(1), offset: 0 }),
  ).toThrow(invalid)
  expect(() =>
    decodeNestedAbsmax({
      codes: new Uint8Array(1),
      nestedAbsmax: new Float32Array(1),
      offset: 0,
      map: new Float32Array(16),
    }),
  ).toThrow(invalid)
  expect(() => decodeNf4Packed(new Uint8Array(31), 64, new Float32Array(1), 64, new Float32Array(64))).toThrow(invalid)
  expect(() => decodeNf4Packed(new Uint8Array(32), 65, new Float32Array(1), 64, new Float32Array(65))).toThrow(invalid)
  expect(() => decodeNf4Packed(new Uint8Array(33), 65, new Float32Array(1), 64, new Float32Array(65))).toThrow(invalid)
  expect(() => decodeNf4Packed(new Uint8Array(32), 64, new Float32Array(1), 0, new Float32Array(64))).toThrow(
    /block size/,
  )
  expect(() => encodeNestedAbsmax(Float32Array.of(1, Number.NaN))).toThrow(range)
  expect(() => encodeNf4Packed(Float32Array.of(1, Number.NaN), 2, 64, new Uint8Array(1), new Float32Array(1))).toThrow(
    range,
  )
})
