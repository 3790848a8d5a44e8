// The package as it is published: what it exports, what is in it, what it asks of an installer.
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { builtinModules } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'

const ROOT = resolve(import.meta.dirname, '..')
const PACKAGE = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
  exports: Record<string, string | Record<string, string>>
  bin: Record<string, string>
  scripts: Record<string, string>
  engines: Record<string, string>
  dependencies: Record<string, string>
  optionalDependencies: Record<string, string>
  devDependencies: Record<string, string>
}

/** Names an entry point exports, types marked, and the file each comes from. */
function exportsOf(entry: string): { name: string; type: boolean; from: string }[] {
  const text = readFileSync(join(ROOT, 'src', entry), 'utf8')
  const found = []
  for (const [, all, names, from] of text.matchAll(/^export (type )?\{([^}]*)\} from '([^']+)'/gm))
    for (const part of names!
      .split(',')
      .map((s) => s.trim())
      .filter(Boolean))
      found.push({ name: part.replace(/^type /, ''), type: all !== undefined || part.startsWith('type '), from: from! })
  const statements = text.match(/^export /gm)?.length ?? 0
  const understood = text.match(/^export (?:type )?\{[^}]*\} from |^export \* from '\.\/quant\.ts'/gm)?.length ?? 0
  expect([entry, understood]).toEqual([entry, statements])
  return found
}

const names = (entry: string, type: boolean) =>
  exportsOf(entry)
    .filter((e) => e.type === type)
    .map((e) => e.name)
    .sort()

