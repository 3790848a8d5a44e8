// The examples run as they stand and say what they say they do.
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { expect, onTestFinished, test } from 'vitest'

const ROOT = resolve(import.meta.dirname, '../..')
const golden = (name: string): string =>
  JSON.parse(readFileSync(join(ROOT, `test/fixtures/storyteller/${name}.json`), 'utf8')).prompts[0].greedy_text

function run(example: string, ...args: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(ROOT, 'examples', example), ...args], {
    cwd: tmpdir(), // from anywhere
    encoding: 'utf8',
  })
  return { status, stdout, stderr, lines: stdout.trimEnd().split('\n') }
}

test('every example is run here', () => {
  const source = readFileSync(import.meta.filename, 'utf8')
  const examples = readdirSync(join(ROOT, 'examples')).filter((f) => f.endsWith('.mjs'))
  expect(examples.length).toBeGreaterThanOrEqual(5)
  expect(examples.filter((f) => !source.includes(`run('${f}'`))).toEqual([])
})

test('read-tensor', () => {
  const { status, stderr, lines } = run('read-tensor.mjs')
  expect([status, stderr]).toEqual([0, ''])
  expect(lines[0]).toBe('model.embed_tokens.weight: bfloat16 [2048, 192], 786432 bytes stored')
  // bfloat16 straight from the shard, where the embedding lies first.
  const shard = readFileSync(join(ROOT, 'examples/storyteller.wia/weights/model-00000.bin'))
  const value = new Float32Array(1)
  const bits = new Uint32Array(value.buffer)
  let largest = 0
  for (let i = 0; i < 2048 * 192; i++) {
    bits[0] = shard.readUInt16LE(2 * i) << 16
    largest = Math.max(largest, Math.abs(value[0]!))
  }
  expect(lines[2]).toBe(`largest magnitude ${largest}`)
})

test('stream-text', () => {
  const { status, stdout, stderr } = run('stream-text.mjs')
  expect(status).toBe(0)
  expect(stdout.length).toBeGreaterThan(200)
  expect(stderr).toMatch(/^\[80 tokens, \d+ tokens\/s\]\n\[memory: [\d.]+ MiB of 256 MiB\]\n$/)
  expect(run('stream-text.mjs').stdout).toBe(stdout) // the seed decides
})

test('lora-scales', () => {
  const { status, stderr, stdout } = run('lora-scales.mjs')
  expect([status, stderr]).toEqual([0, ''])
  const [, plain, pirate] = /^scale 0: ([\s\S]*)\nscale 1: ([\s\S]*)\n$/.exec(stdout)!
  expect(golden('base').startsWith(plain!)).toBe(true)
  expect(golden('pirate').startsWith(pirate!)).toBe(true)
  expect(plain!.length).toBeGreaterThan(60)
})

test('convert-quantize', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-example-'))
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }))
  const output = join(dir, 'int4.wia')
  const { status, stderr, lines } = run('convert-quantize.mjs', join(ROOT, 'examples/storyteller.wia'), output)
  expect([status, stderr]).toEqual([0, ''])
  expect(lines[0]).toMatch(/^5\.25 MiB → 1\.\d+ MiB: /)
  expect(lines[1]).toBe('43 of 56 tensors were rounded')
  expect(Number(/([\d.]+) % relative error$/.exec(lines[2]!)![1])).toBeLessThan(12)
  expect(lines[3]).toBe('verified: 56 tensors')
  const again = run('convert-quantize.mjs', join(ROOT, 'examples/storyteller.wia'), output)
  expect([again.status, again.stderr]).toEqual([1, `${output} exists already\n`])
})

test('cancel', () => {
  const { status, stderr, lines } = run('cancel.mjs')
  expect([status, stderr]).toEqual([0, ''])
  expect(lines[0]).toBe('cancelled after 10 tokens')
  expect(lines[1]).toMatch(/^and again: Once upon a time.{10,}$/)
})
