import { rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Rung } from './contract.ts'
import { isRoot, testPython } from './testing/environment.ts'
import { bundle, ORDINARY_UID, runAsOrdinaryUser } from './testing/ordinary-user.ts'
import type { SuiteReport } from './testing/suite.ts'

const LEVELS: readonly [Rung, boolean][] = [
  ['B', true],
  ['B', false],
  ['C', false],
  ['D', false],
]

// Only root can become an ordinary user; an ordinary user runs hostile.test.ts on these very rungs.
describe.runIf(isRoot)('as an ordinary user', () => {
  let module: string
  beforeAll(() => {
    module = bundle(join(import.meta.dirname, 'testing/child.ts'))
  })
  const stateDir = join(tmpdir(), `wmrl-test-state-${ORDINARY_UID}`) // made by that user
  afterAll(() => {
    for (const d of [dirname(module), stateDir]) rmSync(d, { recursive: true, force: true })
  })

  async function suite(options: object): Promise<SuiteReport> {
    const python = testPython()
    const said = await runAsOrdinaryUser(module, { python, stateDir, ...options }, python)
    const report = JSON.parse(said) as SuiteReport
    expect(report.uid).toBe(ORDINARY_UID)
    expect(report.outcomes.filter((o) => o.fault !== '')).toEqual([])
    return report
  }

  it.each(LEVELS)('rung %s, fork server %s: hostile programs end as its table says', async (rung, forkServer) => {
    const report = await suite({ rung, forkServer })
    expect(report.rung).toBe(rung)
    expect(report.outcomes).toHaveLength(43)
  })

  it.each([
    ['B', true],
    ['B', false],
    ['D', false],
  ])('rung %s, fork server %s: attacks on the next program and on the guard fail', async (rung, forkServer) => {
    const report = await suite({ suite: 'attacks', rung, forkServer })
    expect(report.rung).toBe(rung)
    expect(report.outcomes.length).toBeGreaterThan(4)
  })
})
