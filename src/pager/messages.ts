// What the main thread and the reader thread say to each other. Plain data.
import type { PlainError } from '../base/transfer.ts'
import type { FileDescriptor } from '../source/source.ts'
import type { RepackKernels } from './repack.ts'
import type { PageNews, StreamInput } from './stream.ts'

/** workerData of the reader thread. */
export interface ReaderInput {
  readonly stream: StreamInput
  /** By source index. */
  readonly files: ReadonlyMap<number, FileDescriptor>
  /** Kernels that lay foreign blocks out anew; absent when no matrix needs it. */
  readonly kernels?: RepackKernels
  /** Somebody on the main thread listens to pages. */
  readonly news?: boolean
}

export type ToReader =
  | { readonly kind: 'reset'; readonly id: number; readonly pass: number }
  | { readonly kind: 'stop' }

export type FromReader =
  /** Files are open and reading began. */
  | { readonly kind: 'started' }
  /** Opening failed; the thread ends. */
  | { readonly kind: 'refused'; readonly error: PlainError }
  | { readonly kind: 'page'; readonly page: PageNews }
  /** A read failed: control.failed is set. */
  | { readonly kind: 'failed'; readonly error: PlainError }
  | { readonly kind: 'reset'; readonly id: number }
