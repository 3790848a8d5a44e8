// The commands of the README run exactly as they are written, in the order in which they stand, from a clone's top folder.
import { spawnSync } from 'node:child_process'
import { readFileSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT, temporary } from './cli.ts'

/** Indented lines that are commands. npm's own are what runs these tests. */
function commands(file: string): string[] {
  return [...readFileSync(file, 'utf8').matchAll(/^ {4}((?:sluice|node|alias) .*)$/gm)].map((m) => m[1]!)
}

const README = process.env.SLUICE_README ?? join(ROOT, 'README.md')
const found = commands(README)

test.skipIf(found.length === 0)('README', { timeout: 300_000 }, () => {
  // What they write belongs in no clone: a folder that looks like one.
  const dir = temporary()
  for (const name of ['examples', 'dist', 'package.json']) symlinkSync(join(ROOT, name), join(dir, name))
  for (const command of found.filter((c) => !c.startsWith('alias '))) {
    const aliases = found.filter((c) => c.startsWith('alias '))
    const script = ['shopt -s expand_aliases', ...aliases, command].join('\n')
    const { status, stdout, stderr } = spawnSync('bash', ['-c', script], { cwd: dir, encoding: 'utf8' })
    expect([
      command,
      status,
      stderr.replace(/^sluice: \d+ \+ \d+ tokens.*\n/m, '').replace(/^\[.*\]\n|^\w+ \d+ % .*\n/gm, ''),
    ]).toEqual([command, 0, ''])
    if (!/ -o /.test(command)) expect([command, stdout.length > 0]).toEqual([command, true])
  }
})
