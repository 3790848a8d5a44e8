// npm test: sets itself up, type-checks the tests, runs them on dist/, and ends with one line of counts.
//   npm test                 everything
//   npm test -- test/quant   some of it
import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { bootstrap, root, run } from './bootstrap.mjs'

bootstrap()
console.log('sluice: type-checking src, test and bench …')
run(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.test.json'])

const data = [process.env.SLUICE_DATA, resolve(root, '../shared/data')].find(
  (d) => d && existsSync(join(d, 'manifest.json')),
)
console.log(
  data
    ? `sluice: larger test data found at ${data}`
    : 'sluice: no larger test data (set SLUICE_DATA to its folder); cases that need it are skipped',
)

const tmp = mkdtempSync(join(tmpdir(), 'sluice-test-'))
const report = join(tmp, 'report.json')
const vitest = spawnSync(
  process.execPath,
  [
    'node_modules/vitest/vitest.mjs',
    'run',
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${report}`,
    ...process.argv.slice(2),
  ],
  { cwd: root, stdio: 'inherit' },
)
let failed = 1
try {
  const r = JSON.parse(readFileSync(report, 'utf8'))
  failed = r.numFailedTests + (r.numFailedTestSuites > 0 && r.numFailedTests === 0 ? r.numFailedTestSuites : 0)
  const skipped = r.numPendingTests + r.numTodoTests
  if (r.numPassedTests === 0) failed ||= 1
  if (skipped > 0)
    console.log(`\nsluice: ${skipped} cases skipped${data ? '' : ' (most for want of the larger test data)'}`)
  console.log(`\nTests: ${r.numPassedTests} passed, ${failed} failed, ${skipped} skipped`)
} catch (err) {
  console.error(`no test report: ${err.message}`)
}
rmSync(tmp, { recursive: true, force: true })
process.exit(vitest.status !== 0 || failed > 0 ? 1 : 0)
