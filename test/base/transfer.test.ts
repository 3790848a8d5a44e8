import { MessageChannel, receiveMessageOnPort } from 'node:worker_threads'
import { expect, test } from 'vitest'
import { isSluiceError, ModelFormatError, SluiceError } from '#sluice/base/errors.js'
import { fromPlainError, type PlainError, toPlainError } from '#sluice/base/transfer.js'

function throughPort(error: unknown): Error {
  const { port1, port2 } = new MessageChannel()
  port1.postMessage(toPlainError(error))
  const { message } = receiveMessageOnPort(port2) as { message: PlainError }
  port1.close()
  return fromPlainError(message)
}

test('an error of the family arrives as what it was', () => {
  const cause = Object.assign(new RangeError('inner'), { code: 'EIO' })
  const details = { tensor: 'a.weight', page: 3, file: 'x', odd: () => 1 }
  const error = new ModelFormatError('CHECKSUM_MISMATCH', {
    what: 'wrong',
    where: 'a.weight',
    expected: 1,
    got: 2,
    details,
    cause,
  })
  const back = throughPort(error)
  expect(back).toBeInstanceOf(ModelFormatError)
  expect(isSluiceError(back, 'CHECKSUM_MISMATCH')).toBe(true)
  expect(back.message).toBe(error.message)
  expect(back.stack).toBe(error.stack)
  expect((back as SluiceError).details).toEqual({ tensor: 'a.weight', page: 3, file: 'x', odd: String(details.odd) })
  expect(back.cause).toMatchObject({ name: 'RangeError', message: 'inner' })
})

test('anything else arrives as an Error', () => {
  expect(throughPort('text')).toMatchObject({ name: 'Error', message: 'text' })
  expect(throughPort(new TypeError('t'))).toMatchObject({ name: 'TypeError', message: 't' })
  expect(throughPort(undefined).message).toBe('undefined')
  const loop = new Error('loop')
  loop.cause = loop
  expect(throughPort(loop).message).toBe('loop')
  const unknown = fromPlainError({ name: 'Strange', message: 'm', code: 'constructor' as 'INTERNAL' })
  expect(unknown).not.toBeInstanceOf(SluiceError)
})
