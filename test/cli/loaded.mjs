// Notes every module that is loaded, one URL a line, in the file LOADED names. For `node --import`.
import { appendFileSync } from 'node:fs'
import { register } from 'node:module'

export async function load(url, context, next) {
  appendFileSync(process.env.LOADED, `${url}\n`)
  return next(url, context)
}

if (!process.env.LOADED_HOOKS) {
  process.env.LOADED_HOOKS = '1' // the hooks' own thread imports this file again
  register(import.meta.url)
}
