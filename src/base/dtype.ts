// Element types. Names are the standard's (WIA-AI-014 §2) in lower case; the two code tables of the standard
// (file and wire) are two tables here because they collide.

/** The ten element types of the standard, and those that foreign files need on top. */
export type DType =
  | 'float32'
  | 'float16'
  | 'bfloat16'
  | 'int64'
  | 'int32'
  | 'int16'
  | 'int8'
  | 'uint8'
  | 'bool'
  | 'complex64'
  | 'float64'
  | 'uint16'
  | 'uint32'
  | 'uint64'
  | 'float8_e4m3'
  | 'float8_e5m2'

/** Bytes an element takes when stored plainly. */
export const DTYPE_BYTES: Readonly<Record<DType, number>> = {
  float32: 4,
  float16: 2,
  bfloat16: 2,
  int64: 8,
  int32: 4,
  int16: 2,
  int8: 1,
  uint8: 1,
  bool: 1,
  complex64: 8,
  float64: 8,
  uint16: 2,
  uint32: 4,
  uint64: 8,
  float8_e4m3: 1,
  float8_e5m2: 1,
}

/** File codes of the standard. The other types have none and are named, never numbered, in manifests. */
export const DTYPE_FILE_CODE: Readonly<Partial<Record<DType, number>>> = {
  float32: 1,
  float16: 2,
  bfloat16: 3,
  int64: 4,
  int32: 5,
  int16: 6,
  int8: 7,
  uint8: 8,
  bool: 9,
  complex64: 10,
}

export function isDType(name: string): name is DType {
  return Object.hasOwn(DTYPE_BYTES, name)
}
