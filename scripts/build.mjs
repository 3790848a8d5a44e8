// src → dist, from scratch: a file that was deleted in src must not live on in dist.
import { execFileSync } from 'node:child_process'
import { chmodSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'

const root = resolve(import.meta.dirname, '..')
rmSync(join(root, 'dist'), { recursive: true, force: true })
execFileSync(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', 'tsconfig.json'], {
  cwd: root,
  stdio: 'inherit',
})
// npm does this where it installs a package; a clone runs the file itself.
chmodSync(join(root, 'dist/cli/main.js'), 0o755)
writeFileSync(join(root, 'dist/.built'), '')
