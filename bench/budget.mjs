// Is the budget a promise? A model of a billion parameters in control groups that would kill the process otherwise.
//
//   node bench/budget.mjs --model DIR [--ids 1,403,407] [--quick]
//
// For every budget × threads × I/O mode: the peak charge (page cache included) must stay under the budget, and the logits must be the
// same bytes everywhere; the greedy text is printed once. Prints a line a run and one JSON object at the end. Exit code 1 when a promise is broken.
// A model of that size: `node tools/inflate.mjs … --dim 2048 --hidden 5632 --copies 32 --layers 22 --dtype bf16` of the test data.
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { cgroupProblem, runLimited } from './cgroup.mjs'

const { values: o } = parseArgs({
  options: {
    model: { type: 'string' },
    ids: { type: 'string', default: '1,403,407,261,378' },
    quick: { type: 'boolean' },
    precision: { type: 'string', default: 'exact' },
  },
})
const problem = cgroupProblem()
if (problem !== undefined || o.model === undefined) {
  console.log(`skipped: ${problem ?? 'no --model given'}`)
  process.exit(o.model === undefined ? 2 : 0)
}
const CLI = resolve(import.meta.dirname, '../dist/cli/main.js')
const MiB = 1024 ** 2
const budgets = o.quick ? [600 * MiB] : [600 * MiB, 1024 * MiB, 3072 * MiB]
const threads = [1, 2]
const modes = ['mmap', 'pread', 'direct']
const dir = mkdtempSync(join(tmpdir(), 'sluice-budget-'))
const runs = []
let broken = false

for (const budget of budgets)
  for (const t of threads)
    for (const mode of modes) {
      const out = join(dir, 'logits.npy')
      const common = ['--memory', String(budget), '--threads', String(t), '--io-mode', mode, '--precision', o.precision]
      const r = await runLimited(budget, process.execPath, [
        CLI,
        'logits',
        o.model,
        '--ids',
        o.ids,
        ...common,
        '--json',
        '-o',
        out,
      ])
      const sha = r.code === 0 ? createHash('sha256').update(readFileSync(out)).digest('hex') : undefined
      const ok = r.code === 0 && r.oomKills === 0 && r.peakBytes < budget && (runs.length === 0 || sha === runs[0].sha)
      broken ||= !ok
      runs.push({
        budget,
        threads: t,
        mode,
        code: r.code,
        signal: r.signal,
        oomKills: r.oomKills,
        peakBytes: r.peakBytes,
        wallMs: Math.round(r.wallMs),
        sha,
        ok,
      })
      console.log(
        `${(budget / MiB).toFixed(0).padStart(5)} MiB  ${t} threads  ${mode.padEnd(6)}  peak ${(r.peakBytes / MiB).toFixed(0).padStart(5)} MiB (${((100 * r.peakBytes) / budget).toFixed(1)} %)  ${(r.wallMs / 1000).toFixed(1).padStart(6)} s  ${sha?.slice(0, 12) ?? r.stderr.trim().split('\n').at(-1)}  ${ok ? 'ok' : 'BROKEN'}`,
      )
      rmSync(out, { force: true })
    }

const text = await runLimited(budgets[0], process.execPath, [
  CLI,
  'run',
  o.model,
  '--ids',
  o.ids,
  '--temperature',
  '0',
  '--max-tokens',
  '24',
  '--memory',
  String(budgets[0]),
  '--precision',
  o.precision,
  '--json',
])
const story = text.code === 0 ? JSON.parse(text.stdout.trim().split('\n').at(-1)) : { error: text.stderr }
broken ||= text.code !== 0 || text.peakBytes >= budgets[0]
rmSync(dir, { recursive: true, force: true })
console.log(
  JSON.stringify({
    model: o.model,
    runs,
    story,
    storyPeakBytes: text.peakBytes,
    identical: new Set(runs.map((r) => r.sha)).size === 1,
    broken,
  }),
)
process.exit(broken ? 1 : 0)
