import type { ModelReader, TensorEntry } from '../format/reader.ts'
import { codecOf, encodedBytes } from '../quant/codec.ts'
export class LazyTensor {
  entry: TensorEntry
  r: ModelReader
  constructor(r: ModelReader, e: TensorEntry) {
    this.r = r
    this.entry = e
  }
  async rowBytes(a: number, b: number) {
    const e = this.entry
    const out: Uint8Array[] = []
    for (const s of e.segments) {
      const f = Math.max(a, s.rowStart),
        t = Math.min(b, s.rowStart + s.rows)
      if (t > f)
        out.push(
          await this.r.sources[s.source]!.read(
            s.offset + encodedBytes(e.encoding, f - s.rowStart, e.cols),
            encodedBytes(e.encoding, t - f, e.cols),
          ),
        )
    }
    return new Uint8Array(Buffer.concat(out))
  }
  async bytes() {
    return this.rowBytes(0, this.entry.rows)
  }
  async rows(a: number, b: number) {
    const o = new Float32Array((b - a) * this.entry.cols)
    codecOf(this.entry.encoding).decode(await this.rowBytes(a, b), b - a, this.entry.cols, o)
    return o
  }
  async rowsAt(ids: readonly number[]) {
    const o = new Float32Array(ids.length * this.entry.cols)
    for (const [i, id] of ids.entries()) o.set(await this.rows(id, id + 1), i * this.entry.cols)
    return o
  }
  async astype(_: 'float32') {
    return this.rows(0, this.entry.rows)
  }
}
export function openTensors(r: ModelReader, _o: object = {}) {
  return {
    get(n: string) {
      return new LazyTensor(r, r.tensors.get(n)!)
    },
  }
}
