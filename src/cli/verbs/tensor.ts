// sluice tensor: one tensor, or some of its rows, out of a checkpoint of any size.
import { setImmediate } from 'node:timers/promises'
import type { Command } from 'commander'
import { Option } from 'commander'
import type { Model } from '../../api/model.ts'
import { throwIfAborted, ValidationError } from '../../base/errors.ts'
import type { TensorEntry } from '../../format/reader.ts'
import type { IoMode } from '../../source/source.ts'
import type { LazyTensor } from '../../tensor/lazy.ts'
import { cancelOnSignals } from '../cancel.ts'
import { withModel } from '../model.ts'
import { ioModeOption, jsonOption, verifyOption } from '../options.ts'
import { Output } from '../output.ts'
import { encodingName } from './inspect.ts'

interface TensorFlags {
  rows?: string
  as: 'json' | 'npy' | 'f32'
  output?: string
  json?: boolean
  ioMode: 'auto' | IoMode
  verify: 'eager' | 'lazy' | 'off'
}

/** "3:7" → [3, 7); "5" → [5, 6); open ends allowed. */
export function parseRows(text: string | undefined, rows: number): [number, number] {
  if (text === undefined) return [0, rows]
  const m = /^(\d*)(?::(\d*))?$/.exec(text)
  if (m === null || text === '')
    throw new ValidationError('USAGE', {
      what: 'row range is not understood',
      where: '--rows',
      expected: '5, 3:7, 3: or :7',
      got: text,
    })
  const from = m[1] === '' ? 0 : Number(m[1])
  const to = m[2] === undefined ? from + 1 : m[2] === '' ? rows : Number(m[2])
  if (from > to || to > rows)
    throw new ValidationError('TENSOR_RANGE', { what: 'rows do not exist', expected: `0:${rows}`, got: text })
  return [from, to]
}

/** Values written at a time, in bytes: the tensor may be larger than memory. */
const CHUNK_BYTES = 4 * 1024 * 1024

async function tensor(path: string, name: string, flags: TensorFlags): Promise<void> {
  const as = flags.json ? 'json' : flags.as
  if (flags.json && flags.as !== 'json')
    throw new ValidationError('USAGE', { what: '--json and --as exclude each other', got: `--as ${flags.as}` })
  const signal = cancelOnSignals()
  await withModel(path, { ioMode: flags.ioMode, verify: flags.verify, signal }, async (model) => {
    const lazy = find(model, name)
    const { entry } = lazy
    const [from, to] = parseRows(flags.rows, entry.rows)
    const shape = flags.rows === undefined ? entry.shape : [to - from, entry.cols]
    const out = new Output(flags.output)
    try {
      const step = Math.max(1, Math.floor(CHUNK_BYTES / Math.max(1, entry.cols * 4)))
      const rows = chunks(lazy, from, to, step, signal)
      if (as === 'json') await writeJson(out, entry, shape, rows)
      else await writeBinary(out, as, shape, rows)
      out.commit()
    } finally {
      out.discard()
    }
  })
}

/** The tensor, or an error that names similar ones. */
function find(model: Model, name: string): LazyTensor {
  if (model.reader.tensors.has(name)) return model.tensor(name)
  const last =
    name
      .split('.')
      .filter((part) => part !== 'weight' && part !== 'bias')
      .at(-1) ?? name
  const near = model.tensorNames.filter((n) => n.includes(name) || (last !== '' && n.includes(last))).slice(0, 3)
  throw new ValidationError('TENSOR_NOT_FOUND', {
    what: 'model has no tensor of that name',
    where: model.reader.path,
    got: name,
    remedy:
      near.length > 0
        ? `Similar: ${near.join(', ')}. All names: sluice inspect --tensors.`
        : 'All names: sluice inspect --tensors.',
    details: { tensor: name },
  })
}

async function* chunks(lazy: LazyTensor, from: number, to: number, step: number, signal: AbortSignal) {
  for (let r = from; r < to; r += step) {
    await setImmediate() // reads of a mapping never wait: a signal is seen here
    throwIfAborted(signal)
    yield lazy.rows(r, Math.min(to, r + step), { signal })
  }
}

async function writeBinary(
  out: Output,
  as: 'npy' | 'f32',
  shape: readonly number[],
  rows: AsyncIterable<Float32Array>,
): Promise<void> {
  const { npyHeader } = await import('../../tensor/npy.ts')
  if (as === 'npy') out.write(npyHeader('float32', shape))
  for await (const v of rows) out.write(new Uint8Array(v.buffer, v.byteOffset, v.byteLength))
}

/** One object; values row-major, numbers that JSON does not have as null. */
async function writeJson(
  out: Output,
  entry: TensorEntry,
  shape: readonly number[],
  rows: AsyncIterable<Float32Array>,
): Promise<void> {
  const { name, dtype } = entry
  const head = JSON.stringify({ name, shape, dtype, encoding: encodingName(entry.encoding) })
  out.write(Buffer.from(`${head.slice(0, -1)},"values":[`))
  let comma = ''
  for await (const values of rows) {
    const text = Array.from(values, (v) => (Number.isFinite(v) ? String(v) : 'null')).join(',')
    out.write(Buffer.from(comma + text))
    if (text !== '') comma = ','
  }
  out.write(Buffer.from(']}\n'))
}

export function register(program: Command): void {
  program
    .command('tensor')
    .description('read one tensor as float32, or some of its rows; reads nothing else')
    .argument('<model>', 'package, safetensors directory or file, or GGUF')
    .argument('<name>', 'tensor name (see inspect --tensors)')
    .option('--rows <a:b>', 'rows a … b-1 only')
    .addOption(new Option('--as <format>', 'output format').choices(['json', 'npy', 'f32']).default('json'))
    .option('-o, --output <file>', 'write to a file instead of standard output')
    .addOption(ioModeOption())
    .addOption(verifyOption())
    .addOption(jsonOption())
    .addHelpText(
      'after',
      '\nExamples:\n  sluice tensor model.wia model.norm.weight\n  sluice tensor big.safetensors lm_head.weight --rows 0:4 --as npy -o head.npy',
    )
    .action(tensor)
}
