import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Sandbox } from './contract.ts'
import { openSandbox } from './open.ts'
import { AGAINST_GUARD, ATTACKS, runAttack } from './testing/attacks.ts'
import { testPython } from './testing/environment.ts'
import { HostStage } from './testing/stage.ts'

describe.each([
  [true, ATTACKS],
  [false, AGAINST_GUARD],
] as const)('one program against the next, and against its guard, fork server %s', (forkServer, attacks) => {
  let sandbox: Sandbox
  let host: HostStage
  const stateDir = mkdtempSync(join(tmpdir(), 'wmrl-test-state-'))
  beforeAll(async () => {
    host = await HostStage.open()
    sandbox = await openSandbox({ python: testPython(), stateDir, workers: 1, forkServer })
  })
  afterAll(async () => {
    await sandbox?.[Symbol.asyncDispose]()
    await host[Symbol.asyncDispose]()
    rmSync(stateDir, { recursive: true })
  })

  it.each(attacks)('$name', async (attack) => {
    expect(await runAttack(sandbox, host.publicDir, attack)).toBe('')
  })
})
