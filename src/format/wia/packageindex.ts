// The whole manifest as checked records. Pure: the reader runs it before it opens a shard, the writer before it renames.
import { parseJsonMembers } from '../../base/jsonmembers.ts'
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

/** Applies every rule of docs/FORMAT.md that needs no file to the text of a manifest. `where` names it in messages, `root` the package. */
export function readIndex(manifest: Uint8Array, where: string, root: string): PackageIndex {
  const index = parseJsonMembers(manifest, 'tensors', { where })
  const head = readHead(index.object, where, root)
  objectField(index.object, 'tensors', where)
  if (index.count > MAX_TENSORS) tooMany('too many tensors', where, MAX_TENSORS, index.count)
  const schemes = new Set<string>()
  const records = index.read((name, value) => {
    const record = readTensor(name, value, head.extensionsRequired, where)
    if (record.encoding.kind === 'panel') schemes.add(record.encoding.scheme)
    else if (record.linear !== undefined) schemes.add('LINEAR')
    return record
  })
  checkQuantization(head.quantization, schemes, where)
  checkAliases(records, where)
  checkInside(records.values(), head.shards, where)
  const ordered = storageOrder(records.values())
  checkRanges(ordered, head.shards, where)
  checkPages(ordered, head.pages, where)
  return { head, records, ordered }
}
