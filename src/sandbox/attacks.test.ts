import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Sandbox } from './contract.ts'
import { openSandbox } from './open.ts'
import { ATTACKS } from './testing/attacks.ts'
import { testPython } from './testing/environment.ts'
import { marker, PROBE_LIMITS, programOf, signature } from './testing/hostile.ts'
import { HostStage } from './testing/stage.ts'

const AGAINST_GUARD = ATTACKS.filter((a) => /guard|forge|kill_server/.test(a.name))

describe.each([
  ['fork-server', ATTACKS],
  ['process', AGAINST_GUARD],
] as const)('one program against the next, and against its guard, runner %s', (runner, attacks) => {
  let sandbox: Sandbox
  let host: HostStage
  const stateDir = mkdtempSync(join(tmpdir(), 'wmrl-test-state-'))
  beforeAll(async () => {
    host = await HostStage.open()
    sandbox = await openSandbox({ python: testPython(), stateDir, workers: 1, forkServer: runner === 'fork-server' })
  })
  afterAll(async () => {
    await sandbox?.[Symbol.asyncDispose]()
    await host[Symbol.asyncDispose]()
    rmSync(stateDir, { recursive: true })
  })

  it.each(attacks)('$name', async ({ name, poison, look, ends, limits, also }) => {
    const run = (code: string) =>
      sandbox.run(
        { code: programOf({ name, code }), publicDir: host.publicDir, limits: { ...PROBE_LIMITS, ...limits }, seed: 1 },
        AbortSignal.timeout(60_000),
      )
    const first = await run(poison)
    const second = look === undefined ? undefined : await run(look)
    const said = (r: typeof first): string => Buffer.concat([r.stdout, r.stderr]).toString('latin1')
    expect(first.runner).toBe(runner)
    expect(said(first)).toContain(marker(name))
    expect(signature(first)).toBe(ends)
    expect(said(first)).not.toContain('LEAK')
    if (second) {
      expect(said(second)).toContain('clean')
      expect(said(second)).not.toContain('LEAK')
      expect(signature(second)).toBe('finished')
    }
    expect(also?.(first, second)).toBeUndefined()
  })
})
