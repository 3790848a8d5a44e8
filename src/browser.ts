// Entry point for browsers: what runs without Node today. The index of safetensors and GGUF files from any source of bytes, rows as
// numbers, number formats, errors. No file in its import graph may import node: (test/package.test.ts). Engines and packages need Node.

export { type FileIndex, type FileTensor, readIndex, readRows } from './api/fileindex.ts'
export { formatBytes, parseBytes } from './base/bytes.ts'
export {
  BudgetError,
  ConversionError,
  ERROR_CODES,
  type ErrorCode,
  InferenceError,
  isSluiceError,
  ModelFormatError,
  SluiceError,
  SourceError,
  ValidationError,
} from './base/errors.ts'
export * from './quant.ts'
export { BlobSource } from './source/blob.ts'
export { type CacheOptions, cached } from './source/cached.ts'
export { MemorySource } from './source/memory.ts'
export type { ByteSource, ReadOptions } from './source/source.ts'
