// The verbs about models as files: inspect, verify, plan, convert, shard, bench, doctor; and their exit codes.
import { cpSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { data, dataTest } from '../data.ts'
import { writeCheckpoint } from './checkpoint.ts'
import { onlyLine, PROMPT, STORY, sluice, temporary } from './cli.ts'

const MIB = 1024 ** 2

interface Failure {
  error: { code: string; message: string; details: Record<string, unknown> }
}

describe('inspect', () => {
  test('says in a few lines what is in a model', async () => {
    const { code, stdout, stderr } = await sluice(['inspect', STORY])
    expect([code, stderr]).toEqual([0, ''])
    for (const line of [
      /^ {2}format {8}wia, identity [0-9a-f]{16}…$/m,
      /^ {2}license {7}CC0-1\.0$/m,
      /^ {2}architecture {2}llama, 101 nodes, context 512$/m,
      /^ {2}parameters {4}2,755,008 in 56 tensors$/m,
      /^ {2}weights {7}5\.25 MiB in 1 file$/m,
      /^ {16}bfloat16: 56 tensors, 5\.25 MiB$/m,
      /^ {2}adapters {6}pirate$/m,
      /^ {2}opened in {5}[\d.]+ ms, [\d.]+ KiB read$/m,
    ])
      expect(stdout).toMatch(line)
    expect(stdout.split('\n').length).toBeLessThan(16)
  })

  test('lists tensors in columns', async () => {
    const { stdout } = await sluice(['inspect', STORY, '--tensors'])
    const lines = stdout.split('\n').filter((l) => /^ {2}(?:model|lm_head)\./.test(l))
    expect(lines).toHaveLength(56)
    expect(new Set(lines.map((l) => l.indexOf('['))).size).toBe(1)
    expect(new Set(lines.map((l) => l.indexOf('bfloat16'))).size).toBe(1)
  })

  test('as JSON', async () => {
    const facts = onlyLine(await sluice(['inspect', STORY, '--json'])) as { tensors: unknown[]; bytesRead: number }
    expect(facts).toMatchObject({
      format: 'wia',
      identity: expect.stringMatching(/^[0-9a-f]{64}$/),
      parameters: 2_755_008,
      weightBytes: 5_510_016,
      adapters: ['pirate'],
      architecture: { nodes: 101, contextLength: 512, warnings: [] },
      encodings: { bfloat16: { tensors: 56, bytes: 5_510_016 } },
    })
    expect(facts.tensors[0]).toMatchObject({ name: 'model.embed_tokens.weight', shape: [2048, 192], dtype: 'bfloat16' })
    expect(facts.bytesRead).toBeLessThan(100_000)
  })

  test('a family nobody knows is inspected, and not run', async () => {
    const dir = writeCheckpoint(temporary(), { model_type: 'brandnew' })
    const { code, stdout } = await sluice(['inspect', dir])
    expect(code).toBe(0)
    expect(stdout).toMatch(/architecture {2}cannot be run: .*brandnew/)
    expect(stdout).toMatch(/parameters {4}.* in 12 tensors/)
    expect(onlyLine(await sluice(['inspect', dir, '--json']))).toMatchObject({
      architecture: { error: 'ARCH_UNSUPPORTED' },
    })
    expect((await sluice(['tensor', dir, 'model.norm.weight', '--json'])).code).toBe(0)
    const run = await sluice(['run', dir, '--ids', '1'])
    expect([run.code, run.stdout, run.stderr]).toEqual([
      3,
      '',
      expect.stringMatching(/brandnew.*\[ARCH_UNSUPPORTED\]\n$/),
    ])
  })
})

test('what a person should know is a warning on stderr, and the work goes on', async () => {
  const dir = writeCheckpoint(join(temporary(), 'm'), { brand_new_flag: true })
  const out = join(temporary(), 'out.wia')
  const warning = /^sluice: warning: .*brand_new_flag.*$/m
  for (const args of [
    ['inspect', dir],
    ['run', dir, '--ids', '1,2', '--max-tokens', '3', '-q'],
    ['plan', dir],
    ['convert', dir, '-o', out],
  ]) {
    const { code, stderr, stdout } = await sluice(args)
    expect([args[0], code, stderr]).toEqual([args[0], 0, expect.stringMatching(warning)])
    expect(stdout).not.toContain('warning')
  }
  const json = await sluice(['run', dir, '--ids', '1,2', '--max-tokens', '3', '--json'])
  expect(onlyLine(json)).toMatchObject({ completionTokens: 3 })
  expect(JSON.parse(json.stderr).warning).toContain('brand_new_flag')
})

describe('verify', () => {
  test('a sound package', async () => {
    const { code, stdout } = await sluice(['verify', STORY])
    expect(code).toBe(0)
    expect(stdout).toMatch(
      /: 56 tensors, [\d.]+ MiB, ok in [\d.]+ s\n {2}checksums {5}every page and tensor\n {2}architecture {2}ok\n/,
    )
    expect(onlyLine(await sluice(['validate', STORY, '--json']))).toMatchObject({ tensors: 56, architecture: 'ok' })
  })

  test('one flipped bit is found: 3, with tensor and page', async () => {
    const dir = join(temporary(), 'damaged.wia')
    cpSync(STORY, dir, { recursive: true })
    const manifest = JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8'))
    const name = 'model.layers.3.mlp.down_proj.weight'
    const { offset } = manifest.tensors[name]
    const shard = join(dir, manifest.shards[0].file)
    const bytes = readFileSync(shard)
    bytes[offset + 1000]! ^= 0x10
    writeFileSync(shard, bytes)
    const { code, stdout, stderr } = await sluice(['verify', dir])
    expect([code, stdout]).toEqual([3, ''])
    expect(stderr).toMatch(/^sluice: .*model\.layers\.3\.mlp\.down_proj\.weight.*page 0.*\[CHECKSUM_MISMATCH\]\n$/)
    const { error } = JSON.parse((await sluice(['verify', dir, '--json'])).stderr) as Failure
    expect(error).toMatchObject({ code: 'CHECKSUM_MISMATCH', details: { tensor: name, page: 0 } })
    // Also found by running it, which touches every page; not by reading another tensor.
    expect((await sluice(['run', dir, PROMPT, '--max-tokens', '2'])).code).toBe(3)
    expect((await sluice(['tensor', dir, 'model.norm.weight'])).code).toBe(0)
  })

  test('a package cut short is not opened: 3', async () => {
    const dir = join(temporary(), 'cut.wia')
    cpSync(STORY, dir, { recursive: true })
    const shard = join(dir, 'weights/model-00000.bin')
    writeFileSync(shard, readFileSync(shard).subarray(0, 1_000_000))
    expect((await sluice(['verify', dir])).code).toBe(3)
  })

  dataTest('formats without checksums say so', async () => {
    const facts = onlyLine(await sluice(['verify', data('stories260k/hf'), '--json']))
    expect(facts).toMatchObject({ format: 'safetensors', checksums: expect.stringContaining('none in this format') })
  })
})

describe('plan', () => {
  test('in a few aligned lines', async () => {
    const { code, stdout } = await sluice(['plan', STORY, '--memory', '256MiB', '--weight-memory', '2.75MB'])
    expect(code).toBe(0)
    const lines = stdout.trimEnd().split('\n')
    expect(lines.map((l) => l.slice(0, 13).trim())).toEqual([
      'budget',
      'process',
      'cache',
      'activations',
      'weights',
      'streamed',
      'smallest',
    ])
    expect(stdout).toMatch(/^weights {6}5\.25 MiB: [\d.]+ [KM]iB pinned \(\d+ %\), ring [\d.]+ [KM]iB$/m)
    expect(stdout).toMatch(/^streamed {5}[\d.]+ MiB read again for every token$/m)
  })

  test.for([
    { name: 'the model', more: [] },
    { name: 'the model in exact precision, one thread', more: ['--precision', 'exact', '--threads', '1'] },
    { name: 'the model with its adapter', more: ['--lora', 'pirate'] },
  ])('too small a budget ends with 4 and names the smallest: $name', async ({ more }) => {
    const plan = (memory: string) => sluice(['plan', STORY, '--memory', memory, '--json', ...more])
    for (const tooSmall of more.length === 0 ? ['1MiB', '100MiB'] : ['1MiB']) {
      const { code, stdout, stderr } = await plan(tooSmall)
      expect([code, stdout]).toEqual([4, ''])
      const { error } = JSON.parse(stderr) as Failure
      expect(error.code).toBe('BUDGET_TOO_SMALL')
      const required = error.details.requiredBytes as number
      expect(error.message).toContain(`≥ ${required / MIB} MiB`)
      // What was named works, for the plan and for the run, as it is written.
      const memory = `${required / MIB}MiB`
      expect((await plan(memory)).code).toBe(0)
      const run = await sluice(['run', STORY, PROMPT, '--memory', memory, '--max-tokens', '2', '--json', ...more])
      expect(run.stderr).toBe('')
      const { memory: used } = onlyLine(run) as { memory: { peakBytes: number } }
      expect(used.peakBytes).toBeLessThanOrEqual(required)
      // It is no idle number: a tenth less does not do.
      expect((await plan(`${Math.floor((0.9 * required) / MIB)}MiB`)).code).toBe(4)
    }
  })

  test('the size that holds all of it streams nothing', async () => {
    const { residentBytes } = onlyLine(await sluice(['plan', STORY, '--json'])) as { residentBytes: number }
    const plan = onlyLine(await sluice(['plan', STORY, '--json', '--memory', String(residentBytes)]))
    expect(plan).toMatchObject({ budgetBytes: residentBytes, pager: { streamedBytesPerPass: 0 } })
  })
})

describe('convert and shard', () => {
  test('to int8, in shards, and into other shards in place', async () => {
    const out = join(temporary(), 'story.wia')
    const convert = ['convert', STORY, '-o', out, '--quantize', 'int8', '--name', 'tale']
    const first = await sluice(convert)
    expect(first.code).toBe(0)
    expect(first.stdout).toMatch(
      /^ {2}model\.layers\.0\.self_attn\.q_proj\.weight +int8 \(blocks of 32\) +RMSE [\d.]+e-\d+ +relative 0\.\d+ %$/m,
    )
    expect(first.stdout).toMatch(
      /2,755,008 parameters, 5\.25 MiB → [\d.]+ MiB in [\d.]+ s\nlargest error: .*relative RMSE [\d.]+ %\n$/,
    )
    // It stands there: not again without --force.
    const second = await sluice(convert)
    expect([second.code, second.stderr]).toEqual([5, expect.stringMatching(/\[OUTPUT_EXISTS\]/)])
    const report = onlyLine(await sluice([...convert, '--force', '--json']))
    expect(report).toMatchObject({
      output: out,
      parameters: 2_755_008,
      worst: { error: { relativeRmse: expect.any(Number) } },
    })

    const told = async () =>
      (
        onlyLine(await sluice(['run', out, PROMPT, '--temperature', '0', '--max-tokens', '8', '--json'])) as {
          ids: number[]
        }
      ).ids
    const before = await told()
    expect(onlyLine(await sluice(['inspect', out, '--json']))).toMatchObject({ metadata: { model_name: 'tale' } })
    const { stdout, code } = await sluice(['shard', out, '--max-shard-size', '1MiB'])
    expect(code).toBe(0)
    const sizes = readdirSync(join(out, 'weights'))
      .filter((f) => f.endsWith('.bin'))
      .map((f) => statSync(join(out, 'weights', f)).size)
    expect(sizes.length).toBeGreaterThan(2)
    expect(stdout.trimEnd().split('\n')).toHaveLength(sizes.length)
    for (const size of sizes) expect(size).toBeLessThanOrEqual(MIB)
    expect((await sluice(['verify', out])).code).toBe(0)
    expect(await told()).toEqual(before)
    expect(readdirSync(join(out, '..'))).toEqual(['story.wia'])
  })

  test('writing other formats is not implemented: 6', async () => {
    const { code, stderr } = await sluice(['convert', STORY, '--to', 'gguf', '-o', join(temporary(), 'x.gguf')])
    expect([code, stderr]).toEqual([6, expect.stringMatching(/writing gguf is not implemented.*\[NOT_IMPLEMENTED\]/)])
  })

  test('an unknown family converts with --tensors-only, and the error says so', async () => {
    const dir = writeCheckpoint(join(temporary(), 'm'), { model_type: 'brandnew' })
    const out = join(temporary(), 'out.wia')
    const refused = await sluice(['convert', dir, '-o', out])
    expect([refused.code, existsSync(out)]).toEqual([3, false])
    expect(refused.stderr).toContain('--tensors-only')
    expect((await sluice(['convert', dir, '-o', out, '--tensors-only'])).code).toBe(0)
    expect((await sluice(['verify', out])).code).toBe(0)
  })

  test('only packages are sharded', async () => {
    const { code, stderr } = await sluice(['shard', writeCheckpoint(temporary()), '--max-shard-size', '1MiB'])
    expect([code, stderr]).toEqual([2, expect.stringMatching(/Use convert with --shard-size/)])
  })
})

describe('bench and doctor', () => {
  test('bench measures both speeds', async () => {
    const args = ['bench', STORY, '--memory', '256MiB', '--prompt-tokens', '16', '--generate', '4', '--repeat', '2']
    expect(onlyLine(await sluice([...args, '--json']))).toMatchObject({
      promptTokens: 16,
      generated: 4,
      prefillTokensPerSecond: { min: expect.any(Number), median: expect.any(Number), max: expect.any(Number) },
      decodeTokensPerSecond: { median: expect.any(Number) },
      report: { budgetBytes: 256 * MIB, threads: expect.any(Number) },
    })
    const { stdout } = await sluice(args)
    expect(stdout).toMatch(/^prefill +[\d.]+ tokens\/s \([\d.]+ … [\d.]+\)\ndecode +[\d.]+ tokens\/s/)
  })

  test('a bench that does not fit into the context ends with 4', async () => {
    expect((await sluice(['bench', STORY, '--prompt-tokens', '500', '--generate', '13'])).code).toBe(4)
  })

  test('doctor', async () => {
    const { code, stdout } = await sluice(['doctor'])
    expect(code).toBe(0)
    expect(stdout).toMatch(
      /^sluice .* on Node v\d+.*\ncores .*\nmemory .*\nkernels .*\nmapping addon .*\nmmap-io .*\n$/,
    )
    expect(onlyLine(await sluice(['doctor', '--json']))).toMatchObject({
      node: process.version,
      kernels: { set: expect.any(String) },
    })
  })
})

describe('a model that is not there or is none', () => {
  test('5 for a missing path, 3 for another format', async () => {
    const dir = temporary()
    writeFileSync(join(dir, 'notes.txt'), 'hello')
    for (const verb of ['inspect', 'verify', 'plan']) {
      expect((await sluice([verb, join(dir, 'nothing')])).code).toBe(5)
      expect((await sluice([verb, join(dir, 'notes.txt')])).code).toBe(3)
      expect((await sluice([verb, dir])).code).toBe(3)
    }
  })

  test('a model without a tokenizer takes ids only: 3', async () => {
    const { code, stderr } = await sluice(['run', writeCheckpoint(temporary()), 'Hello'])
    expect([code, stderr]).toEqual([3, expect.stringMatching(/ids.*\[TOKENIZER_MISSING\]/)])
  })
})
