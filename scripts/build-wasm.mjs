// Builds the kernels of native/kernels to src/kernels/wasm/{baseline,relaxed}.wasm.ts (module as base64, hash of its sources and
// flags). With --check it builds and compares instead, and fails on a difference. Needs clang and wasm-ld, version 19
// (Debian: clang-19, lld-19); CLANG and WASM_LD name others.
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'

const root = join(import.meta.dirname, '..')
const sources = join(root, 'native/kernels')
const clang = process.env.CLANG ?? 'clang-19'
const linker = process.env.WASM_LD ?? 'wasm-ld-19'

const COMPILE = [
  '--target=wasm32',
  '-std=c17',
  '-O3',
  '-Wall',
  '-Wextra',
  '-Werror',
  '-Wframe-larger-than=6144', // a thread's stack is 8 KiB
  '-ffreestanding',
  '-nostdlib',
  '-ffp-contract=off',
  '-matomics',
  '-mbulk-memory',
  '-msimd128',
]
// The stack pointer is exported: every instance gets a stack of its own (src/kernels/wasm/wasm.ts). Constants are passive
// segments that the first instance over a memory writes, guarded by an atomic flag.
const LINK = [
  '--no-entry',
  '--strip-all',
  '--import-memory',
  '--shared-memory',
  '--initial-memory=1048576',
  '--max-memory=4294967296',
  '-z',
  'stack-size=8192',
  '--export=__stack_pointer',
]
// Both sets may be bound to one memory, so their constants lie apart.
const SETS = {
  baseline: { compile: [], link: ['--global-base=1024'] },
  relaxed: { compile: ['-mrelaxed-simd', '-DRELAXED'], link: ['--global-base=65536'] },
}

const names = readdirSync(sources)
  .filter((name) => /\.[ch]$/.test(name))
  .sort()

function build(set) {
  const flags = { compile: [...COMPILE, ...SETS[set].compile], link: [...LINK, ...SETS[set].link] }
  const hash = createHash('sha256').update(JSON.stringify(flags))
  for (const name of names) hash.update(`\n${name}\n`).update(readFileSync(join(sources, name)))
  const folder = mkdtempSync(join(tmpdir(), 'kernels-'))
  try {
    const objects = names
      .filter((name) => name.endsWith('.c'))
      .map((name) => {
        const object = join(folder, `${basename(name, '.c')}.o`)
        execFileSync(clang, [...flags.compile, '-c', name, '-o', object], { cwd: sources, stdio: 'inherit' })
        return object
      })
    const module = join(folder, 'kernels.wasm')
    execFileSync(linker, [...flags.link, ...objects, '-o', module], { stdio: 'inherit' })
    const bytes = readFileSync(module)
    const text = [
      `// Written by scripts/build-wasm.mjs from native/kernels; do not edit.`,
      `// ${clang.replace(/.*\//, '')} ${flags.compile.join(' ')}`,
      `// ${linker.replace(/.*\//, '')} ${flags.link.join(' ')}`,
      ``,
      `/** SHA-256 of the flags and sources. */`,
      `export const sourcesSha256 = '${hash.digest('hex')}'`,
      ``,
      `/** The module, ${bytes.length} bytes. */`,
      `export const moduleBase64 =`,
      `  '${bytes.toString('base64')}'`,
      ``,
    ].join('\n')
    return { text, bytes: bytes.length }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

const check = process.argv.includes('--check')
for (const set of Object.keys(SETS)) {
  const path = join(root, `src/kernels/wasm/${set}.wasm.ts`)
  const { text, bytes } = build(set)
  if (!check) {
    writeFileSync(path, text)
    console.log(`${set}: ${bytes} bytes`)
  } else if (readFileSync(path, 'utf8') === text) console.log(`${set}: is the build of its sources`)
  else {
    console.error(
      `${set}: src/kernels/wasm/${set}.wasm.ts is not the build of native/kernels. Run: node scripts/build-wasm.mjs`,
    )
    process.exitCode = 1
  }
}
