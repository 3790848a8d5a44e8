// npm run demo: prints the plan, then streams a story from the embedded model with room for only half of its weights, then the
// same again told by its LoRA adapter.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { bootstrap, root } from './bootstrap.mjs'

bootstrap()

const MODEL = join(root, 'examples/storyteller.wia')
const CLI = join(root, 'dist/cli/main.js')
const PROMPT = 'A story about a fox and a lantern.\n'
// Half of the 5.5 MB of weights; the rest is read again for every token.
const WEIGHTS = '2.75MB'

function sluice(args, show = args) {
  console.log(
    `\n$ sluice ${show.map((a) => (a.includes('\n') ? `$${JSON.stringify(a).replaceAll('"', "'")}` : /[\s*]/.test(a) ? JSON.stringify(a) : a)).join(' ')}\n`,
  )
  const { status } = spawnSync(process.execPath, [CLI, ...args], { cwd: root, stdio: 'inherit' })
  if (status !== 0) {
    console.error(`demo failed (exit code ${status})`)
    process.exit(status ?? 1)
  }
}

const shown = 'examples/storyteller.wia'
const sampling = ['--temperature', '0.8', '--top-p', '0.95', '--seed', '12', '--max-tokens', '400']
sluice(
  ['plan', MODEL, '--memory', '256MiB', '--weight-memory', WEIGHTS],
  ['plan', shown, '--memory', '256MiB', '--weight-memory', WEIGHTS],
)
sluice(
  ['run', MODEL, PROMPT, '--memory', '256MiB', '--weight-memory', WEIGHTS, ...sampling],
  ['run', shown, PROMPT, '--memory', '256MiB', '--weight-memory', WEIGHTS, ...sampling],
)
sluice(
  ['run', MODEL, PROMPT, '--memory', '256MiB', '--weight-memory', WEIGHTS, '--lora', 'pirate', ...sampling],
  ['run', shown, PROMPT, '--memory', '256MiB', '--weight-memory', WEIGHTS, '--lora', 'pirate', ...sampling],
)
