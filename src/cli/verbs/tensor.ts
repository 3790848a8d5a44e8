// sluice tensor: one tensor, or some of its rows, out of a checkpoint of any size.
import { setImmediate } from 'node:timers/promises'
import type { Command } from 'commander'
import { Option } from 'commander'
import { open } from '../../api/model.ts'
import { throwIfAborted, ValidationError } from '../../base/errors.ts'
import { npyHeader } from '../../tensor/npy.ts'
import { cancelOnSignals } from '../cancel.ts'
import { ioModeOption, verifyOption } from '../options.ts'
import { Output } from '../output.ts'
import { encodingName } from './inspect.ts'

interface TensorOptions {
  rows?: string
  as: 'json' | 'npy' | 'f32'
  output?: string
  ioMode: 'auto'
  verify: 'lazy'
}

/** "3:7" → [3, 7); "5" → [5, 6); open ends allowed. */
export function parseRows(text: string | undefined, rows: number): [number, number] {
  if (text === undefined) return [0, rows]
  const m = /^(\d*)(?::(\d*))?$/.exec(text)
  if (!m || text === '')
    throw new ValidationError('REQUEST_INVALID', { what: 'row range is not understood', expected: 'a:b', got: text })
  const from = m[1] === '' ? 0 : Number(m[1])
  const to = m[2] === undefined ? from + 1 : m[2] === '' ? rows : Number(m[2])
  if (from > to || to > rows)
    throw new ValidationError('TENSOR_RANGE', { what: 'rows do not exist', expected: `0:${rows}`, got: text })
  return [from, to]
}

async function tensor(path: string, name: string, options: TensorOptions): Promise<void> {
  const signal = cancelOnSignals()
  const model = await open(path, { ioMode: options.ioMode, verify: options.verify })
  try {
    const lazy = model.tensor(name)
    const { entry } = lazy
    const [from, to] = parseRows(options.rows, entry.rows)
    const shape = options.rows === undefined ? entry.shape : [to - from, entry.cols]
    const out = new Output(options.output)
    try {
      if (options.as === 'npy') out.write(npyHeader('float32', shape))
      if (options.as === 'json')
        out.write(
          Buffer.from(
            `{"name":${JSON.stringify(name)},"shape":${JSON.stringify(shape)},"dtype":${JSON.stringify(entry.dtype)},"encoding":${JSON.stringify(encodingName(entry.encoding))},"values":[`,
          ),
        )
      let first = true
      // A few MiB of values at a time: the tensor may be larger than memory.
      const step = Math.max(1, Math.floor((4 * 1024 * 1024) / Math.max(1, entry.cols * 4)))
      for (let r = from; r < to; r += step) {
        await setImmediate() // reads of a mapping never wait: a signal is seen here
        throwIfAborted(signal)
        const values = await lazy.rows(r, Math.min(to, r + step))
        if (options.as !== 'json') out.write(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))
        else {
          out.write(
            Buffer.from(
              (first ? '' : ',') + Array.from(values, (v) => (Number.isFinite(v) ? String(v) : 'null')).join(','),
            ),
          )
          first = false
        }
      }
      if (options.as === 'json') out.write(Buffer.from(']}\n'))
      out.commit()
    } finally {
      out.discard()
    }
  } finally {
    await model.close()
  }
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
    .addHelpText(
      'after',
      '\nExamples:\n  sluice tensor model.wia model.norm.weight\n  sluice tensor big.safetensors lm_head.weight --rows 0:4 --as npy -o head.npy',
    )
    .action(tensor)
}
