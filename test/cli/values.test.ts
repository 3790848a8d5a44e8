// Numbers and ids that leave through tensor, logits and tokenize, read back by other programs where there are some.
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { open } from '#sluice/api/model.js'
import { parseRows } from '#sluice/cli/verbs/tensor.js'
import { maxDifference, readNpy } from '../npy.ts'
import { onlyLine, PROMPT, ROOT, STORY, sluice, temporary } from './cli.ts'

const numpyTest = test.skipIf(spawnSync('python3', ['-c', 'import numpy']).status !== 0)
const FIXTURES = join(ROOT, 'test/fixtures/storyteller')
const BASE = JSON.parse(readFileSync(join(FIXTURES, 'base.json'), 'utf8')).prompts[0] as {
  prompt: string
  ids: number[]
}

/** What numpy says of a file. */
function numpy(path: string): { dtype: string; shape: number[]; first: number[]; sum: number } {
  const program = `import json,sys,numpy as n
a=n.load(sys.argv[1],allow_pickle=False)
print(json.dumps(dict(dtype=a.dtype.str,shape=a.shape,first=a.reshape(-1)[:4].tolist(),sum=float(a.astype('f8').sum()))))`
  return JSON.parse(spawnSync('python3', ['-c', program, path], { encoding: 'utf8' }).stdout)
}

/** float32 values of a bfloat16 tensor straight from the shard, by the manifest alone. */
function stored(name: string): { shape: number[]; values: Float32Array } {
  const manifest = JSON.parse(readFileSync(join(STORY, 'manifest.json'), 'utf8'))
  const entry = manifest.tensors[name]
  const bytes = readFileSync(join(STORY, manifest.shards[entry.shard].file))
  const values = new Float32Array(entry.length / 2)
  const bits = new Uint32Array(values.buffer)
  for (let i = 0; i < bits.length; i++) bits[i] = bytes.readUInt16LE(entry.offset + 2 * i) << 16
  return { shape: entry.shape, values }
}

describe('tensor', () => {
  const NAME = 'model.layers.0.self_attn.q_proj.weight'
  test('as JSON has name, shape, type and values', async () => {
    const { shape, values } = stored(NAME)
    const json = onlyLine(await sluice(['tensor', STORY, NAME, '--rows', '2:4'])) as { values: number[] }
    const { values: printed, ...rest } = json
    expect(rest).toEqual({ name: NAME, shape: [2, shape[1]], dtype: 'bfloat16', encoding: 'bfloat16' })
    expect(printed).toEqual([...values.subarray(2 * shape[1]!, 4 * shape[1]!)])
    expect(onlyLine(await sluice(['tensor', STORY, NAME, '--rows', '2:4', '--json']))).toEqual(json)
  })

  test('as f32 is the plain numbers', async () => {
    const { bytes } = await sluice(['tensor', STORY, NAME, '--as', 'f32'])
    expect(new Float32Array(new Uint8Array(bytes).buffer)).toEqual(stored(NAME).values)
  })

  numpyTest('as npy is what numpy reads', async () => {
    const out = join(temporary(), 'q.npy')
    const { code, stdout } = await sluice(['tensor', STORY, NAME, '--as', 'npy', '-o', out])
    expect([code, stdout]).toEqual([0, ''])
    const { shape, values } = stored(NAME)
    const said = numpy(out)
    expect(said).toMatchObject({ dtype: '<f4', shape, first: [...values.subarray(0, 4)] })
    expect(said.sum).toBeCloseTo(
      values.reduce((a, b) => a + b, 0),
      6,
    )
  })

  test('--rows', () => {
    expect(parseRows(undefined, 5)).toEqual([0, 5])
    expect(parseRows('2', 5)).toEqual([2, 3])
    expect(parseRows('1:4', 5)).toEqual([1, 4])
    expect(parseRows(':2', 5)).toEqual([0, 2])
    expect(parseRows('3:', 5)).toEqual([3, 5])
    expect(parseRows(':', 5)).toEqual([0, 5])
    expect(parseRows('5:5', 5)).toEqual([5, 5])
    const code = (text: string) => {
      try {
        return parseRows(text, 5)
      } catch (err) {
        return (err as { code: string }).code
      }
    }
    for (const text of ['5', '4:6', '3:2', '99999999999999999999:', '0:99999999999999999999'])
      expect(code(text)).toBe('TENSOR_RANGE')
    for (const text of ['', '-1', '-1:2', 'a:b', '1:2:3', '1.5', ' 1', '1e3']) expect(code(text)).toBe('USAGE')
  })

  test('no rows are no values, a row too far ends with 2', async () => {
    expect(onlyLine(await sluice(['tensor', STORY, NAME, '--rows', '3:3']))).toMatchObject({
      shape: [0, 192],
      values: [],
    })
    const { code, stdout, stderr } = await sluice(['tensor', STORY, NAME, '--rows', '192'])
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toMatch(/rows do not exist: expected 0:192, got 192 \[TENSOR_RANGE\]/)
  })

  test('an output that cannot be written leaves nothing behind', async () => {
    const dir = temporary()
    const { code } = await sluice(['tensor', STORY, NAME, '-o', join(dir, 'no/such/folder/x.npy')])
    expect(code).toBe(5)
    expect((await sluice(['tensor', STORY, NAME, '--rows', '999:', '-o', join(dir, 'x.json')])).code).toBe(2)
    expect(readdirSync(dir)).toEqual([])
  })
})