describe('exports', () => {
  test('of sluice', async () => {
    expect(Object.keys(await import('sluice')).sort()).toEqual(names('index.ts', false))
    expect(names('index.ts', false)).toMatchInlineSnapshot(`
      [
        "BudgetError",
        "CHANNELS",
        "ConversionError",
        "ERROR_CODES",
        "InferenceError",
        "Model",
        "ModelFormatError",
        "QUANTIZATIONS",
        "SluiceError",
        "SourceError",
        "ValidationError",
        "WIAModel",
        "collect",
        "convert",
        "formatBytes",
        "isSluiceError",
        "open",
        "parseBytes",
      ]
    `)
    expect(names('index.ts', true)).toMatchInlineSnapshot(`
      [
        "AdapterOptions",
        "ArchOutput",
        "AttachedAdapter",
        "ByteSource",
        "ConversionReport",
        "ConvertModelOptions",
        "DType",
        "Encoding",
        "Engine",
        "EngineOptions",
        "EngineReport",
        "ErrorCode",
        "FinishReason",
        "Forecast",
        "ForwardOptions",
        "GenerateEvent",
        "GenerateRequest",
        "Generation",
        "Graph",
        "IoMode",
        "JsonObject",
        "JsonValue",
        "LazyTensor",
        "LoadedAdapter",
        "MatchReport",
        "ModelEngineOptions",
        "ModelReader",
        "OpenOptions",
        "PackagedAdapter",
        "PagerPlan",
        "PagerReport",
        "Precision",
        "ProgressEvent",
        "Quantization",
        "SamplingOptions",
        "ScaledAdapter",
        "Sequence",
        "TensorArray",
        "TensorChunk",
        "TensorEntry",
        "TensorReport",
        "TokenEvent",
        "Tokenizer",
        "Usage",
        "ValueInfo",
        "WIATensor",
      ]
    `)
  })

  test('of sluice/browser', async () => {
    const all = [...names('browser.ts', false), ...names('quant.ts', false)].sort()
    expect(Object.keys(await import('sluice/browser')).sort()).toEqual(all)
    expect(names('browser.ts', false)).toMatchInlineSnapshot(`
      [
        "BlobSource",
        "BudgetError",
        "ConversionError",
        "ERROR_CODES",
        "InferenceError",
        "MemorySource",
        "ModelFormatError",
        "SluiceError",
        "SourceError",
        "ValidationError",
        "cached",
        "formatBytes",
        "isSluiceError",
        "parseBytes",
        "readIndex",
        "readRows",
      ]
    `)
    expect(names('browser.ts', true)).toMatchInlineSnapshot(`
      [
        "ByteSource",
        "CacheOptions",
        "ErrorCode",
        "FileIndex",
        "FileTensor",
        "ReadOptions",
      ]
    `)
  })

  test('of sluice/quant', async () => {
    expect(Object.keys(await import('sluice/quant')).sort()).toEqual(names('quant.ts', false))
    expect(names('quant.ts', false)).toMatchInlineSnapshot(`
      [
        "E4M3",
        "E5M2",
        "NF4",
        "PANEL_ROWS",
        "QuantErrorMeter",
        "absMaxOf",
        "choosePanelExponent",
        "codecOf",
        "decodeBfloat16",
        "decodeFp8",
        "decodeHalf",
        "decodeNestedAbsmax",
        "decodeNf4Packed",
        "dequantizeLinear",
        "encodeBfloat16",
        "encodeFp8",
        "encodeHalf",
        "encodeNestedAbsmax",
        "encodeNf4",
        "encodeNf4Packed",
        "encodedBytes",
        "quantizeLinear",
      ]
    `)
    expect(names('quant.ts', true)).toMatchInlineSnapshot(`
      [
        "DType",
        "Encoding",
        "Fp8Format",
        "GgmlType",
        "LinearParams",
        "NestedAbsmax",
        "OpaqueEncoding",
        "PanelEncoding",
        "PanelSchemeName",
        "QuantError",
        "RowCodec",
      ]
    `)
  })

  test('of sluice/errors', async () => {
    expect(Object.keys(await import('sluice/errors')).sort()).toMatchInlineSnapshot(`
      [
        "BudgetError",
        "ConversionError",
        "ERROR_CODES",
        "InferenceError",
        "ModelFormatError",
        "SluiceError",
        "SourceError",
        "ValidationError",
        "isSluiceError",
        "notImplemented",
        "throwIfAborted",
      ]
    `)
  })

  test('every one has a docstring', () => {
    const bare = ['index.ts', 'browser.ts', 'quant.ts'].flatMap((entry) =>
      exportsOf(entry).filter(({ name, from }) => {
        const text = readFileSync(join(ROOT, 'src', from), 'utf8')
        const declared = new RegExp(`export (?:async )?(?:class|interface|type|function|const) ${name}\\b`).exec(text)
        return declared === null || !text.slice(0, declared.index).trimEnd().endsWith('*/')
      }),
    )
    expect(bare).toEqual([])
  })

  test('every method of what a program holds has a docstring', () => {
    const bare: string[] = []
    for (const file of ['api/model.ts', 'api/wiamodel.ts', 'tensor/lazy.ts', 'engine/engine.ts', 'text/tokenizer.ts']) {
      const lines = readFileSync(join(ROOT, 'src', file), 'utf8').split('\n')
      // A member with parameters: neither private nor the constructor.
      for (const [i, line] of lines.entries())
        if (/^ {2}(?:static |async |\*)*[a-z]\w*\(/.test(line) && !/^ {2}constructor/.test(line))
          if (!/\*\/$/.test(lines[i - 1]!.trimEnd())) bare.push(`${file}: ${line.trim()}`)
    }
    expect(bare).toEqual([])
  })

  test('every path of package.json exists, and only entry points re-export', () => {
    const paths = Object.values(PACKAGE.exports).flatMap((e) => (typeof e === 'string' ? [e] : Object.values(e)))
    expect(paths.filter((p) => !existsSync(join(ROOT, p)))).toEqual([])
  })
})

/** As tsc writes them: statements at the beginning of a line, calls anywhere. */
const IMPORTS = [
  /^(?:import|export)\s[^;'"]*\sfrom\s*['"]([^'"\n]+)['"]/gm,
  /^import\s*['"]([^'"\n]+)['"]/gm,
  /\bimport\(\s*['"]([^'"\n]+)['"]/g,
]

/** Every module a built file imports, however deep, and who asks for it first. */
function importGraph(entry: string): Map<string, string> {
  const seen = new Map<string, string>()
  const todo: [string, string][] = [[join(ROOT, 'dist', entry), 'the package']]
  for (const [file, from] of todo) {
    if (seen.has(file)) continue
    seen.set(file, from)
    if (!file.startsWith(ROOT)) continue
    // Comments may speak of imports.
    const text = readFileSync(file, 'utf8').replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, '')
    for (const form of IMPORTS)
      for (const [, target] of text.matchAll(form))
        todo.push([target!.startsWith('.') ? resolve(dirname(file), target!) : target!, file])
  }
  return seen
}

describe('browsers', () => {
  const isNode = (name: string) => name.startsWith('node:') || builtinModules.includes(name)

  test.for(['browser.js', 'quant.js', 'base/errors.js'])('%s imports nothing of Node', (entry) => {
    const graph = importGraph(entry)
    const outside = [...graph].filter(([file]) => !file.startsWith(ROOT))
    expect(outside.filter(([name]) => isNode(name))).toEqual([])
    // Nor a package: what runs in a browser stands alone.
    expect(outside).toEqual([])
    if (entry === 'browser.js') expect(graph.size).toBeGreaterThan(20)
  })

  test('the walk does see imports of Node', () => {
    const graph = importGraph('index.js')
    expect([...graph.keys()].filter(isNode)).toContain('node:fs/promises')
    expect(graph.has(join(ROOT, 'dist/engine/create.js'))).toBe(true) // imported on demand
  })

  test('works where there is no Buffer and no process', () => {
    // A GGUF of one vector and two keys, as its specification has it: counts and lengths are 64-bit, the data begins at a multiple of 32.
    const program = `
      const u32 = (n) => [n & 255, (n >> 8) & 255, (n >> 16) & 255, n >>> 24]
      const u64 = (n) => [...u32(n), 0, 0, 0, 0]
      const text = (s) => { const b = new TextEncoder().encode(s); return [...u64(b.length), ...b] }
      const head = [...new TextEncoder().encode('GGUF'), ...u32(3), ...u64(1), ...u64(2),
        ...text('general.architecture'), ...u32(8), ...text('llama'),
        ...text('tokens'), ...u32(9), ...u32(8), ...u64(2), ...text('süß'), ...text('水'),
        ...text('w'), ...u32(1), ...u64(4), ...u32(0), ...u64(0)]
      while (head.length % 32) head.push(0)
      const values = new Float32Array([1, -2, 3.5, 0])
      const bytes = new Uint8Array([...head, ...new Uint8Array(values.buffer)])
      const log = console.log
      delete globalThis.Buffer
      delete globalThis.process
      delete globalThis.setImmediate
      const b = await import(${JSON.stringify(new URL('../dist/browser.js', import.meta.url).href)})
      const source = new b.BlobSource(new Blob([bytes]), 'x.gguf')
      const { metadata, tensors } = await b.readIndex(source)
      let refused = ''
      try { await b.readIndex(new b.MemorySource(bytes.slice(0, 60))) } catch (err) { refused = err.code }
      const row = await b.readRows(source, tensors.get('w'))
      const codec = b.codecOf({ kind: 'panel', scheme: 'int8', block: 32, scale: 'f32', exponent: 0 })
      const panel = new Uint8Array(codec.byteLength(1, 4))
      codec.encode(row, 1, 4, panel)
      const back = new Float32Array(4)
      codec.decode(panel, 1, 4, back)
      log(JSON.stringify({ metadata, refused, row: [...row], back: [...back].map((x) => Math.round(x * 10) / 10) }))`
    const { stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8' })
    expect(stderr).toBe('')
    expect(JSON.parse(stdout)).toEqual({
      metadata: { 'general.architecture': 'llama', tokens: ['süß', '水'] },
      refused: 'FORMAT_INVALID',
      row: [1, -2, 3.5, 0],
      back: [1, -2, 3.5, 0],
    })
  })
})

test('types work for a program that installs it, strictly and without skipLibCheck', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sluice-types-'))
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }))
  mkdirSync(join(dir, 'node_modules'))
  symlinkSync(ROOT, join(dir, 'node_modules/sluice'), 'junction')
  writeFileSync(join(dir, 'package.json'), '{"type":"module"}')
  writeFileSync(
    join(dir, 'program.ts'),
    `import { collect, type Forecast, isSluiceError, open, WIAModel } from 'sluice'
import { BlobSource, readIndex } from 'sluice/browser'
import { ERROR_CODES } from 'sluice/errors'
import { codecOf } from 'sluice/quant'
const model = await open('m', { verify: 'eager' })
const forecast: Forecast = await model.plan({ memory: '1GiB' })
export const required: number = forecast.requiredBytes
export const text: string = (await collect(model.generate(await model.engine(), { prompt: 'x', maxTokens: 1 }))).text
// @ts-expect-error: a number
export const wrong: string = forecast.requiredBytes
// @ts-expect-error: there is no such option
await open('m', { verfy: 'off' })
export { BlobSource, codecOf, ERROR_CODES, isSluiceError, readIndex, WIAModel }
`,
  )
  const { status, stdout } = spawnSync(
    process.execPath,
    [
      join(ROOT, 'node_modules/typescript/bin/tsc'),
      ...'--noEmit --strict --exactOptionalPropertyTypes --module nodenext --target es2023 --types'.split(' '),
      '',
      '--lib',
      'es2023,dom,dom.asynciterable,esnext.disposable',
      'program.ts',
    ],
    { cwd: dir, encoding: 'utf8' },
  )
  expect([status, stdout]).toEqual([0, ''])
})

