// Every foreign safetensors and GGUF file of the test data, opened and used: success or a typed error, and what docs/VERDICTS.md says.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect } from 'vitest'
import { open } from '#sluice/api/model.js'
import { isSluiceError } from '#sluice/base/errors.js'
import { data, dataTest } from '../data.ts'

/** Refused although the reference accepts: the tables of docs/VERDICTS.md. */
const STRICTER = [
  'malformed/field-extra.safetensors',
  'malformed/leading-space.safetensors',
  'valid/all-dtypes.safetensors',
  'malformed/truncated-data.gguf',
]

function files(folder: string): string[] {
  return readdirSync(folder).flatMap((name) => {
    const path = join(folder, name)
    return statSync(path).isDirectory() ? files(path) : /\.(safetensors|gguf)$/.test(name) ? [path] : []
  })
}

/** 'ok', or the code of the refusal to open. Everything after opening may be refused too, with a code. */
async function use(path: string): Promise<string> {
  let model: Awaited<ReturnType<typeof open>>
  const typed = (err: unknown) => {
    if (!isSluiceError(err) || err.code === 'INTERNAL') throw err
    return err.code
  }
  try {
    model = await open(path)
  } catch (err) {
    return typed(err)
  }
  for (const name of model.tensorNames.slice(0, 20))
    await model
      .tensor(name)
      .astype('float32')
      .then(() => 'ok', typed)
  await model.tokenizer().catch(typed)
  try {
    model.architecture()
  } catch (err) {
    typed(err)
  }
  await model.close()
  return 'ok'
}

describe('foreign files', () => {
  dataTest('safetensors: as the official crate judges, but for the list', async () => {
    const root = data('foreign/safetensors')
    const { cases } = JSON.parse(readFileSync(join(root, 'verdicts.json'), 'utf8')) as {
      cases: Record<string, { rust_crate: string }>
    }
    expect(files(root).length).toBe(Object.keys(cases).length)
    for (const [file, { rust_crate }] of Object.entries(cases)) {
      const accepted = (await use(join(root, file))) === 'ok'
      expect(accepted, file).toBe(rust_crate === 'accepts' && !STRICTER.includes(file))
    }
  })

  dataTest('GGUF: malformed files as ggml judges, but for the list; the others open', async () => {
    const root = data('foreign/gguf')
    const malformed = join(root, 'malformed')
    const all = JSON.parse(readFileSync(join(malformed, 'verdicts.json'), 'utf8')) as {
      cases?: Record<string, Record<string, string>>
    }
    const verdicts = (all.cases ?? all) as Record<string, Record<string, string>>
    let compared = 0
    for (const path of files(root)) {
      const name = path.slice(malformed.length + 1)
      const verdict = path.startsWith(malformed) ? (verdicts[name] ?? verdicts[`malformed/${name}`]) : undefined
      const got = await use(path)
      if (!path.startsWith(malformed)) expect(got === 'ok', path).toBe(!/-0000[23]-of/.test(path))
      else if (verdict !== undefined) {
        compared++
        const accepts = Object.values(verdict).includes('accepts')
        expect(got === 'ok', name).toBe(accepts && !STRICTER.includes(`malformed/${name}`))
      }
    }
    expect(compared).toBeGreaterThan(20)
  })
})