describe('logits', () => {
  test('are those of the float64 reference, of every token', async () => {
    const out = join(temporary(), 'logits.npy')
    const args = ['logits', STORY, '--prompt', BASE.prompt, '--precision', 'exact', '-o', out, '--json']
    const outcome = await sluice(args)
    expect([outcome.code, outcome.stderr]).toEqual([0, ''])
    expect(onlyLine(outcome)).toMatchObject({ output: out, shape: [11, 2048], ids: BASE.ids })
    const ours = readNpy(out)
    const reference = readNpy(join(FIXTURES, 'base.prompt0.logits.npy'))
    expect(ours.shape).toEqual(reference.shape)
    expect(maxDifference(ours.data, reference.data)).toBeLessThan(1e-3)
  })

  test('with an adapter', async () => {
    const out = join(temporary(), 'logits.npy')
    const args = ['--ids', BASE.ids.join(','), '--precision', 'exact', '-o', out]
    const { stdout } = await sluice(['logits', STORY, ...args, '--lora', 'pirate'])
    expect(stdout).toBe(`${out}: float32 [11, 2048]\n`)
    const reference = readNpy(join(FIXTURES, 'pirate.prompt0.logits.npy'))
    expect(maxDifference(readNpy(out).data, reference.data)).toBeLessThan(1e-3)
  })

  numpyTest('numpy reads them', async () => {
    const out = join(temporary(), 'logits.npy')
    await sluice(['logits', STORY, '--ids', '1,5', '-o', out])
    expect(numpy(out)).toMatchObject({ dtype: '<f4', shape: [2, 2048] })
  })

  test('a failed run leaves no file', async () => {
    const out = join(temporary(), 'logits.npy')
    expect((await sluice(['logits', STORY, '--ids', '1,9999', '-o', out])).code).toBe(2)
    expect(existsSync(out)).toBe(false)
  })
})

describe('tokenize', () => {
  test('there and back, line feed included', async () => {
    const encoded = await sluice(['tokenize', STORY, PROMPT])
    expect(encoded.stdout).toBe(`${BASE.ids.join(',')}\n`)
    const decoded = await sluice(['tokenize', STORY, '--decode', encoded.stdout.trim()])
    expect(decoded.stdout).toBe(`${PROMPT}\n`)
    expect((await sluice(['tokenize', STORY, PROMPT.trimEnd()])).stdout).toBe(`${BASE.ids.slice(0, -1).join(',')}\n`)
  })

  test('as JSON, with the tokens; without BOS', async () => {
    const { ids, tokens, text } = onlyLine(await sluice(['tokenize', STORY, PROMPT, '--json'])) as {
      text: string
      ids: number[]
      tokens: string[]
    }
    expect([text, ids]).toEqual([PROMPT, BASE.ids])
    const model = await open(STORY)
    const tokenizer = (await model.tokenizer())!
    expect(tokens).toEqual(ids.map((id) => tokenizer.idToToken(id)))
    await model.close()
    expect(onlyLine(await sluice(['tokenize', STORY, PROMPT, '--no-special', '--json']))).toMatchObject({
      ids: ids.slice(1),
    })
    expect(onlyLine(await sluice(['tokenize', STORY, '--decode', ids.join(','), '--json']))).toEqual({
      ids,
      text: PROMPT,
    })
  })

  test('an id outside the vocabulary ends with 2', async () => {
    expect((await sluice(['tokenize', STORY, '--decode', '1,2048'])).code).toBe(2)
  })
})
