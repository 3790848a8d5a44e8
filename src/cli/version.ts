// The package's version, read from package.json so that it stands in one place.
import { readFileSync } from 'node:fs'

export const version = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version
