// The budget: one number for the whole process, and reservations taken from it. Nothing is allocated here; whoever
// allocates reserves first, so that a promise is refused before memory is touched and not after.
import { BudgetError, SluiceError } from '../base/errors.ts'
import type { Budget, Owner, Reservation } from './memory.ts'

const OWNERS: readonly Owner[] = ['process', 'weights', 'ring', 'kv', 'adapters', 'scratch', 'io']

/** A budget of `total` bytes. Throws REQUEST_INVALID when that is not a positive whole number below 2^53. */
export function createBudget(total: number): Budget {
  if (!Number.isSafeInteger(total) || total <= 0)
    throw new SluiceError('REQUEST_INVALID', { what: 'a memory budget is a positive number of bytes', got: total })
  const held = new Map<Owner, number>(OWNERS.map((o) => [o, 0]))
  let used = 0

  const reserve = (bytes: number, owner: Owner, what: string): Reservation => {
    if (!Number.isSafeInteger(bytes) || bytes < 0)
      throw new SluiceError('REQUEST_INVALID', { what: 'a reservation is a count of bytes', where: what, got: bytes })
    if (!held.has(owner))
      throw new SluiceError('INTERNAL', { what: 'unknown owner of memory', where: what, got: owner })
    if (bytes > total - used)
      throw new BudgetError('BUDGET_EXCEEDED', {
        what: `${what} does not fit into the memory budget`,
        where: owner,
        expected: `≤ ${total - used} bytes (${used} of ${total} are held: ${describe()})`,
        got: `${bytes} bytes`,
        remedy: 'Give more memory or ask for less.',
        details: { wantedBytes: bytes, availableBytes: total - used, totalBytes: total, owner, byOwner: report() },
      })
    used += bytes
    held.set(owner, held.get(owner)! + bytes)
    let open = true
    return {
      bytes,
      owner,
      release() {
        if (!open) return
        open = false
        used -= bytes
        held.set(owner, held.get(owner)! - bytes)
      },
    }
  }

  const report = (): Record<Owner, number> => Object.fromEntries(held) as Record<Owner, number>
  const describe = (): string =>
    OWNERS.filter((o) => held.get(o)! > 0)
      .map((o) => `${o} ${held.get(o)}`)
      .join(', ') || 'nothing'

  return {
    total,
    get used() {
      return used
    },
    get available() {
      return total - used
    },
    reserve,
    report,
  }
}
