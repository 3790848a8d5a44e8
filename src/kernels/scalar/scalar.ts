// The scalar kernel set: plain TypeScript with float32 roundings. It defines what every other set has to compute.
import { checkGgmlColumns, checkMatrix, checkPanelMatrix, isPanel, quantizedStride } from '../compute.ts'
import type { Kernels } from '../kernels.ts'
import { attention, kvAppend, softmax } from './attention.ts'
import { decode } from './decode.ts'
import { add, rmsNorm, rope, swiglu } from './elementwise.ts'
import { matMulPanels, matMulRows } from './matmul.ts'
import { matMulQ, quantize } from './quantized.ts'
import { repackQ4_0, repackQ8_0 } from './repack.ts'
import { Views } from './views.ts'

/** Binds the scalar kernels to a buffer, or to a WebAssembly memory that may grow. */
export function createScalarKernels(memory: ArrayBufferLike | WebAssembly.Memory): Kernels {
  const views = new Views(memory)
  return {
    set: 'scalar',
    decode(m, out, outStride) {
      checkMatrix(m)
      decode(views.now(), m, out, outStride)
    },
    matMul(m, ...rest) {
      checkMatrix(m)
      if (isPanel(m.encoding)) matMulPanels(views.now(), m, ...rest)
      else matMulRows(views.now(), m, ...rest)
    },
    quantizedStride,
    quantize: (...args) => quantize(views.now(), ...args),
    matMulQ(m, ...rest) {
      checkPanelMatrix(m)
      matMulQ(views.now(), m, ...rest)
    },
    rmsNorm: (...args) => rmsNorm(views.now(), ...args),
    rope: (...args) => rope(views.now(), ...args),
    kvAppend: (...args) => kvAppend(views.now(), ...args),
    attention: (call) => attention(views.now(), call),
    swiglu: (...args) => swiglu(views.now(), ...args),
    add: (...args) => add(views.now(), ...args),
    softmax: (x, n) => softmax(views.now(), x, n),
    repackQ4_0(src, dst, rows, cols) {
      checkGgmlColumns(cols)
      repackQ4_0(views.now(), src, dst, rows, cols)
    },
    repackQ8_0(src, dst, rows, cols) {
      checkGgmlColumns(cols)
      repackQ8_0(views.now(), src, dst, rows, cols)
    },
  }
}
