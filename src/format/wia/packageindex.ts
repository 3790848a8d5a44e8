// The whole manifest as checked records. Pure: the reader runs it before it opens a shard, the writer before it renames.
import { type JsonObject, own } from '../../base/json.ts'
import { MAX_TENSORS } from '../../base/limits.ts'
import { objectField } from './fields.ts'
import { checkQuantization, type ManifestHead, readHead } from './manifest.ts'
import { checkAliases, checkInside, checkPages, checkRanges, storageOrder } from './ranges.ts'
import { tooMany } from './refuse.ts'
import { readTensor, type TensorRecord } from './tensorfield.ts'

export interface PackageIndex {
  readonly head: ManifestHead
  readonly records: ReadonlyMap<string, TensorRecord>
  /** Those with ranges, in storage order. */
  readonly ordered: readonly TensorRecord[]
}

/** Applies every rule of docs/FORMAT.md that needs no file. `where` names the manifest in messages, `root` the package. */
export function readIndex(manifest: JsonObject, where: string, root: string): PackageIndex {
  const head = readHead(manifest, where, root)
  const index = objectField(manifest, 'tensors', where)
  const records = new Map<string, TensorRecord>()
  const schemes = new Set<string>()
  for (const name in index) {
    if (records.size >= MAX_TENSORS) tooMany('too many tensors', where, MAX_TENSORS, records.size + 1)
    const record = readTensor(name, own(index, name), head.extensionsRequired, where)
    records.set(name, record)
    if (record.encoding.kind === 'panel') schemes.add(record.encoding.scheme)
    else if (record.linear !== undefined) schemes.add('LINEAR')
  }
  checkQuantization(head.quantization, schemes, where)
  checkAliases(records, where)
  checkInside(records.values(), head.shards, where)
  const ordered = storageOrder(records.values())
  checkRanges(ordered, head.shards, where)
  checkPages(ordered, head.pages, where)
  return { head, records, ordered }
}
