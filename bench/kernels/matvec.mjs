// Weights per second through mat-vec and mat-mul kernels, against a plain read of the same bytes in the same run.
//   node bench/kernels/matvec.mjs [--set wasm-relaxed] [--tokens 1,8] [--only int4,int8] [--mib 64] [--seconds 0.3]
// One thread; needs a build (npm run build). GB/s of weights; for several tokens also GFLOP/s (2 a weight and token).
import { parseArgs } from 'node:util'
import { computeBytes, isPanel } from '../../dist/kernels/compute.js'
import { COMPUTE } from '../../dist/kernels/kernels.js'
import { createKernels, selectKernels } from '../../dist/kernels/select.js'

const { values: options } = parseArgs({
  options: {
    set: { type: 'string' },
    tokens: { type: 'string', default: '1,8' },
    only: { type: 'string' },
    mib: { type: 'string', default: '64' },
    seconds: { type: 'string', default: '0.3' },
  },
})

const BASE = 2 ** 20
const bytesOfWeights = Number(options.mib) * 2 ** 20
const memory = new WebAssembly.Memory({
  initial: Math.ceil((BASE + bytesOfWeights + 2 ** 24) / 65536),
  maximum: 65536,
  shared: true,
})
const selection = await selectKernels({ force: options.set })
const kernels = createKernels(selection, memory, 0)
const cols = 4096
const weights = BASE
const x = BASE + bytesOfWeights
const xq = x + 2 ** 22
const y = xq + 2 ** 22

// Codes at random; every 16-bit half is a normal, finite number in any format (denormal float16 scales cost twice the time).
const fill = new Uint32Array(memory.buffer, weights, bytesOfWeights / 4)
let seed = 1
for (let i = 0; i < fill.length; i++) {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0
  fill[i] = (seed & 0xbfffbfff) | 0x10001000
}
const activations = new Float32Array(memory.buffer, x, 16 * cols)
for (let i = 0; i < activations.length; i++) activations[i] = Math.sin(i)

/** The fastest of the runs that fit into the time: calls per second. */
function measure(run) {
  const seconds = Number(options.seconds)
  const warm = performance.now() + 1000 * seconds
  while (performance.now() < warm) run()
  let best = Infinity
  const end = performance.now() + 1000 * seconds
  do {
    const start = performance.now()
    run()
    best = Math.min(best, performance.now() - start)
  } while (performance.now() < end)
  return 1000 / best
}

// A plain read with the same instructions: an f32 dot product over everything, as one row of activations is small.
const plainRows = Math.floor(bytesOfWeights / (cols * 4))
const plain = { encoding: COMPUTE.f32, address: weights, rows: plainRows, cols, block: 0, scaleF32: 0, multiplier: 1 }
const readBytes = plainRows * cols * 4
const read = (measure(() => kernels.matMul(plain, x, cols, y, plainRows, 1, 0, 1)) * readBytes) / 1e9
console.log(
  `${selection.set}, node ${process.version}, one thread, ${options.mib} MiB of weights; float32 read-and-add ${read.toFixed(1)} GB/s`,
)

const names = Object.keys(COMPUTE).filter((n) => options.only === undefined || options.only.split(',').includes(n))
for (const name of names) {
  const encoding = COMPUTE[name]
  const block = name === 'nf4' ? 64 : 32
  const rowBytes = computeBytes({ encoding, block, scaleF32: 0 }, 16, cols) / 16
  const rows = Math.floor(bytesOfWeights / rowBytes / 16) * 16
  const bytes = rows * rowBytes
  const m = { encoding, address: weights, rows: 0, cols, block, scaleF32: 0, multiplier: 1 }
  // Pages of 1 MiB, as the pager hands them out.
  const step = Math.max(16, Math.floor(2 ** 20 / rowBytes / 16) * 16)
  const over = (each) => () => {
    for (let r = 0; r < rows; r += step) each({ ...m, address: weights + r * rowBytes, rows: Math.min(step, rows - r) })
  }
  for (const tokens of options.tokens.split(',').map(Number)) {
    const report = (what, rate) => {
      const gflops = tokens === 1 ? '' : `  ${((rate * rows * cols * tokens * 2) / 1e9).toFixed(1)} GFLOP/s`
      console.log(
        `${name.padEnd(9)} ${what.padEnd(8)} tokens ${tokens}  ${((rate * bytes) / 1e9).toFixed(2).padStart(6)} GB/s${gflops}`,
      )
    }
    report('matMul', measure(over((p) => kernels.matMul(p, x, cols, y, step, tokens, 0, 1))))
    if (!isPanel(encoding)) continue
    kernels.quantize(x, cols, cols, block, tokens, xq)
    report('matMulQ', measure(over((p) => kernels.matMulQ(p, xq, y, step, tokens, 0, 1))))
  }
}
