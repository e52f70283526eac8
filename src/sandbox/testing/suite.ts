import { existsSync } from 'node:fs'
import type { Rung, Sandbox } from '../contract.ts'
import { openSandbox } from '../open.ts'
import { environmentOf, processIds } from '../proc.ts'
import { AGAINST_GUARD, ATTACKS, runAttack } from './attacks.ts'
import { hostileProbes, judge, PROBE_LIMITS, programOf, signature } from './hostile.ts'
import { HostStage, leftSysvIpc } from './stage.ts'

export interface ProbeOutcome {
  readonly name: string
  readonly signature: string
  /** Empty when the probe is contained as the rung's table says. */
  readonly fault: string
  readonly ms: number
}

export interface SuiteReport {
  readonly rung: Rung
  readonly uid: number
  readonly outcomes: readonly ProbeOutcome[]
}

/** Runs the hostile suite against one rung; for tests, in this process or as an ordinary user in another. */
export async function runHostileSuite(o: {
  readonly python: string
  readonly stateDir: string
  readonly rung: Rung
  readonly forkServer: boolean
  readonly only?: readonly string[]
}): Promise<SuiteReport> {
  const host = await HostStage.open()
  const sandbox = await openSandbox({ ...o, workers: 2 })
  const outcomes: ProbeOutcome[] = []
  try {
    for (const probe of hostileProbes(host.stage)) {
      if (o.only && !o.only.includes(probe.name)) continue
      const before = host.fingerprint()
      const hits = host.hits
      const began = performance.now()
      const run = (name: string, code: string, limits = {}) =>
        sandbox.run(
          {
            code: programOf({ name, code }),
            publicDir: host.publicDir,
            limits: { ...PROBE_LIMITS, ...limits },
            seed: 1,
          },
          AbortSignal.timeout(120_000),
        )
      const sibling = probe.sibling ? run('sibling', probe.sibling) : undefined
      const result = await run(probe.name, probe.code, probe.limits)
      await sibling
      let fault = judge(probe, result) ?? ''
      if (host.hits !== hits) fault = 'a socket of the host was reached'
      if (!host.victimLives()) fault = 'a process of the host was ended'
      if (host.fingerprint() !== before) fault = 'the public files changed'
      if (probe.name === 'sysv_ipc_persist' && leftSysvIpc()) fault = 'a SysV object stays on the host'
      outcomes.push({ name: probe.name, signature: signature(result), fault, ms: performance.now() - began })
    }
    return { rung: sandbox.rung, uid: process.getuid?.() ?? 0, outcomes }
  } finally {
    await closeAndCheck(sandbox)
    await host[Symbol.asyncDispose]()
  }
}

/** Runs the attacks of one program on the next against one rung, in one slot. */
export async function runAttackSuite(o: {
  readonly python: string
  readonly stateDir: string
  readonly rung: Rung
  readonly forkServer: boolean
}): Promise<SuiteReport> {
  const host = await HostStage.open()
  const sandbox = await openSandbox({ ...o, workers: 1 })
  try {
    const outcomes: ProbeOutcome[] = []
    for (const attack of o.forkServer ? ATTACKS : AGAINST_GUARD) {
      const began = performance.now()
      const fault = await runAttack(sandbox, host.publicDir, attack)
      outcomes.push({ name: attack.name, signature: attack.ends, fault, ms: performance.now() - began })
    }
    return { rung: sandbox.rung, uid: process.getuid?.() ?? 0, outcomes }
  } finally {
    await closeAndCheck(sandbox)
    await host[Symbol.asyncDispose]()
  }
}

/** Closes a sandbox and looks for processes of it. @throws when one is left */
export async function closeAndCheck(sandbox: Sandbox): Promise<void> {
  await sandbox[Symbol.asyncDispose]()
  const left = processIds().filter(
    (p) => p !== process.pid && environmentOf(p).includes(`PYTHONHASHSEED=0`) && ownedByUs(p),
  )
  if (left.length > 0) throw new Error(`processes are left: ${left.join(' ')}`)
}

/** A descendant of this process (others may run sandboxes of their own beside it). */
function ownedByUs(pid: number): boolean {
  return (
    existsSync(`/proc/${pid}`) &&
    environmentOf(pid).includes(`WMRL_SANDBOX=wmrl-`) &&
    environmentOf(pid).includes(`-${process.pid}-`)
  )
}
