// What does a conversion take, and what does each scheme lose?
//
//   node bench/convert.mjs MODEL [--quantize int4] [--out DIR]   peak memory, seconds, bytes, page cache left behind
//   node bench/convert.mjs --schemes [MODEL]                     errors of every scheme (default: the embedded model)
//
// Prints a line a run for people and one JSON object at the end. The conversion runs in a process of its own, by the command line.
import { spawnSync } from 'node:child_process'
import { closeSync, mkdtempSync, openSync, readdirSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { QUANTIZATIONS } from '../dist/convert/policy.js'
import { loadAddon } from '../dist/source/addon.js'

const { values: o, positionals } = parseArgs({
  options: { quantize: { type: 'string', default: 'int4' }, out: { type: 'string' }, schemes: { type: 'boolean' } },
  allowPositionals: true,
})
const CLI = resolve(import.meta.dirname, '../dist/cli/main.js')
const model = positionals[0] ?? (o.schemes ? resolve(import.meta.dirname, '../examples/storyteller.wia') : undefined)
if (model === undefined) {
  console.error('no MODEL given')
  process.exit(2)
}
// The high-water mark of the child's own memory, written by the child as it ends.
const PEAK = `data:text/javascript,${encodeURIComponent(`
import { readFileSync } from 'node:fs'
process.on('exit', () => {
  let kib = process.resourceUsage().maxRSS
  try { kib = Number(/VmHWM:\\s+(\\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]) } catch {}
  const cpu = process.cpuUsage()
  process.stderr.write('PEAK ' + kib * 1024 + ' CPU ' + (cpu.user + cpu.system) / 1e6 + '\\n')
})`)}`

function convert(quantize, output) {
  const started = performance.now()
  const child = spawnSync(
    process.execPath,
    [`--import=${PEAK}`, CLI, 'convert', model, '-o', output, '--quantize', quantize, '--json'],
    { encoding: 'utf8', maxBuffer: 1024 ** 3 },
  )
  if (child.status !== 0) throw new Error(child.stderr)
  const seconds = (performance.now() - started) / 1000
  const [, peak, cpu] = /PEAK (\d+) CPU ([\d.]+)/.exec(child.stderr)
  return { report: JSON.parse(child.stdout), seconds, cpuSeconds: Number(cpu), peakBytes: Number(peak) }
}

/** Bytes of a folder's files that are in the page cache. */
function cachedBytes(folder) {
  const addon = loadAddon()
  if (addon === undefined || !statSync(folder).isDirectory()) return undefined
  let bytes = 0
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name)
    const size = entry.isFile() ? statSync(path).size : 0
    if (size === 0) continue
    const fd = openSync(path, 'r')
    const mapping = addon.map(fd, 0, size)
    bytes += Math.max(0, addon.resident(mapping, 0, size))
    addon.unmap(mapping)
    closeSync(fd)
  }
  return bytes
}

const MB = (bytes) => `${(bytes / 1e6).toFixed(0)} MB`
const dir = mkdtempSync(join(o.out ?? tmpdir(), 'sluice-convert-'))
try {
  if (o.schemes) {
    const rows = QUANTIZATIONS.map((scheme) => {
      const { report } = convert(scheme, join(dir, scheme))
      const rounded = report.tensors.filter((t) => t.error !== undefined && t.error.count > 0)
      const count = rounded.reduce((n, t) => n + t.error.count, 0)
      const squares = rounded.reduce((n, t) => n + t.error.rmse ** 2 * t.error.count, 0)
      const relative = rounded.reduce((n, t) => n + t.error.relativeRmse ** 2 * t.error.count, 0)
      const row = {
        scheme,
        bytes: report.bytesOut,
        rmse: count === 0 ? 0 : Math.sqrt(squares / count),
        relativeRmse: count === 0 ? 0 : Math.sqrt(relative / count),
        worst: report.worst?.name,
        worstRelativeRmse: report.worst?.error.relativeRmse ?? 0,
      }
      console.error(
        `${scheme.padEnd(9)} ${MB(row.bytes).padStart(8)}  RMSE ${row.rmse.toExponential(2)}  relative ${(100 * row.relativeRmse).toFixed(3)} %  worst ${(100 * row.worstRelativeRmse).toFixed(3)} % ${row.worst ?? ''}`,
      )
      return row
    })
    console.log(JSON.stringify(rows))
  } else {
    const output = join(dir, 'model.wia')
    const { report, seconds, cpuSeconds, peakBytes } = convert(o.quantize, output)
    const result = {
      model,
      quantize: o.quantize,
      seconds,
      cpuSeconds,
      bytesIn: report.bytesIn,
      bytesOut: report.bytesOut,
      readBytesPerSecond: report.bytesIn / seconds,
      peakBytes,
      cachedBytesOfSource: cachedBytes(model),
      cachedBytesOfOutput: cachedBytes(output),
      worst: report.worst,
    }
    console.error(
      `${model} → ${o.quantize}: ${MB(report.bytesIn)} → ${MB(report.bytesOut)} in ${seconds.toFixed(1)} s (${MB(report.bytesIn / seconds)}/s; processor ${cpuSeconds.toFixed(1)} s), peak ${MB(peakBytes)}`,
    )
    console.log(JSON.stringify(result))
  }
} finally {
  rmSync(dir, { recursive: true, force: true })
}
