// Is the budget a promise? Runs a model in control groups that would kill the process otherwise.
//
//   node bench/budget.mjs --model PATH [--budgets 600,1024,3072] [--threads 1,2] [--modes mmap,pread,direct]
//                         [--ids 1,403,407 | --prompt-tokens 500] [--generate 24] [--precision exact] [--quick]
//
// Budgets are MiB, or `least` (the smallest that the model asks for with these threads), or `none` (no budget given in a group of 512 MiB:
// what the group allows is found out). For every budget × threads × mode: neither the peak charge (page cache included) nor the peak resident
// set goes over the budget, and the logits are the same bytes everywhere. Prints a line a run and one JSON object at the end; exit code 1 when a
// promise is broken.
// A model of a billion parameters: `node tools/inflate.mjs … --dim 2048 --hidden 5632 --copies 32 --layers 22 --dtype bf16` of the test data.
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { cgroupProblem, runLimited } from './cgroup.mjs'

const { values: o } = parseArgs({
  options: {
    model: { type: 'string' },
    budgets: { type: 'string', default: '600,1024,3072' },
    threads: { type: 'string', default: '1,2' },
    modes: { type: 'string', default: 'mmap,pread,direct' },
    ids: { type: 'string', default: '1,403,407,261,378' },
    'prompt-tokens': { type: 'string' },
    generate: { type: 'string', default: '24' },
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
/** Of the group when no budget is given. */
const GROUP_BYTES = 512 * MiB
const budgets = o.quick ? ['600'] : o.budgets.split(',')
const ids =
  o['prompt-tokens'] === undefined
    ? o.ids
    : Array.from({ length: Number(o['prompt-tokens']) }, (_, i) => 1 + ((i * 97) % 390)).join(',')
const dir = mkdtempSync(join(tmpdir(), 'sluice-budget-'))
const runs = []
let sha

/** The smallest budget, from the refusal of one that is too small. */
function least(threads) {
  const flags = ['--memory', '1', '--threads', threads, '--precision', o.precision]
  const { stderr } = spawnSync(process.execPath, [CLI, 'plan', o.model, ...flags], { encoding: 'utf8' })
  const found = /≥ (\d+) bytes/.exec(stderr)
  if (found === null) throw new Error(`no smallest budget in: ${stderr}`)
  return Number(found[1])
}

/** One run of the command line; `facts` of its JSON. */
async function limited(name, budget, threads, mode, args, check) {
  const limit = budget ?? GROUP_BYTES
  const memory = budget === undefined ? [] : ['--memory', String(budget)]
  const flags = ['--threads', threads, '--io-mode', mode, '--precision', o.precision, '--json']
  const r = await runLimited(limit, process.execPath, [CLI, ...args, ...memory, ...flags])
  const facts = r.code === 0 ? JSON.parse(r.stdout.trim().split('\n').at(-1)) : {}
  const residentBytes = facts.memory?.peakBytes
  const within = r.oomKills === 0 && r.peakBytes < limit && residentBytes < limit && facts.memory.budgetBytes <= limit
  const ok = r.code === 0 && within && check(facts)
  const { code, signal, oomKills, peakBytes } = r
  const run = {
    name,
    limit,
    threads: Number(threads),
    mode,
    code,
    signal,
    oomKills,
    peakBytes,
    residentBytes,
    wallMs: Math.round(r.wallMs),
    ok,
  }
  runs.push(run)
  const [limitText, charged, resident] = [limit, peakBytes, residentBytes].map((n) => (n / MiB).toFixed(0).padStart(5))
  console.log(
    `${limitText} MiB  ${threads} threads  ${mode.padEnd(6)}  ${name.padEnd(8)}  charged ${charged} MiB (${((100 * peakBytes) / limit).toFixed(0)} %), resident ${resident} MiB (${((100 * residentBytes) / limit).toFixed(0)} %)  ${(r.wallMs / 1000).toFixed(1).padStart(6)} s  ${ok ? 'ok' : `BROKEN ${r.stderr.trim().split('\n').at(-1)}`}`,
  )
  return facts
}

let story
for (const budget of budgets)
  for (const threads of o.threads.split(',')) {
    const bytes = budget === 'none' ? undefined : budget === 'least' ? least(threads) : Number(budget) * MiB
    for (const mode of o.modes.split(',')) {
      const out = join(dir, 'logits.npy')
      await limited('logits', bytes, threads, mode, ['logits', o.model, '--ids', ids, '-o', out], () => {
        const got = createHash('sha256').update(readFileSync(out)).digest('hex')
        sha ??= got
        return got === sha
      })
      rmSync(out, { force: true })
    }
    if (story !== undefined && budget !== 'least') continue
    const args = ['run', o.model, '--ids', o.ids, '--temperature', '0', '--max-tokens', o.generate]
    const facts = await limited('generate', bytes, threads, 'auto', args, (f) => f.ids.length > 0)
    story ??= facts
  }
rmSync(dir, { recursive: true, force: true })
const broken = runs.some((r) => !r.ok)
console.log(JSON.stringify({ model: o.model, runs, sha, story, broken }))
process.exit(broken ? 1 : 0)
