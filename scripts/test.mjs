#!/usr/bin/env node
/** Runs the tests (arguments go to vitest) and ends with one line, `N passed, N failed`. After `scripts/setup.mjs`. */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const home = process.env.WMRL_HOME ?? join(root, '.wmrl')
const report = join(home, `test-${process.pid}.json`)
mkdirSync(home, { recursive: true })
const env = {
  ...process.env,
  WMRL_PYTHON: process.env.WMRL_PYTHON ?? join(home, 'venv', 'bin', 'python'),
  PYTHONNOUSERSITE: '1',
}
const args = ['run', '--reporter=default', '--reporter=json', `--outputFile.json=${report}`, ...process.argv.slice(2)]
const vitest = spawnSync(process.execPath, [join(root, 'node_modules', 'vitest', 'vitest.mjs'), ...args], {
  cwd: root,
  env,
  stdio: 'inherit',
})

let passed = 0
let failed = 0
if (existsSync(report)) {
  for (const file of JSON.parse(readFileSync(report, 'utf8')).testResults) {
    passed += file.assertionResults.filter((t) => t.status === 'passed').length
    for (const t of file.assertionResults.filter((x) => x.status === 'pending' || x.status === 'skipped'))
      process.stdout.write(`skipped, for want of something on this machine: ${t.fullName}\n`)
    const bad = file.assertionResults.filter((t) => t.status === 'failed').length
    // A file that could not even be loaded is one failure.
    failed += bad === 0 && file.status === 'failed' ? 1 : bad
  }
  rmSync(report)
} else failed = 1
const code = vitest.status ?? 1
// An error outside any test fails the run, too.
if (code !== 0 && failed === 0) failed = 1
process.stdout.write(`${passed} passed, ${failed} failed\n`)
process.exitCode = code
