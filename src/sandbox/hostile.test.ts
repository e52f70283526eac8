import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Rung } from './contract.ts'
import { probeRungs } from './probe.ts'
import { isRoot, testPython } from './testing/environment.ts'
import { hostileProbes } from './testing/hostile.ts'
import { runHostileSuite, type SuiteReport } from './testing/suite.ts'

const NAMES = hostileProbes({
  port: 0,
  abstractName: '',
  socketPath: '',
  openAnswers: '',
  closedAnswers: '',
  victim: 0,
  supervisor: 0,
}).map((p) => p.name)

// As root all of rung A; otherwise the best rung that this user has (ordinary-user.test.ts does that under root).
const BEST: readonly [Rung, boolean][] = isRoot
  ? [
      ['A', true],
      ['A', false],
      ['A-', false],
    ]
  : [
      [probeRungs({ python: testPython() }).rung, true],
      [probeRungs({ python: testPython() }).rung, false],
    ]

describe.each(BEST)('43 hostile programs on rung %s, fork server %s', (rung, forkServer) => {
  let report: SuiteReport
  const stateDir = mkdtempSync(join(tmpdir(), 'wmrl-test-state-'))
  beforeAll(async () => {
    report = await runHostileSuite({ python: testPython(), stateDir, rung, forkServer })
  })
  afterAll(() => rmSync(stateDir, { recursive: true }))

  it('are all there', () => {
    expect(NAMES).toHaveLength(43)
    expect(report.rung).toBe(rung)
    expect(report.outcomes.map((o) => o.name)).toEqual(NAMES)
  })
  it.each(NAMES)('%s is contained', (name) => {
    expect(report.outcomes.find((o) => o.name === name)?.fault).toBe('')
  })
})
