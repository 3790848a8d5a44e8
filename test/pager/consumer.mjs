// A compute thread of the tests: takes jobs from its port, walks the pages of some passes, and compares every byte twice.
import { parentPort } from 'node:worker_threads'
import { createPageClient } from '#sluice/pager/client.js'

parentPort.on('message', (job) => {
  const { shared, memories, places, expected, firstPass, passes, seed, pauseMs } = job
  const client = createPageClient(shared)
  const sleeper = new Int32Array(new SharedArrayBuffer(4))
  let random = seed
  const chance = () => {
    random = (random * 1103515245 + 12345) % 2147483648
    return random / 2147483648
  }
  let seen = 0
  const same = (page) => {
    const { offset, bytes } = places[page]
    const got = Buffer.from(memories[client.arenaOf(page)].buffer, client.addressOf(page), bytes)
    return Buffer.from(expected.buffer, offset, bytes).equals(got)
  }
  const run = () => {
    for (let pass = firstPass; pass < firstPass + passes; pass++)
      for (let page = 0; page < places.length; page++) {
        if (!client.acquire(page, pass)) return { left: { pass, page } }
        if (!same(page)) return { wrong: { pass, page } }
        if (pauseMs > 0 && chance() < 0.2) Atomics.wait(sleeper, 0, 0, chance() * pauseMs)
        if (!same(page)) return { overwritten: { pass, page } }
        client.release(page)
        seen++
      }
    return {}
  }
  try {
    const result = run()
    parentPort.postMessage({ ...result, seen, stallNs: client.stallNs })
  } catch (error) {
    parentPort.postMessage({ error: String(error) })
  }
})
