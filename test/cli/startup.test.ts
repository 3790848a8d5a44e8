// What a verb loads. Starting is cheap because nothing is loaded that the verb does not need: counted in modules, not in milliseconds.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { STORY, sluice, temporary } from './cli.ts'

const HOOKS = new URL('loaded.mjs', import.meta.url).href

/** Files of dist/ and packages that a command line loads. */
async function loaded(args: string[]): Promise<string[]> {
  const log = join(temporary(), 'loaded')
  const { code } = await sluice(args, { node: ['--import', HOOKS], env: { LOADED: log } })
  expect(code).toBe(0)
  const urls = readFileSync(log, 'utf8').trimEnd().split('\n')
  return urls.flatMap(
    (url) => /\/dist\/(.+)$/.exec(url)?.[1] ?? /\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1] ?? [],
  )
}

const RUNS_MODELS =
  /^(?:engine\/(?!architecture)|pager\/|kernels\/|generate\/|sample\/|lora\/|text\/|convert\/)|^@huggingface/

test('--version loads a handful of small files and commander', async () => {
  const files = await loaded(['--version'])
  expect(files).toEqual(expect.arrayContaining(['cli/main.js', 'cli/version.js', 'commander']))
  expect(files.filter((f) => f !== 'commander' && !/^cli\/\w+\.js$|^base\/(?:errors|printable)\.js$/.test(f))).toEqual(
    [],
  )
})

test('--help loads no model code', async () => {
  const files = await loaded(['--help'])
  expect(files).toContain('cli/verbs/run.js')
  expect(files.filter((f) => RUNS_MODELS.test(f) && !/^convert\/policy|^kernels\/kernels/.test(f))).toEqual([])
  expect(files.filter((f) => /^(?:api|arch|graph|format|tensor|source)\//.test(f))).toEqual([])
})

test('inspect loads readers, and nothing that runs models', async () => {
  const files = await loaded(['inspect', STORY])
  expect(files).toContain('format/wia/read.js')
  expect(files.filter((f) => RUNS_MODELS.test(f))).toEqual([])
  expect(files.filter((f) => f.startsWith('format/gguf/') || f.startsWith('format/safetensors/'))).toEqual([])
})
