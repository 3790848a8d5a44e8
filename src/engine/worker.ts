// Entry of a compute thread: bind kernels to every arena, then run a pass whenever the generation grows.
import { parentPort, workerData } from 'node:worker_threads'
import { createKernels, type KernelSelection } from '../kernels/select.ts'
import { createPageClient } from '../pager/client.ts'
import { WORD } from './control.ts'
import { Executor } from './execute.ts'
import { Share } from './share.ts'
import type { ThreadSetup } from './threads.ts'

function main(setup: ThreadSetup): void {
  const { control, thread, threads, memories } = setup
  const kernels = memories.map((memory) => createKernels(setup.kernels as KernelSelection, memory, thread))
  const pages = createPageClient(setup.pages)
  const executor = new Executor(
    setup.program,
    kernels,
    memories.map((m) => m.buffer),
    pages,
    control,
    new Share(thread, threads),
  )
  let generation = Atomics.load(control, WORD.generation)
  parentPort!.postMessage({ ready: true })
  for (;;) {
    while (Atomics.load(control, WORD.generation) === generation) Atomics.wait(control, WORD.generation, generation)
    generation = Atomics.load(control, WORD.generation)
    if (Atomics.load(control, WORD.stop) !== 0) return
    // A thread that leaves early takes the others with it.
    const stalled = pages.stallNs
    if (!executor.run()) Atomics.store(control, WORD.abort, 1)
    control[WORD.stalls + thread] = Math.min(0x7fffffff, (pages.stallNs - stalled) / 1000)
    Atomics.add(control, WORD.done, 1)
    Atomics.notify(control, WORD.done)
  }
}

try {
  main(workerData as ThreadSetup)
} catch (err) {
  parentPort!.postMessage({ error: (err as Error).message, stack: (err as Error).stack })
}
