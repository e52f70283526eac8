import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { benchSandbox } from './bench.ts'
import { testPython } from './testing/environment.ts'

it('the fork server costs at most a tenth of a plain process on a small program', async () => {
  const stateDir = mkdtempSync(join(tmpdir(), 'wmrl-test-state-'))
  const bench = await benchSandbox({ python: testPython(), stateDir, workers: 1, programs: 3 })
  expect(bench.rows.map((r) => r.backend)).toEqual(['plain', 'process', 'fork-server'])
  for (const r of bench.rows) expect(r.cpuS).toBeGreaterThan(0.001)
  expect(bench.ratioToPlain).toBeLessThanOrEqual(0.1)
  rmSync(stateDir, { recursive: true })
})
