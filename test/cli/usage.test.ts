// What a person gets who types something wrong, and what --help promises.
import { describe, expect, test } from 'vitest'
import { PROMPT, STORY, sluice, VERBS } from './cli.ts'

const WRONG: { name: string; args: string[]; says: RegExp; code?: string }[] = [
  {
    name: 'an unknown verb',
    args: ['rum', STORY],
    says: /unknown command 'rum'\. Did you mean run\? See sluice --help\./,
  },
  { name: 'a missing argument', args: ['run'], says: /missing required argument 'model'\. See sluice run --help\./ },
  { name: 'an argument too many', args: ['doctor', 'x'], says: /too many arguments/ },
  {
    name: 'an unknown option',
    args: ['plan', STORY, '--memori', '1GiB'],
    says: /unknown option '--memori'\. Did you mean --memory\?/,
  },
  { name: 'an ambiguous amount', args: ['plan', STORY, '--memory', '4G'], says: /Write '4GiB' .* or '4GB'/ },
  { name: 'an amount that is none', args: ['plan', STORY, '--memory', 'much'], says: /Write it like '4GiB'/ },
  {
    name: 'a choice that is none',
    args: ['run', STORY, 'x', '--precision', 'best'],
    says: /Allowed choices are exact, fast/,
  },
  { name: 'neither prompt nor ids', args: ['run', STORY], says: /give a prompt or --ids.* Example: sluice run/ },
  { name: 'both prompt and ids', args: ['run', STORY, 'x', '--ids', '1'], says: /one of the two/ },
  { name: 'ids that are none', args: ['run', STORY, '--ids', '1,x'], says: /Expected a whole number/ },
  {
    name: 'an id outside the vocabulary',
    args: ['run', STORY, '--ids', '1,2048'],
    says: /0 … 2047, got 2048/,
    code: 'REQUEST_INVALID',
  },
  { name: 'no threads', args: ['run', STORY, 'x', '--threads', '0'], says: /1 … 64, got 0/, code: 'REQUEST_INVALID' },
  {
    name: 'a context of none',
    args: ['run', STORY, 'x', '--context', '513'],
    says: /1 … 512, got 513/,
    code: 'REQUEST_INVALID',
  },
  {
    name: 'a temperature below 0',
    args: ['run', STORY, 'x', '--temperature', '-1'],
    says: /temperature is out of range/,
    code: 'REQUEST_INVALID',
  },
  {
    name: 'logits of nothing',
    args: ['logits', STORY, '-o', '/dev/null'],
    says: /give --prompt or --ids.* Example: sluice logits/,
  },
  {
    name: 'logits without output',
    args: ['logits', STORY, '--ids', '1'],
    says: /required option '-o, --output <file>'/,
  },
  {
    name: 'tokenize without text',
    args: ['tokenize', STORY],
    says: /give a text or --decode.* Example: sluice tokenize/,
  },
  { name: 'no repetitions', args: ['bench', STORY, '--repeat', '0'], says: /whole number from 1/ },
  { name: 'shard without a size', args: ['shard', STORY], says: /required option '--max-shard-size <size>'/ },
  {
    name: 'a tensor that is not there',
    args: ['tensor', STORY, 'norm.weight'],
    says: /Similar: model\..*sluice inspect --tensors/,
    code: 'TENSOR_NOT_FOUND',
  },
  { name: 'an empty adapter path', args: ['run', STORY, 'x', '--lora', ':0.5'], says: /adapter path is empty/ },
  {
    name: 'an adapter scale that is none',
    args: ['run', STORY, 'x', '--lora', 'pirate:loud'],
    says: /scale is not a finite number.*--lora \.\/adapter:0\.5/,
  },
]

describe('what is wrong is said in one line, with a remedy, and ends with 2', () => {
  test.for(WRONG)('$name', async ({ args, says, code = 'USAGE' }) => {
    const text = await sluice(args)
    expect(text.stderr).toMatch(says)
    expect(text.stderr.trimEnd().split('\n')).toHaveLength(1)
    expect(text.stderr).toMatch(new RegExp(`^sluice: .* \\[${code}\\]\\n$`))
    expect([text.code, text.stdout]).toEqual([2, ''])
  })

  test('with --json it is an object on stderr', async () => {
    for (const { args, code = 'USAGE' } of [WRONG[0]!, WRONG[3]!, WRONG[10]!]) {
      const json = await sluice([...args, '--json'])
      expect([json.code, json.stdout]).toEqual([2, ''])
      expect(JSON.parse(json.stderr).error).toMatchObject({
        code,
        message: expect.any(String),
        details: expect.any(Object),
      })
    }
  })

  test('no verb shows the help', async () => {
    const { code, stdout, stderr } = await sluice([])
    expect([code, stdout]).toEqual([2, ''])
    expect(stderr).toContain('Usage: sluice')
  })
})

describe('--help', () => {
  test('lists every verb, with examples and exit codes', async () => {
    const { code, stdout, stderr } = await sluice(['--help'])
    expect([code, stderr]).toEqual([0, ''])
    for (const verb of VERBS) expect(stdout).toMatch(new RegExp(`^  ${verb}\\b`, 'm'))
    for (const exit of ['0 ok', '2 usage', '3 not valid', '4 memory', '5 input', '6 not implemented', '130 cancelled'])
      expect(stdout).toContain(exit)
  })

  test.for([...VERBS])('%s has examples whose options exist', async (verb) => {
    const { code, stdout } = await sluice([verb, '--help'])
    expect(code).toBe(0)
    const [before, after] = stdout.split(/^Examples?:$/m)
    expect(after).toBeDefined()
    const examples = after!.split('\n').filter((line) => line.trim() !== '')
    expect(examples.length).toBeGreaterThan(0)
    for (const line of examples) {
      expect(line).toMatch(new RegExp(`^  sluice ${verb}\\b`))
      for (const [option] of line.matchAll(/(?<= )--?[a-z][a-z-]*/g))
        expect(before).toMatch(new RegExp(`[ ,]${option}[ ,\\n]`))
    }
    expect(before).toContain('--json')
  })

  test('validate is verify', async () => {
    expect((await sluice(['validate', '--help'])).stdout).toContain('sluice verify|validate')
  })
})

test('the version is that of package.json', async () => {
  const { version } = await import('../../package.json', { with: { type: 'json' } }).then((m) => m.default)
  for (const flag of ['--version', '-V']) expect((await sluice([flag])).stdout).toBe(`${version}\n`)
})

describe('causes', () => {
  const args = ['run', 'no-such-model', PROMPT]
  test('stay hidden, and are shown by --verbose and SLUICE_DEBUG', async () => {
    expect((await sluice(args)).stderr).not.toMatch(/^ +at /m)
    const verbose = await sluice([...args, '--verbose'])
    expect([verbose.code, verbose.stderr]).toEqual([5, expect.stringMatching(/^caused by Error: ENOENT/m)])
    expect((await sluice(args, { env: { SLUICE_DEBUG: '1' } })).stderr).toMatch(/^caused by Error: ENOENT/m)
  })
})
