// Folders a killed writer left behind, and who may clear them away.
//
// A writer's folder is called .<name>.partial-<machine>-<pid>-<random>. It is a leftover only when it was made on this machine, in
// this process namespace, by a process that is gone: folders of other machines on a shared disk are left alone, and so is one whose
// pid was given to another process meanwhile.
import { createHash, randomBytes } from 'node:crypto'
import { lstatSync, readdirSync, readlinkSync, renameSync, rmSync } from 'node:fs'
import { hostname } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { errnoOf } from '../../source/fserror.ts'

/** What stood under the final name, moved aside while it is replaced. */
export const ASIDE = '.old'

/** A new name beside `path` that says who writes there. */
export function temporaryName(path: string): string {
  const owner = `${machine()}-${process.pid}`
  return join(dirname(path), `.${basename(path)}.partial-${owner}-${randomBytes(4).toString('hex')}`)
}

/**
 * Removes what killed writers of `path` left. When one was killed in the moment between moving the old package aside and putting
 * the new one in its place, the old one comes back. Throws what the file system throws.
 */
export function clearLeftovers(path: string): void {
  const folder = dirname(path)
  const start = `.${basename(path)}.partial-${machine()}-`
  const left = readdirSync(folder).filter((name) => {
    if (!name.startsWith(start)) return false
    const m = /^(\d{1,10})-[0-9a-f]{8}(\.old)?$/.exec(name.slice(start.length))
    return m !== null && !isAlive(Number(m[1]))
  })
  for (const name of left.filter((n) => n.endsWith(ASIDE)))
    if (lstatSync(path, { throwIfNoEntry: false }) === undefined) renameSync(join(folder, name), path)
  for (const name of left) rmSync(join(folder, name), { recursive: true, force: true })
}

/** Host and process namespace, in which a pid means something. */
function machine(): string {
  let namespace = ''
  try {
    namespace = readlinkSync('/proc/self/ns/pid')
  } catch {
    // Not Linux: the host is all there is.
  }
  return createHash('sha256').update(`${hostname()}\n${namespace}`).digest('hex').slice(0, 8)
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return errnoOf(error) !== 'ESRCH'
  }
}
