// Builds the Node-API addon and puts it where it is loaded from: prebuilds/<platform>-<arch>/sluice.node.
//
//   node scripts/build-addon.mjs           builds
//   node scripts/build-addon.mjs --check   fails unless the committed one loads and was built from these sources
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, renameSync } from 'node:fs'
import { createRequire } from 'node:module'
import { delimiter, dirname, join, resolve } from 'node:path'

const root = resolve(import.meta.dirname, '..')
const native = join(root, 'native')
const target = join(root, 'prebuilds', `${process.platform}-${process.arch}`, 'sluice.node')

/** SHA-256 over names and contents of the sources, first 16 digits: what the addon must say its version is. */
export function sourcesHash() {
  const hash = createHash('sha256')
  const files = [
    'binding.gyp',
    ...readdirSync(join(native, 'addon'))
      .sort()
      .map((f) => `addon/${f}`),
  ]
  for (const file of files)
    hash
      .update(`${file}\0`)
      .update(readFileSync(join(native, file)))
      .update('\0')
  return hash.digest('hex').slice(0, 16)
}

/** npm brings its own node-gyp: beside the npm that runs us, or the one on the path. */
function nodeGyp() {
  const npms = [process.env.npm_execpath, ...process.env.PATH.split(delimiter).map((d) => join(d, 'npm'))]
  for (const npm of npms) {
    if (npm === undefined || !existsSync(npm)) continue
    const script = join(dirname(realpathSync(npm)), '../node_modules/node-gyp/bin/node-gyp.js')
    if (existsSync(script)) return script
  }
  throw new Error('no node-gyp: it comes with npm, and no npm is on the path')
}

function build() {
  // npm hands its settings to node-gyp as npm_config_*; run by hand, ask npm where the headers of Node are.
  const env = { ...process.env }
  if (env.npm_config_nodedir === undefined) {
    const said = spawnSync('npm', ['config', 'get', 'nodedir'], { encoding: 'utf8' }).stdout?.trim()
    if (said && said !== 'undefined' && said !== 'null') env.npm_config_nodedir = said
  }
  const args = [nodeGyp(), 'rebuild', '-C', native, `--sluice_sources=${sourcesHash()}`]
  const { status } = spawnSync(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'], env })
  if (status !== 0) throw new Error(`node-gyp ended with ${status}`)
  mkdirSync(dirname(target), { recursive: true })
  // By renaming: a process that has the old one loaded keeps it.
  copyFileSync(join(native, 'build/Release/sluice.node'), `${target}.tmp`)
  renameSync(`${target}.tmp`, target)
}

function check() {
  const expected = sourcesHash()
  const { version } = createRequire(import.meta.url)(target)
  if (version !== expected)
    throw new Error(
      `${target} was built from other sources: expected ${expected}, got ${version}. Run node scripts/build-addon.mjs`,
    )
  console.log(`addon ${version} is the build of its sources`)
}

if (process.argv.includes('--check')) check()
else {
  build()
  check()
}
