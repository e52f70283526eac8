/** What a run used, and what it would have used had every attempt been executed. */
export interface Bill {
  readonly used: number
  readonly allExecuted: number
  /** allExecuted / used; null where nothing was used. */
  readonly times: number | null
}

/** A saving looks different by who is billed for what, so all three stand side by side. */
export interface Bills {
  /** CPU seconds of programs alone: a farm that bills executions. */
  readonly executions: Bill
  /** CPU seconds of programs, policy and frozen backbone. */
  readonly compute: Bill
  /** Seconds of wall time, in which processors wait too: a machine that is rented whole. */
  readonly wall: Bill
}

export interface Used {
  readonly attemptsExecuted: number
  readonly sandboxCpuS: number
  readonly sandboxWallS: number
  readonly policyCpuS: number
  readonly frozenCpuS: number
  /** Of training, without dev evaluations. */
  readonly wallS: number
}

/**
 * Bills of one or more runs. Had all `attempts` been executed, each would have cost what the executed ones did on average
 * (cached ones cost nothing in both), the frozen backbone nothing, and programs would have run `workers` at a time. An
 * estimate: the wall time of programs is that on a machine which also sampled and trained.
 */
export function bills(u: Used, attempts: number, workers: number): Bills {
  const more = u.attemptsExecuted > 0 ? Math.max(0, attempts / u.attemptsExecuted - 1) : 0
  const sandbox = u.sandboxCpuS * (1 + more)
  return {
    executions: bill(u.sandboxCpuS, sandbox),
    compute: bill(u.sandboxCpuS + u.policyCpuS + u.frozenCpuS, sandbox + u.policyCpuS),
    wall: bill(u.wallS, u.wallS + (more * u.sandboxWallS) / workers),
  }
}

const bill = (used: number, allExecuted: number): Bill => ({
  used,
  allExecuted,
  times: used > 0 ? allExecuted / used : null,
})

export const showBills = (b: Bills): string => {
  const one = (x: Bill, unit: string): string =>
    `${x.times === null ? '-' : x.times.toFixed(1)} times (${x.used.toFixed(0)} of ${x.allExecuted.toFixed(0)} ${unit})`
  return `executions only ${one(b.executions, 'CPU s')}, all compute ${one(b.compute, 'CPU s')}, idle included ${one(b.wall, 's of wall time')}`
}
