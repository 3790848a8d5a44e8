// Views of the memory that scalar kernels are bound to, renewed when a shared memory has grown.

export class Views {
  u8: Uint8Array
  i8: Int8Array
  u32: Uint32Array
  i32: Int32Array
  f32: Float32Array
  /** For weights, which may start at any byte. */
  data: DataView
  readonly #memory: WebAssembly.Memory | undefined
  #bytes: number

  constructor(memory: ArrayBufferLike | WebAssembly.Memory) {
    this.#memory = 'buffer' in memory ? memory : undefined
    const buffer: ArrayBufferLike = 'buffer' in memory ? memory.buffer : memory
    this.#bytes = buffer.byteLength
    this.u8 = new Uint8Array(buffer)
    this.i8 = new Int8Array(buffer)
    this.u32 = new Uint32Array(buffer, 0, Math.floor(buffer.byteLength / 4))
    this.i32 = new Int32Array(buffer, 0, this.u32.length)
    this.f32 = new Float32Array(buffer, 0, this.u32.length)
    this.data = new DataView(buffer)
  }

  /** To be called once a kernel call: the views always cover the whole memory. */
  now(): this {
    const buffer = this.#memory?.buffer
    if (buffer !== undefined && buffer.byteLength !== this.#bytes) {
      this.#bytes = buffer.byteLength
      this.u8 = new Uint8Array(buffer)
      this.i8 = new Int8Array(buffer)
      this.u32 = new Uint32Array(buffer)
      this.i32 = new Int32Array(buffer)
      this.f32 = new Float32Array(buffer)
      this.data = new DataView(buffer)
    }
    return this
  }
}