describe('package.json', () => {
  test('pins every dependency to one version', () => {
    const all = { ...PACKAGE.dependencies, ...PACKAGE.optionalDependencies, ...PACKAGE.devDependencies }
    expect(Object.entries(all).filter(([, version]) => !/^\d+\.\d+\.\d+$/.test(version))).toEqual([])
    const lock = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
    for (const [name, version] of Object.entries(all))
      expect(lock.packages[`node_modules/${name}`]?.version).toBe(version)
  })

  test('runs nothing when it is installed', () => {
    for (const name of ['preinstall', 'install', 'postinstall', 'prepare', 'prepublish'])
      expect(PACKAGE.scripts).not.toHaveProperty(name)
    // npm would build a binding.gyp at the top level by itself.
    expect(existsSync(join(ROOT, 'binding.gyp'))).toBe(false)
  })

  test('asks for Node 20', () => {
    expect(PACKAGE.engines).toEqual({ node: '>=20' })
  })

  test('its programs are programs', () => {
    expect(Object.keys(PACKAGE.bin)).toEqual(['sluice', 'wia-ai-014'])
    for (const path of Object.values(PACKAGE.bin)) {
      const file = join(ROOT, path)
      expect(readFileSync(file, 'utf8').startsWith('#!/usr/bin/env node\n')).toBe(true)
      if (process.platform === 'win32') continue
      expect(statSync(file).mode & 0o111).toBe(0o111)
      const [major, minor] = process.versions.node.split('.')
      expect(execFileSync(file, ['doctor', '--json'], { encoding: 'utf8' })).toContain(`"node":"v${major}.${minor}`)
    }
  })
})

