// Progress lines: what they say, and when they are shown.
import { expect, describe as group, test } from 'vitest'
import { publishProgress } from '#sluice/base/events.js'
import { describe, showProgress } from '#sluice/cli/progress.js'

const GIB = 1024 ** 3

test('phase, share, amount, rate and time left', () => {
  const event = { phase: 'convert', done: GIB, total: 4 * GIB, unit: 'bytes' } as const
  expect(describe(event, 4)).toBe('convert 25 % 1 GiB / 4 GiB, 256 MiB/s, 12 s left')
  expect(describe({ ...event, detail: 'lm_head.weight' }, 0.1)).toBe('convert 25 % 1 GiB / 4 GiB (lm_head.weight)')
  expect(describe({ ...event, done: 4 * GIB }, 4)).toBe('convert 100 % 4 GiB / 4 GiB, 1 GiB/s')
  expect(describe({ phase: 'verify', done: 0, total: 0, unit: 'tensors' }, 9)).toBe('verify 100 % 0 / 0 tensors')
  expect(describe({ phase: 'prefill', done: 30, total: 60, unit: 'tokens' }, 2)).toBe(
    'prefill 50 % 30 / 60 tokens, 15.0/s, 2 s left',
  )
})

/** A stream that remembers what was drawn on it. */
function screen(isTTY: boolean) {
  const drawn: string[] = []
  const stream = {
    isTTY,
    columns: 30,
    write: (text: string) => drawn.push(text) > 0,
    cursorTo: () => drawn.push('<home>') > 0,
    clearLine: () => drawn.push('<clear>') > 0,
  }
  return { drawn, stream: stream as unknown as NodeJS.WriteStream }
}

group('showProgress', () => {
  const publish = (done: number) => publishProgress({ phase: 'convert', done, total: 10, unit: 'tensors' })

  test('on a terminal one line that is drawn over and removed at the end', () => {
    const { drawn, stream } = screen(true)
    const hide = showProgress('auto', stream)
    publish(10)
    expect(drawn).toEqual(['<home>', expect.stringMatching(/^convert 100 % 10 \/ 10 tensor/), '<clear>'])
    expect(drawn[1]!.length).toBeLessThan(30)
    hide()
    expect(drawn.slice(-2)).toEqual(['<home>', '<clear>'])
    publish(10)
    expect(drawn).toHaveLength(5)
  })

  test('elsewhere only when it takes seconds', () => {
    const { drawn, stream } = screen(false)
    const hide = showProgress('auto', stream)
    for (let i = 0; i <= 10; i++) publish(i)
    hide()
    expect(drawn).toEqual([])
  })

  test('none when none is wanted', () => {
    const { drawn, stream } = screen(true)
    const hide = showProgress('none', stream)
    publish(10)
    hide()
    expect(drawn).toEqual([])
  })
})
