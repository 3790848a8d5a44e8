// Attention by shape: µs a call of CPU time and GFLOP/s (2 for scores and 2 for values, a position and dimension).
//   node bench/kernels/attention.mjs [--set wasm-relaxed]
// One thread, pages of 16 positions, the best of four runs; needs a build (npm run build).
import { parseArgs } from 'node:util'
import { attentionScratch } from '../../dist/kernels/compute.js'
import { createKernels, selectKernels } from '../../dist/kernels/select.js'

const { values: options } = parseArgs({ options: { set: { type: 'string' } } })
const MIB = 2 ** 20
const [TABLE, SCORES, Q, OUT, KV] = [2 * MIB, 3 * MIB, 8 * MIB, 40 * MIB, 80 * MIB]
const PAGE_TOKENS = 16

const memory = new WebAssembly.Memory({ initial: (512 * MIB) / 65536, maximum: 65536, shared: true })
const selection = await selectKernels({ force: options.set })
const kernels = createKernels(selection, memory, 0)
const q = new Float32Array(memory.buffer, Q, (OUT - Q) / 4)
for (let i = 0; i < q.length; i++) q[i] = Math.sin(0.37 * i)
console.log(`${selection.set}, node ${process.version}, one thread, CPU time`)

const cpu = () => process.cpuUsage().user + process.cpuUsage().system

/** Microseconds of CPU time a call. */
function measure(run) {
  const warm = performance.now() + 150
  while (performance.now() < warm) run()
  const start = performance.now()
  run()
  const calls = Math.max(1, Math.round(25 / (performance.now() - start)))
  let best = Infinity
  for (let i = 0; i < 4; i++) {
    const from = cpu()
    for (let j = 0; j < calls; j++) run()
    best = Math.min(best, (cpu() - from) / calls)
  }
  return best
}

for (const kvF16 of [0, 1])
  for (const [heads, kvHeads, headDim] of [
    [32, 4, 64],
    [32, 8, 128],
  ]) {
    const pageBytes = 2 * kvHeads * PAGE_TOKENS * headDim * (kvF16 ? 2 : 4)
    const pages = new Uint32Array(memory.buffer, TABLE, 256)
    for (let i = 0; i < pages.length; i++) pages[i] = KV + i * pageBytes
    const stride = kvHeads * headDim
    for (let p = 0; p < 4096; p += 128)
      kernels.kvAppend(Q, Q + 4 * MIB, stride, TABLE, PAGE_TOKENS, kvF16, kvHeads, headDim, 0, kvHeads, p, 128)
    for (const [tokens, position] of [
      [128, 0],
      [1, 127],
      [1, 1023],
      [1, 4095],
    ]) {
      if (SCORES + attentionScratch(position + tokens) > Q) throw new Error('scores do not fit')
      const call = {
        q: Q,
        qStride: heads * headDim,
        y: OUT,
        yStride: heads * headDim,
        heads,
        kvHeads,
        headDim,
        headStart: 0,
        headEnd: heads,
        tokens,
        position,
        pages: TABLE,
        pageTokens: PAGE_TOKENS,
        kvF16,
        scale: 1 / Math.sqrt(headDim),
        window: 0,
        scratch: SCORES,
      }
      let positions = 0
      for (let t = 0; t < tokens; t++) positions += position + t + 1
      const us = measure(() => kernels.attention(call))
      const rate = (4 * positions * heads * headDim) / us / 1e3
      console.log(
        `kv ${kvF16 ? 'f16' : 'f32'}  heads ${heads}/${kvHeads} × ${headDim}  tokens ${String(tokens).padStart(3)} from ${String(position).padStart(4)}  ${us.toFixed(1).padStart(8)} µs  ${rate.toFixed(1).padStart(5)} GFLOP/s`,
      )
    }
  }
