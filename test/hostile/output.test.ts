// Places to write to that are none: refused with a code, nothing left behind, nothing replaced that was not a file.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { cli, isRefusal } from './cli.ts'
import { config, SIZE, scratch, weights, writeModel } from './models.ts'

const root = scratch()
const model = writeModel(join(root, 'model'))
const linux = process.platform === 'linux'
const logits = (to: string) => ['logits', model, '--ids', '5,6', '--memory', '512MiB', '-o', to]
const tensor = (to: string) => ['tensor', model, 'model.norm.weight', '-o', to]

describe('outputs', () => {
  it.each([
    ['logits', logits],
    ['tensor', tensor],
  ])('%s to a folder, a missing folder, no name', async (_, args) => {
    const folder = join(root, 'out')
    mkdirSync(join(folder, 'dir'), { recursive: true })
    for (const to of [join(folder, 'dir'), join(folder, 'none', 'x'), '']) {
      const o = await cli(args(to))
      expect(isRefusal(o), o.stderr).toBe(true)
      expect(o.code).toBe(5)
    }
    expect(readdirSync(folder)).toEqual(['dir'])
    expect(readdirSync(join(folder, 'dir'))).toEqual([])
  })

  it.skipIf(!linux)('a pipe nobody reads is refused and stays a pipe', async () => {
    const pipe = join(root, 'pipe')
    execFileSync('mkfifo', [pipe])
    const o = await cli(tensor(pipe))
    expect(o.code).toBe(5)
    expect(statSync(pipe).isFIFO()).toBe(true)
  })

  it.skipIf(!linux || process.getuid?.() !== 0)('a device is written to, not replaced by a file', async () => {
    const device = join(root, 'full')
    try {
      execFileSync('mknod', [device, 'c', '1', '7'], { stdio: 'ignore' })
    } catch {
      return // not in this sandbox
    }
    const o = await cli(logits(device))
    expect(o.code).toBe(4)
    expect(o.stderr).toContain('DISK_FULL')
    expect(statSync(device).isCharacterDevice()).toBe(true)
  })

  it.skipIf(!linux)('a full standard output', async () => {
    for (const args of [['inspect', model], ['tensor', model, 'model.norm.weight'], ['--help']]) {
      const o = await cli(args, { after: '>/dev/full' })
      expect(isRefusal(o), o.stderr).toBe(true)
      expect(o.stderr).toContain('DISK_FULL')
    }
    expect((await cli(['inspect', join(root, 'nothing')], { after: '2>/dev/full' })).code).toBe(5)
  })

  it('a path that goes through a file', async () => {
    const file = join(root, 'file')
    writeFileSync(file, 'kept')
    for (const args of [
      ['convert', model, '-o', join(file, 'x')],
      ['convert', model, '-o', file, '--force'],
      ['convert', model, '-o', model, '--force'],
    ]) {
      const o = await cli(args)
      expect(isRefusal(o), o.stderr).toBe(true)
      expect([2, 5]).toContain(o.code) // 2: the output is the model itself
    }
    expect(readFileSync(file, 'utf8')).toBe('kept')
    expect(existsSync(join(model, 'model.safetensors'))).toBe(true)
  })

  it('names with escape sequences reach no terminal and forge no line', async () => {
    const tensors = weights()
    tensors.set('\u001b[2Jevil\nsluice: ok \u009b1m\u202e', { shape: [1], data: new Float32Array(1) })
    const evil = writeModel(join(root, 'evil'), { weights: tensors, config: config({ vocab_size: SIZE.vocabulary }) })
    for (const args of [
      ['inspect', evil, '--tensors'],
      ['verify', evil],
      ['run', evil, '--ids', '5'],
      ['tensor', evil, 'no\u001b[2J\n'],
    ]) {
      const o = await cli(args)
      // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for
      expect(o.stdout + o.stderr).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]|\nsluice: ok/)
    }
  })

  it.skipIf(!linux || !existsSync('/usr/bin/script'))('generated text is cleaned on a terminal', async () => {
    const o = await cli(['--version'])
    expect(o.code).toBe(0)
    const { MAIN } = await import('./cli.ts')
    // A token that clears the screen, decoded to a terminal of script(1) and to a pipe.
    const folder = writeModel(join(root, 'escape'), { tokenizer: escaping() })
    const command = `${process.execPath} ${MAIN} tokenize ${folder} --decode 40`
    const terminal = execFileSync('script', ['-qec', command, '/dev/null'], { encoding: 'utf8' })
    expect(terminal).toContain('�[2J')
    expect(terminal).not.toContain('\u001b[2J')
    expect((await cli(['tokenize', folder, '--decode', '40'])).stdout).toContain('\u001b[2J')
  })
})

function escaping(): object {
  const vocab = Object.fromEntries(
    Array.from({ length: SIZE.vocabulary }, (_, i) => [i === 40 ? '\u001b[2J' : `t${i}`, i]),
  )
  return {
    added_tokens: [],
    decoder: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'never' },
    model: { type: 'BPE', vocab, merges: [] },
  }
}
