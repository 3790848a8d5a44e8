// Any model to a package with 4-bit weights, and how far each tensor is from the original.
//
//   node examples/convert-quantize.mjs [model] [output]
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { convert, formatBytes, isSluiceError, open } from 'sluice'

const [
  input = join(import.meta.dirname, 'storyteller.wia'),
  output = join(await mkdtemp(join(tmpdir(), 'sluice-')), 'int4.wia'),
] = process.argv.slice(2)

try {
  const report = await convert(input, output, { quantization: 'int4' })
  console.log(`${formatBytes(report.bytesIn)} → ${formatBytes(report.bytesOut)}: ${report.output}`)
  const rounded = report.tensors.filter((t) => t.error !== undefined)
  console.log(`${rounded.length} of ${report.tensors.length} tensors were rounded`)
  console.log(`worst: ${report.worst.name}, ${(100 * report.worst.error.relativeRmse).toFixed(1)} % relative error`)

  // Every checksum of the new package is looked at when it is opened so.
  const model = await open(output, { verify: 'eager' })
  console.log(`verified: ${model.tensorNames.length} tensors`)
  await model.close()
} catch (err) {
  // Callers branch on codes, never on texts.
  if (!isSluiceError(err, 'OUTPUT_EXISTS')) throw err
  console.error(`${output} exists already`)
  process.exitCode = 1
}
