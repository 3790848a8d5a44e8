export function npyHeader(_d: 'float32', shape: readonly number[]) {
  const t = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(', ')}${shape.length === 1 ? ',' : ''}), }`
  const n = Math.ceil((t.length + 11) / 64) * 64
  const b = Buffer.alloc(n, 32)
  b.write('\x93NUMPY\x01\x00', 'latin1')
  b.writeUInt16LE(n - 10, 8)
  b.write(t, 10)
  b[n - 1] = 10
  return b
}