interface Packed {
  entryCount: number
  unpackedSize: number
  size: number
  files: { path: string; size: number; mode: number }[]
}

describe('what is published', () => {
  // npm.cmd on Windows needs a shell.
  const npm = (...args: string[]) =>
    spawnSync('npm', args, { cwd: ROOT, encoding: 'utf8', shell: process.platform === 'win32' })
  const packed = (JSON.parse(npm('pack', '--dry-run', '--json', '--ignore-scripts').stdout) as Packed[])[0]!

  test('is small', () => {
    expect(packed.entryCount).toBeLessThan(750)
    expect(packed.unpackedSize).toBeLessThan(2_500_000)
    expect(packed.size).toBeLessThan(800_000)
  })

  test('is what is needed to use it, and nothing else', () => {
    const allowed = [
      /^package\.json$|^README\.md$|^CHANGELOG\.md$|^LICENSE$/,
      /^dist\/[a-z]+(?:\/[\w.-]+)*\.(?:js|d\.ts)$|^dist\/(?:index|browser|quant)\.(?:js|d\.ts)$/,
      /^docs\/[\w/.-]+\.(?:md|json)$/,
      /^native\/binding\.gyp$|^native\/(?:addon|kernels)\/\w+\.[ch]$/,
      /^prebuilds\/\w+-\w+\/sluice\.node$/,
    ]
    expect(packed.files.map((f) => f.path).filter((path) => !allowed.some((a) => a.test(path)))).toEqual([])
    const paths = new Set(packed.files.map((f) => f.path))
    for (const path of [
      'dist/index.js',
      'dist/browser.js',
      'dist/quant.js',
      'dist/cli/main.js',
      'docs/FORMAT.md',
      'LICENSE',
    ])
      expect(paths).toContain(path)
  })

  test('has no file in dist/ whose source is gone', () => {
    const stale = packed.files
      .filter((f) => f.path.startsWith('dist/'))
      .map((f) => f.path.replace(/^dist\//, 'src/').replace(/\.d\.ts$|\.js$/, '.ts'))
      .filter((source) => !existsSync(join(ROOT, source)))
    expect(stale).toEqual([])
  })

  test('passes publint', () => {
    const { status, stdout, stderr } = spawnSync(process.execPath, ['node_modules/publint/src/cli.js', '--strict'], {
      cwd: ROOT,
      encoding: 'utf8',
    })
    expect([status, `${stdout}${stderr}`]).toEqual([0, expect.stringContaining('All good')])
  })
})
