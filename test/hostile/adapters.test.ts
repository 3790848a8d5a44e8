// Adapter folders that are traps: pipes, devices, links out, patterns that never end, bytes that changed.
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { open } from '#sluice/api/model.js'
import { convertToWia } from '#sluice/convert/convert.js'
import { cli, isRefusal } from './cli.ts'
import { scratch, writeAdapter, writeModel } from './models.ts'

const root = scratch()
const folder = writeModel(join(root, 'model'))
let model: Awaited<ReturnType<typeof open>>
beforeAll(async () => {
  model = await open(folder)
})
afterAll(() => model.close())
const linux = process.platform === 'linux'

/** Error code, within ten seconds. */
async function attach(path: string): Promise<string> {
  const started = performance.now()
  try {
    const adapter = await model.adapter(path)
    await adapter.reader.close()
    return 'ok'
  } catch (err) {
    return (err as { code?: string }).code ?? String(err)
  } finally {
    expect(performance.now() - started).toBeLessThan(10_000)
  }
}

describe('adapter folders', () => {
  it.skipIf(!linux)('a pipe, a device, a folder and a link out in place of the configuration', async () => {
    const path = writeAdapter(join(root, 'config'))
    const file = join(path, 'adapter_config.json')
    const secret = join(root, 'secret.json')
    writeFileSync(secret, readFileSync(file))
    const replace = (make: () => void) => {
      rmSync(file, { recursive: true, force: true })
      make()
    }
    // In a process of its own: a read that never ends would end the tests too.
    replace(() => execFileSync('mkfifo', [file]))
    const o = await cli(['run', folder, '--ids', '5', '--lora', path, '--memory', '512MiB'], { timeoutMs: 10_000 })
    expect(isRefusal(o), `${o.signal} ${o.stderr}`).toBe(true)
    replace(() => symlinkSync('/dev/zero', file))
    expect(await attach(path)).toBe('PATH_FORBIDDEN')
    replace(() => symlinkSync(secret, file))
    expect(await attach(path)).toBe('PATH_FORBIDDEN')
    replace(() => mkdirSync(file))
    expect(await attach(path)).toBe('SOURCE_IO')
    replace(() => undefined)
    expect(await attach(path)).toBe('SOURCE_IO')
  })

  it.skipIf(!linux)('a hub cache of links to blobs is fine', async () => {
    const blobs = writeAdapter(join(root, 'blobs'))
    const snapshot = join(root, 'snapshots', 'abc')
    mkdirSync(snapshot, { recursive: true })
    for (const name of ['adapter_config.json', 'adapter_model.safetensors'])
      symlinkSync(join(blobs, name), join(snapshot, name))
    expect(await attach(snapshot)).toBe('ok')
  })

  it.each([
    ['a pattern that backtracks for ever', { target_modules: '(.*.*)*(.*.*)*(.*.*)*(.*.*)*(.*.*)*x' }],
    [
      'many slow rank patterns',
      { rank_pattern: Object.fromEntries(Array.from({ length: 400 }, (_, i) => [`(\\w|\\.){1,12}${i}(.*.*.*)*y`, 2])) },
    ],
    [
      'fifty thousand rank patterns',
      { rank_pattern: Object.fromEntries(Array.from({ length: 50_000 }, (_, i) => [`a${i}`, 2])) },
    ],
    ['a pattern that is code', { target_modules: 'x"); process.exit(0); ("' }],
    ['a rank of 65537', { r: 65537 }],
    ['a rank that the matrices do not have', { r: 3 }],
    ['alpha as text', { lora_alpha: '16' }],
    ['no type', { peft_type: null }],
    ['a field nobody knows', { use_magic: true }],
    ['layers that are no numbers', { layers_to_transform: ['0'] }],
  ])('%s', async (name, config) => {
    const path = writeAdapter(join(root, name), { config })
    expect(['ADAPTER_INVALID', 'ADAPTER_UNSUPPORTED', 'ADAPTER_NO_MATCH', 'FORMAT_LIMIT']).toContain(await attach(path))
  })

  it('an adapter of another model', async () => {
    expect(await attach(writeAdapter(join(root, 'other'), { modules: ['transformer.h.0.attn.c_attn'] }))).toBe(
      'ADAPTER_NO_MATCH',
    )
    expect(await attach(writeAdapter(join(root, 'half'), { modules: ['model.layers.0.self_attn.q_proj'] }))).toBe(
      'ADAPTER_PARTIAL',
    )
    expect(
      await attach(
        writeAdapter(join(root, 'shape'), {
          modules: ['model.layers.0.self_attn.k_proj'],
          config: { target_modules: ['k_proj'] },
        }),
      ),
    ).toBe('ADAPTER_INVALID')
  })

  it('an adapter packed with a model has a checksum, and it is looked at', async () => {
    const pack = join(root, 'packed.wia')
    const path = writeAdapter(join(root, 'packed'))
    await convertToWia(model.reader, model.architecture(), pack, { adapters: [{ name: 'a', path }] })
    const code = async () => {
      const packed = await open(pack)
      try {
        const adapter = await packed.adapter('a')
        await adapter.reader.close()
        return 'ok'
      } catch (err) {
        return (err as { code?: string }).code
      } finally {
        await packed.close()
      }
    }
    expect(await code()).toBe('ok')
    const file = join(pack, 'adapters', 'a', 'adapter_model.safetensors')
    const bytes = readFileSync(file)
    bytes[bytes.length - 2]! ^= 64
    writeFileSync(file, bytes)
    expect(await code()).toBe('CHECKSUM_MISMATCH')
  })

  it.skipIf(!linux)('converting does not follow a link out of an adapter folder', async () => {
    const path = writeAdapter(join(root, 'leak'))
    const copy = join(root, 'leak2')
    cpSync(path, copy, { recursive: true })
    const secret = join(root, 'secret2')
    writeFileSync(secret, readFileSync(join(path, 'adapter_config.json')))
    rmSync(join(copy, 'adapter_config.json'))
    symlinkSync(secret, join(copy, 'adapter_config.json'))
    const converting = convertToWia(model.reader, undefined, join(root, 'leak.wia'), {
      adapters: [{ name: 'a', path: copy }],
    })
    await expect(converting).rejects.toMatchObject({ code: 'PATH_FORBIDDEN' })
  })
})
