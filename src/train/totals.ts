import type { Cost, Verdict } from '../core/index.ts'
import type { RunConfig } from './config.ts'
import type { StepOutcome, UpdateReport } from './step.ts'

/** Executed score of dev tasks, null where nothing could be scored, and what it cost. */
export interface DevResult {
  readonly score: number | null
  readonly executions: number
  readonly sandboxCpuS: number
}

/** Itemised costs of training so far (invariant 12), over all processes that worked on the run. */
export interface Totals {
  readonly executions: number
  readonly attemptsExecuted: number
  readonly predictions: number
  readonly sandboxCpuS: number
  readonly sandboxWallS: number
  readonly sampledTokens: number
  readonly predictedTokens: number
  readonly trainedTokens: number
  readonly optimiserSteps: number
  /** Groups that were to be executed, and those of them with two executed members or more. */
  readonly anchorsWanted: number
  readonly anchorsRealised: number
  /** Of dev evaluations, which are in no other entry. */
  readonly devExecutions: number
  readonly devSandboxCpuS: number
  /** Part of `wallS`. */
  readonly devWallS: number
  /** Of the engine: sampling and training the policy, and whatever the frozen backbone computed. */
  readonly policyCpuS: number
  readonly frozenCpuS: number
  readonly wallS: number
}
export const NOTHING: Totals = {
  executions: 0,
  attemptsExecuted: 0,
  predictions: 0,
  sandboxCpuS: 0,
  sandboxWallS: 0,
  sampledTokens: 0,
  predictedTokens: 0,
  trainedTokens: 0,
  optimiserSteps: 0,
  anchorsWanted: 0,
  anchorsRealised: 0,
  devExecutions: 0,
  devSandboxCpuS: 0,
  devWallS: 0,
  policyCpuS: 0,
  frozenCpuS: 0,
  wallS: 0,
}

/** The budget that is used up, if one is. */
export function overBudget(c: RunConfig, t: Totals): 'executions' | 'sandboxS' | 'wallS' | undefined {
  if (c.budget.executions !== undefined && t.executions >= c.budget.executions) return 'executions'
  if (c.budget.sandboxS !== undefined && t.sandboxCpuS >= c.budget.sandboxS) return 'sandboxS'
  if (c.budget.wallS !== undefined && t.wallS >= c.budget.wallS) return 'wallS'
  return undefined
}

const verdictsOf = (o: StepOutcome): Verdict[] =>
  o.trajectories.flatMap((t) => t.turns.flatMap((x) => (x.shadow ? [x.verdict, x.shadow] : [x.verdict])))

/** With a step's costs. */
export function add(t: Totals, o: StepOutcome, u: UpdateReport): Totals {
  const verdicts = verdictsOf(o)
  const sum = (f: (c: Cost) => number): number => verdicts.reduce((s, v) => s + f(v.cost), 0)
  return {
    ...t,
    executions: t.executions + sum((c) => c.executions),
    attemptsExecuted: t.attemptsExecuted + verdicts.filter((v) => v.source === 'executed').length,
    predictions: t.predictions + verdicts.filter((v) => v.source === 'predicted').length,
    sandboxCpuS: t.sandboxCpuS + sum((c) => c.sandboxCpuS),
    sandboxWallS: t.sandboxWallS + sum((c) => c.sandboxWallS),
    sampledTokens: t.sampledTokens + o.trajectories.reduce((s, x) => s + x.mask.reduce((a, b) => a + b, 0), 0),
    predictedTokens: t.predictedTokens + sum((c) => c.predictedTokens),
    trainedTokens: t.trainedTokens + (u.step ? o.data.reduce((s, x) => s + x.datum.tokens.length, 0) : 0),
    optimiserSteps: t.optimiserSteps + (u.step?.applied ? 1 : 0),
  }
}

export async function timed(
  now: () => number,
  result: Promise<DevResult>,
): Promise<DevResult & { readonly wallS: number }> {
  const t0 = now()
  return { ...(await result), wallS: (now() - t0) / 1000 }
}

export const addDev = (t: Totals, dev: Awaited<ReturnType<typeof timed>>): Totals => ({
  ...t,
  devExecutions: t.devExecutions + dev.executions,
  devSandboxCpuS: t.devSandboxCpuS + dev.sandboxCpuS,
  devWallS: t.devWallS + dev.wallS,
})
