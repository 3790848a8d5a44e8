// Makes a bare clone ready: installs the pinned dependencies and builds, each only when needed, and says so.
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'

export const root = resolve(import.meta.dirname, '..')
const major = Number(process.versions.node.split('.')[0])

function newest(dir) {
  let time = 0
  for (const f of readdirSync(dir, { recursive: true, withFileTypes: true }))
    if (f.isFile()) time = Math.max(time, statSync(join(f.parentPath ?? f.path, f.name)).mtimeMs)
  return time
}

export function run(command, args, options = {}) {
  execFileSync(command, args, { cwd: root, stdio: 'inherit', ...options })
}

function install() {
  if (existsSync(join(root, 'node_modules/typescript')) && existsSync(join(root, 'node_modules/p-limit'))) return
  console.log('sluice: installing dependencies (npm ci) …')
  // mmap-io, an optional dependency, compiles only with a newer C++ standard than it asks for; without a compiler it is left out.
  const CXXFLAGS = process.env.CXXFLAGS ?? (major >= 24 ? '-std=c++20' : '-std=c++17')
  run('npm', ['ci', '--no-audit', '--no-fund', '--loglevel=error'], {
    env: { ...process.env, CXXFLAGS },
    shell: process.platform === 'win32',
  })
}

function build() {
  const out = join(root, 'dist/cli/main.js')
  const stamp = join(root, 'dist/.built')
  if (existsSync(out) && existsSync(stamp) && statSync(stamp).mtimeMs > newest(join(root, 'src'))) return
  console.log('sluice: building (tsc) …')
  run(process.execPath, ['scripts/build.mjs'])
}

export function bootstrap() {
  if (major < 20) {
    console.error(`sluice needs Node 20 or newer; this is ${process.version}`)
    process.exit(1)
  }
  install()
  build()
}

if (process.argv[1] === import.meta.filename) bootstrap()
