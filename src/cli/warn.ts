// What a person should know and the program goes on after: on stderr, so that standard output stays what was asked for.

import { printable } from '../base/printable.ts'

/** One line: "sluice: warning: …", or a JSON object with --json. */
export function warn(text: string, json: boolean): void {
  const clean = printable(text)
  console.error(json ? JSON.stringify({ warning: clean }) : `sluice: warning: ${clean}`)
}
