// --lora PATH[:SCALE] where colons are also part of paths.
import { expect, test } from 'vitest'
import { isSluiceError } from '#sluice/base/errors.js'
import { parseLora } from '#sluice/cli/lora.js'

const none = () => false

test.for([
  ['./adapter', './adapter', 1],
  ['pirate', 'pirate', 1],
  ['pirate:0.5', 'pirate', 0.5],
  ['pirate:.5', 'pirate', 0.5],
  ['pirate:2.', 'pirate', 2],
  ['pirate:-1', 'pirate', -1],
  ['pirate:+1', 'pirate', 1],
  ['pirate:1e-3', 'pirate', 0.001],
  ['pirate:1.5E+2', 'pirate', 150],
  ['pirate:0', 'pirate', 0],
  ['C:\\adapters\\pirate', 'C:\\adapters\\pirate', 1],
  ['C:\\adapters\\pirate:0.5', 'C:\\adapters\\pirate', 0.5],
  ['C:/adapters/v2', 'C:/adapters/v2', 1],
  ['/runs/2026-12-01T03:15/adapter', '/runs/2026-12-01T03:15/adapter', 1],
  ['a:b:c:0.25', 'a:b:c', 0.25],
  ['a b:1', 'a b', 1],
] as const)('%s', ([text, path, scale]) => {
  expect(parseLora(text, none)).toEqual({ path, scale })
})

test('what exists as it is written is taken as it is written', () => {
  expect(parseLora('run:2', (p) => p === 'run:2')).toEqual({ path: 'run:2', scale: 1 })
  expect(parseLora('run:2:0.5', (p) => p === 'run:2')).toEqual({ path: 'run:2', scale: 0.5 })
  expect(parseLora('run:2', (p) => p === 'run')).toEqual({ path: 'run', scale: 2 })
})

test.for(['', ':', ':0.5', 'pirate:1e999', 'pirate:-1e999', 'pirate:loud', 'pirate:', 'pirate:NaN', 'pirate:0x10'])(
  'refused: "%s"',
  (text) => {
    let error: unknown
    try {
      parseLora(text, (p) => p === 'pirate')
    } catch (err) {
      error = err
    }
    expect(isSluiceError(error, 'USAGE')).toBe(true)
    expect((error as Error).message).toContain('--lora ./adapter:0.5')
  },
)
