// What conversion keeps, lays out anew, or refuses.
import { expect, test } from 'vitest'
import { encodingFor, isRelayout } from '#sluice/convert/policy.js'
import { isGgmlType } from '#sluice/quant/ggml.js'
import { EXACT_FORM } from '#sluice/quant/ggml-form.js'
import type { Encoding, GgmlType } from '#sluice/quant/scheme.js'

const TYPES = Object.keys(EXACT_FORM) as GgmlType[]
const ggml = (type: GgmlType): Encoding => ({ kind: 'ggml', type })

test('ggml blocks are kept where an encoding of packages holds their numbers, and refused by name with the remedy else', () => {
  const refused: string[] = []
  for (const type of TYPES) {
    expect(isGgmlType(type)).toBe(true)
    try {
      const kept = encodingFor('keep', 'linear', ggml(type), 'blk.0.w')
      expect(kept).toEqual(EXACT_FORM[type])
      expect(isRelayout(ggml(type), kept)).toBe(true)
    } catch (error) {
      expect(error).toMatchObject({ code: 'QUANT_UNSUPPORTED', details: { type, tensor: 'blk.0.w' } })
      expect((error as Error).message).toMatch(/tensor blk\.0\.w.*--quantize int8/s)
      refused.push(type)
    }
  }
  expect(refused).toEqual(['Q5_1', 'Q2_K', 'Q3_K', 'Q5_K', 'Q6_K', 'IQ1_M', 'IQ2_XS', 'IQ2_S'])
})

test('a chosen quantization takes every type; routers keep their exact numbers', () => {
  for (const type of TYPES) {
    expect(encodingFor('int8', 'linear', ggml(type))).toMatchObject({ kind: 'panel', scheme: 'int8' })
    expect(encodingFor('f16', 'linear', ggml(type))).toEqual({ kind: 'plain', dtype: 'float16' })
    expect(encodingFor('int4', 'router', ggml(type))).toEqual(EXACT_FORM[type])
  }
})

test('types without a decoder are refused by name', () => {
  const q8k: Encoding = { kind: 'opaque', type: 'Q8_K', block: 256, blockBytes: 292 }
  expect(() => encodingFor('keep', 'linear', q8k, 'w')).toThrow(
    expect.objectContaining({ code: 'QUANT_UNSUPPORTED', details: { type: 'Q8_K', tensor: 'w' } }),
  )
})
