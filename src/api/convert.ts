// Conversion as a library call: a path in, a package out.
//
//   const report = await convert('./checkpoint', 'model.wia', { quantization: 'int8' })
//   console.log(report.worst?.name, report.worst?.error?.relativeRmse)

import { type ConversionReport, type ConvertOptions, convertToWia } from '../convert/convert.ts'
import { open } from './model.ts'

/** ConvertOptions, and whether the architecture is left out. */
export interface ConvertModelOptions extends ConvertOptions {
  /** Only the tensors, for models of unknown families: such a package can be read and not run. */
  readonly tensorsOnly?: boolean
}

/**
 * Converts any model that can be opened to a package. Nothing stands under `output` before it is complete.
 * Throws what `open` throws, ARCH_UNSUPPORTED unless tensorsOnly, DISK_FULL, OUTPUT_EXISTS, OUTPUT_IO, QUANT_RANGE, QUANT_UNSUPPORTED, ABORTED.
 */
export async function convert(
  input: string,
  output: string,
  options: ConvertModelOptions = {},
): Promise<ConversionReport> {
  const { tensorsOnly = false, ...rest } = options
  const model = await open(input)
  try {
    return await convertToWia(model.reader, tensorsOnly ? undefined : model.architecture(), output, rest)
  } finally {
    await model.close()
  }
}
