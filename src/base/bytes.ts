// Amounts of memory as people write them.
import { ValidationError } from './errors.ts'

const UNITS: Readonly<Record<string, number>> = {
  b: 1,
  kib: 1024,
  mib: 1024 ** 2,
  gib: 1024 ** 3,
  tib: 1024 ** 4,
  kb: 1e3,
  mb: 1e6,
  gb: 1e9,
  tb: 1e12,
}

/**
 * '4GiB', '600 MiB', '2.5GB', '1073741824' → bytes, rounded down to a whole one. KiB MiB GiB TiB are powers of 1024, KB MB GB TB of 1000; capitals do not
 * matter. Throws REQUEST_INVALID for all else: '4G' too, which means one thing to some and another to others. `what` names the option in the message.
 */
export function parseBytes(text: string | number, what = 'amount of memory'): number {
  const refuse = (remedy: string) =>
    new ValidationError('REQUEST_INVALID', { what: `${what} is not understood`, got: JSON.stringify(text), remedy })
  if (typeof text === 'number') {
    if (Number.isSafeInteger(text) && text >= 0) return text
    throw refuse('Give a whole number of bytes.')
  }
  const match = /^\s*(\d{1,16}(?:\.\d{1,16})?)\s*([a-z]*)\s*$/i.exec(String(text))
  const unit = match?.[2]?.toLowerCase() ?? ''
  if (match === null) throw refuse("Write it like '4GiB', '600MiB' or '2.5GB'.")
  if (/^[kmgt]i?$/.test(unit)) {
    const letter = unit[0]!.toUpperCase()
    throw refuse(`Write '${match[1]}${letter}iB' (powers of 1024) or '${match[1]}${letter}B' (powers of 1000).`)
  }
  const factor = unit === '' ? 1 : UNITS[unit]
  if (factor === undefined) throw refuse('Units are B, KiB, MiB, GiB, TiB, KB, MB, GB, TB.')
  if (factor === 1 && match[1]!.includes('.')) throw refuse('There are no parts of a byte.')
  const bytes = Math.floor(Number(match[1]) * factor)
  if (!Number.isSafeInteger(bytes)) throw refuse('That is more than any machine has.')
  return bytes
}

/** For messages: '4 GiB', '1.46 GiB', '600 MiB', '512 B'. Powers of 1024, three digits. */
export function formatBytes(bytes: number): string {
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']
  let value = bytes
  let i = 0
  // 1023.995 would be shown as 1024 of a unit that has a larger one.
  while (Math.abs(value) >= 1023.995 && i < names.length - 1) {
    value /= 1024
    i++
  }
  const digits = Math.abs(value) >= 100 ? 1 : 2
  return `${Number(value.toFixed(i === 0 ? 0 : digits))} ${names[i]}`
}
