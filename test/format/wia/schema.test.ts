// The published JSON Schema, run by an independent validator, accepts every manifest of the canonical spelling that we accept, and
// refuses the broken ones whose fault a schema can see.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { z } from 'zod'
import { plain, tempFolder, write } from './fixtures.ts'

const root = join(import.meta.dirname, '../../..')
const json = (path: string) => JSON.parse(readFileSync(path, 'utf8'))
const schema = z.fromJSONSchema(json(join(root, 'docs/schemas/manifest.schema.json')))
const vectors = join(root, 'test/conformance')

test('accepts what we write', async () => {
  const out = join(tempFolder(), 'm.wia')
  await write(
    out,
    [
      plain('a', [1000, 100]),
      plain('i', [3], 'int64', { inline: true }),
      { ...plain('tied', [1000, 100]), aliasOf: 'a' },
      plain('s', [4, 6], 'float32', { strides: [1, 4] }),
      plain('q', [16, 32], 'float32', {
        encoding: { kind: 'panel', scheme: 'fp8_e4m3', block: 32, scale: 'f16', exponent: -2 },
        byteLength: 544,
      }),
    ],
    { maxShardBytes: 65536, shardChecksums: true, config: { a: 1 } },
  )
  expect(schema.safeParse(json(join(out, 'manifest.json'))).error).toBeUndefined()
})

test('accepts the valid vectors in canonical spelling', () => {
  const names = (json(join(vectors, 'verdicts.json')) as { path: string; verdict: string }[])
    .filter((v) => v.verdict === 'accept' && !/other-spellings|newer-minor/.test(v.path))
    .map((v) => v.path.replace('/manifest.json', ''))
  expect(names.length).toBeGreaterThan(20)
  for (const name of names)
    expect(schema.safeParse(json(join(vectors, name, 'manifest.json'))).error, name).toBeUndefined()
})

test('refuses what it can see', () => {
  for (const name of [
    'major-2',
    'no-model-name',
    'model-version',
    'created-date',
    'input-shape',
    'unknown-key',
    'no-tensors-key',
    'no-files-key',
    'shard-field',
    'shard-bytes',
    'path-elsewhere',
    'path-deep',
    'dtype-unknown',
    'dtype-code',
    'layout-unknown',
    'field-unknown',
    'checksum-missing',
    'checksum-form',
    'shape-negative',
    'shape-rank',
    'shape-missing',
    'offset-fraction',
    'strides-negative',
    'inline-base64',
    'inline-offset',
    'alias-field',
    'segments-one',
    'segments-field',
    'segments-strides',
    'quant-scheme',
    'quant-block',
    'quant-scale',
    'quant-field',
    'quant-exponent',
    'linear-logarithmic',
    'linear-scale',
    'quant-manifest-field',
  ])
    expect(schema.safeParse(json(join(vectors, 'invalid', name, 'manifest.json'))).success, name).toBe(false)
})
