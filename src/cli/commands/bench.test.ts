/** The commands as they are typed: these tests need `npm run build`. */
import { spawn, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { builtEntry } from '../../core/index.ts'
import { cpuSecondsOf, processTree } from '../../sandbox/proc.ts'
import { testPython } from '../../sandbox/testing/environment.ts'

const home = mkdtempSync(join(tmpdir(), 'wmrl-bench-'))
afterAll(() => rmSync(home, { recursive: true, force: true }))
const env = (): NodeJS.ProcessEnv => ({ ...process.env, WMRL_HOME: home, WMRL_PYTHON: testPython() })

describe('what is typed wrong: exit code 2, the value', () => {
  test.each([['0'], ['-1'], ['1.5'], ['two'], [''], ['1e9']])('--threads %j', (n) => {
    const r = spawnSync(process.execPath, [builtEntry('cli/main.js'), 'bench', 'engine', '--threads', n], {
      encoding: 'utf8',
      env: env(),
    })
    expect(r.status).toBe(2)
    expect(r.stderr).toMatch(/--threads/)
    expect(r.stdout).toBe('')
  })
})

// In the middle of measuring: by its own processor time, or by the jails that it started, not by a clock.
test.each<[string, string[], (pid: number) => boolean]>([
  ['engine', ['--threads', '1', '--seconds', '600'], (pid) => cpuSecondsOf(pid) > 4],
  ['sandbox', [], (pid) => processTree(pid).length > 1],
])('bench %s ends at Ctrl-C with exit code 130', async (what, args, measuring) => {
  const child = spawn(process.execPath, [builtEntry('cli/main.js'), 'bench', what, ...args], {
    env: env(),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let said = ''
  child.stdout.on('data', (b: Buffer) => (said += b.toString()))
  child.stderr.on('data', (b: Buffer) => (said += b.toString()))
  const ended = new Promise<[number | null, NodeJS.Signals | null]>((r) => child.once('exit', (...x) => r(x)))
  while (child.exitCode === null && !measuring(child.pid!)) await new Promise((r) => setTimeout(r, 50))
  expect(child.exitCode).toBe(null)
  child.kill('SIGINT')
  expect(await ended).toEqual([130, null])
  expect(said).toBe('wmrl: interrupted\n')
})
