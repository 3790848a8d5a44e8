// Reads .npy files (versions 1 to 3) for tests. Source: numpy/lib/format.py.

export interface Npy {
  readonly descr: string
  readonly shape: number[]
  readonly data: Uint8Array
}

export function readNpy(file: Uint8Array): Npy {
  if (Buffer.from(file.subarray(0, 6)).toString('latin1') !== '\x93NUMPY') throw new Error('not an npy file')
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength)
  const wide = file[6]! > 1
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true)
  const start = wide ? 12 : 10
  const header = Buffer.from(file.subarray(start, start + length)).toString('utf8')
  const found = /'descr': '([^']+)', 'fortran_order': False, 'shape': \(([^)]*)\)/.exec(header)
  if (found === null) throw new Error(`npy header not understood: ${header}`)
  const shape = found[2]!
    .split(',')
    .filter((s) => s.trim() !== '')
    .map(Number)
  return { descr: found[1]!, shape, data: file.subarray(start + length) }
}

/** Members of an .npz that are stored (not deflated), by the zip's local headers. */
export function readNpz(file: Uint8Array): Map<string, Npy> {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength)
  const out = new Map<string, Npy>()
  for (let at = 0; view.getUint32(at, true) === 0x04034b50; ) {
    const size = view.getUint32(at + 18, true)
    const nameLength = view.getUint16(at + 26, true)
    const extra = view.getUint16(at + 28, true)
    if (view.getUint16(at + 8, true) !== 0) throw new Error('deflated')
    const name = Buffer.from(file.subarray(at + 30, at + 30 + nameLength)).toString()
    const start = at + 30 + nameLength + extra
    // zip64: the size is in the extra field
    const bytes = size === 0xffffffff ? Number(view.getBigUint64(at + 30 + nameLength + 4 + 8, true)) : size
    out.set(name.replace(/\.npy$/, ''), readNpy(file.subarray(start, start + bytes)))
    at = start + bytes
  }
  return out
}
