import { expect, test } from 'vitest'
import { formatBytes, parseBytes } from '#sluice/base/bytes.js'
import { isSluiceError } from '#sluice/base/errors.js'

test.each([
  ['4GiB', 4 * 1024 ** 3],
  ['600MiB', 600 * 1024 ** 2],
  ['600 mib', 600 * 1024 ** 2],
  ['2.5GB', 2_500_000_000],
  ['1.5KiB', 1536],
  ['0.1KiB', 102],
  ['1073741824', 1073741824],
  ['512B', 512],
  [' 7 kb ', 7000],
  ['1TiB', 1024 ** 4],
  ['0', 0],
  ['9007199254740991', Number.MAX_SAFE_INTEGER],
])('%j is %d bytes', (text, bytes) => expect(parseBytes(text)).toBe(bytes))

test.each([
  '',
  ' ',
  '4G',
  '4g',
  '4Gi',
  'GiB',
  '-1',
  '-4GiB',
  '+4GiB',
  '1e9',
  '0x10',
  '4GiB5',
  '4 Gi B',
  '1,5GiB',
  '.5GiB',
  '5.GiB',
  'NaN',
  'Infinity',
  '1.5',
  '1.5B',
  '4GBit',
  '4PB',
  '9007199254740992',
  '99999999TiB',
  'max',
  '٤GiB',
  '4GiB\0',
])('refuses %j', (text) => {
  try {
    parseBytes(text, '--memory')
  } catch (error) {
    expect(isSluiceError(error, 'REQUEST_INVALID')).toBe(true)
    expect((error as Error).message).toContain('--memory')
    return
  }
  throw new Error('was accepted')
})

test('numbers are bytes already', () => {
  expect(parseBytes(5)).toBe(5)
  for (const n of [-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53]) expect(() => parseBytes(n)).toThrow()
  for (const n of [undefined, null, {}, [], true]) expect(() => parseBytes(n as never)).toThrow()
})

test('says what is meant by 4G', () => expect(() => parseBytes('4G')).toThrow("'4GiB'"))

test.each([
  [0, '0 B'],
  [512, '512 B'],
  [1023, '1023 B'],
  [1024, '1 KiB'],
  [1536, '1.5 KiB'],
  [600 * 1024 ** 2, '600 MiB'],
  [1.456 * 1024 ** 3, '1.46 GiB'],
  [1024 ** 3 - 1, '1 GiB'],
  [4 * 1024 ** 4, '4 TiB'],
  [-1536, '-1.5 KiB'],
])('%d is shown as %j', (bytes, text) => expect(formatBytes(bytes)).toBe(text))

test('what is shown can be read again', () => {
  for (const n of [1, 1000, 1024, 600 * 1024 ** 2, 3 * 1024 ** 3]) expect(parseBytes(formatBytes(n))).toBe(n)
})
