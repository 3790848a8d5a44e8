// Work that a file can make last for ever (its regular expressions), with a limit on its time.
import vm from 'node:vm'

const script = new vm.Script('work()')
let context: { work?: (() => unknown) | undefined } | undefined

/** Runs `work`, or calls `late` when it takes longer than `ms`. V8 stops it wherever it is, inside a regular expression too. */
export function within<T>(ms: number, work: () => T, late: () => never): T {
  context ??= vm.createContext({})
  context.work = work
  try {
    return script.runInContext(context, { timeout: Math.ceil(ms) }) as T
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ERR_SCRIPT_EXECUTION_TIMEOUT') return late()
    throw error
  } finally {
    context.work = undefined
  }
}
