import { anchorCount } from '../method/index.ts'
import {
  bills,
  type Fidelity,
  type Interval,
  type JudgedTurn,
  mean,
  meanInterval,
  showBills,
  showInterval,
  summarise,
  verdictOf,
} from '../report/index.ts'
import { methodOf, type RunConfig } from '../train/index.ts'
import type { TrainingReport } from './commands/train.ts'
import type { RecordedRow } from './demo-recording.ts'
import { backboneCard } from './session.ts'

/** Attempts of a held-out sample: those that training had, and one more that reads the result of the one before. */
export const attemptsOf = (trained: number): number => trained + 1

export interface Evaluated {
  /** Null where nothing could be scored, percentile also where nothing was valid: missing is not zero. */
  readonly score: number | null
  readonly valid: number | null
  readonly percentile: number | null
  readonly byTask: readonly { task: string; score: number | null }[]
  /** With one attempt more than training had; feedback chooses. */
  readonly furtherScore: number | null
}
export interface SeedResult {
  readonly seed: number
  readonly run: string
  readonly before: Evaluated
  readonly after: Evaluated
  readonly training: TrainingReport
  readonly fidelity: Fidelity
  readonly control: Evaluated | undefined
  /** Of the programs that training and its dev evaluations executed, the control's too. */
  readonly trainingCpuS: number
}

export interface Fixed {
  readonly name: string
  readonly score: number | null
  readonly percentile: number | null
  readonly byTask: readonly { readonly task: string; readonly score: number | null }[]
  readonly turns: readonly JudgedTurn[]
  readonly rows: readonly RecordedRow[]
}

/**
 * An agent with several attempts keeps the program that feedback favours; a single fixed program has no such choice. Beside
 * it stand so many of the fixed ones, the best on these very tasks, with the same choice by feedback.
 */
export function fixedTogether(fixed: readonly Fixed[], attempts: number): { names: string[]; score: number | null } {
  const best = bestFirst(fixed).slice(0, attempts)
  const all = best.flatMap((f, turn) => f.turns.map((t) => ({ ...t, turn })))
  return { names: best.map((f) => f.name), score: summarise(all).score.mean }
}

const bestFirst = (fixed: readonly Fixed[]): Fixed[] =>
  [...fixed].sort((a, b) => (b.score ?? Number.NEGATIVE_INFINITY) - (a.score ?? Number.NEGATIVE_INFINITY))

/** Seeds without the figure are left out of its mean. */
const known = (x: readonly (number | null)[]): number[] => x.filter((v): v is number => v !== null)
const some = (x: readonly (number | null)[]): number | null => (known(x).length > 0 ? mean(known(x)) : null)
const minus = (a: number | null | undefined, b: number | null | undefined): number | null =>
  typeof a === 'number' && typeof b === 'number' ? a - b : null

/** What a demo's seeds come to, as a document and as text. */
export function present(o: {
  results: readonly SeedResult[]
  fixed: readonly Fixed[]
  sandbox: { cpuS: number; executions: number }
  cpuS: number
  wallS: number
  first: RunConfig
  /** Programs at a time. */
  workers: number
}): { json: object; text: string } {
  const { results: r, fixed } = o
  const over = (f: (s: SeedResult) => number | null): Interval => meanInterval(known(r.map(f)))
  const sum = (f: (s: SeedResult) => number): number => r.reduce((a, s) => a + f(s), 0)
  // One seed: the interval is over tasks; several: over seeds, paired.
  const single = r.length === 1
  const byTask = (s: SeedResult): number[] =>
    known(s.after.byTask.map((t) => minus(t.score, s.before.byTask.find((x) => x.task === t.task)?.score)))
  const before = over((s) => s.before.score)
  const after = over((s) => s.after.score)
  const gain = single ? meanInterval(byTask(r[0]!)) : over((s) => minus(s.after.score, s.before.score))
  const { train } = o.first
  const attempts = attemptsOf(train.turns)
  const further = {
    attempts,
    before: over((s) => s.before.furtherScore),
    after: over((s) => s.after.furtherScore),
    gain: over((s) => minus(s.after.furtherScore, s.before.furtherScore)),
    fixed: fixedTogether(fixed, attempts),
  }
  const bestFixed = bestFirst(fixed)[0]!
  // Over tasks, since a fixed program has no seeds.
  const toFixed = meanInterval(
    known(
      bestFixed.byTask.map(({ task, score }) =>
        minus(some(r.map((s) => s.after.byTask.find((t) => t.task === task)?.score ?? null)), score),
      ),
    ),
  )
  const controls = r.filter((s) => s.control)
  const difference = over((s) => minus(s.after.score, s.control?.score))
  const attemptsExecuted = sum((s) => s.training.totals.attemptsExecuted)
  const executions = sum((s) => s.training.totals.executions)
  const allExecutedEquivalent = train.steps * train.groups * train.groupSize * train.turns * r.length
  const bill = bills(
    {
      attemptsExecuted,
      sandboxCpuS: sum((s) => s.training.totals.sandboxCpuS),
      sandboxWallS: sum((s) => s.training.totals.sandboxWallS),
      policyCpuS: sum((s) => s.training.totals.policyCpuS),
      frozenCpuS: sum((s) => s.training.totals.frozenCpuS),
      wallS: sum((s) => s.training.totals.wallS - s.training.totals.devWallS),
    },
    allExecutedEquivalent,
    o.workers,
  )
  const json = {
    seeds: r.map((s) => s.seed),
    run: r[0]!.run,
    runs: r.map((s) => s.run),
    heldOut: { before, after, gain },
    further,
    valid: { before: some(r.map((s) => s.before.valid)), after: some(r.map((s) => s.after.valid)) },
    percentile: { before: some(r.map((s) => s.before.percentile)), after: some(r.map((s) => s.after.percentile)) },
    fixed: fixed.map(({ name, score, percentile }) => ({ name, score, percentile })),
    toBestFixed: { name: bestFixed.name, difference: toFixed, verdict: verdictOf(toFixed) },
    executions,
    attemptsExecuted,
    predictions: sum((s) => s.training.totals.predictions),
    allExecutedEquivalent,
    sandboxSeconds: { used: bill.executions.used, saved: bill.executions.allExecuted - bill.executions.used },
    bills: bill,
    pretrainingExecutions: (backboneCard()?.executions as { total?: number } | undefined)?.total ?? null,
    fidelity: {
      spearmanWithinTask: some(r.map((s) => s.fidelity.spearmanWithinTask)),
      spearmanAmongValid: some(r.map((s) => s.fidelity.spearmanAmongValid)),
      outcomeAccuracy: some(r.map((s) => s.fidelity.outcomeAccuracy)),
    },
    ...(controls.length
      ? {
          anchorsOnly: {
            score: over((s) => s.control?.score ?? null),
            difference,
            verdict: verdictOf(difference),
            furtherDifference: over((s) => minus(s.after.furtherScore, s.control?.furtherScore)),
          },
        }
      : {}),
    cpuS: o.cpuS,
    wallS: o.wallS,
  }
  const n = (v: number | null): string => (v === null ? '-' : v.toFixed(3))
  const control = json.anchorsOnly
  const text = [
    '',
    `held-out score before ${showInterval(before)}, after ${showInterval(after)}`,
    `gain ${showInterval(gain)} (95 %, ${single ? 'over tasks, one seed' : `paired over ${r.length} seeds`}): ${verdictOf(gain)}`,
    `valid ${n(json.valid.before)} -> ${n(json.valid.after)}, percentile of valid ${n(json.percentile.before)} -> ${n(json.percentile.after)}`,
    ...fixed.map((f) => `  fixed ${f.name.padEnd(9)} score ${n(f.score)}  percentile ${n(f.percentile)}`),
    `the agent minus the best fixed program (${bestFixed.name}) ${showInterval(toFixed)} (over tasks): ${verdictOf(toFixed)}`,
    ...(control
      ? [
          `anchors alone at the same executions ${showInterval(control.score)}; difference ${showInterval(difference)}: ${control.verdict}`,
        ]
      : []),
    `with ${attempts} attempts, the last reading the result before it, feedback chooses:`,
    `  before ${showInterval(further.before)}, after ${showInterval(further.after)}, gain ${showInterval(further.gain)}${single ? '' : `: ${verdictOf(further.gain)}`}`,
    `  ${further.fixed.names.join(' and ')}, feedback chooses ${n(further.fixed.score)}${control ? `; difference to anchors alone ${showInterval(control.furtherDifference)}` : ''}`,
    `training executions ${executions} (attempts judged by execution ${attemptsExecuted}), predictions ${json.predictions}; training on executions alone would have judged ${allExecutedEquivalent}`,
    `saved, by what is billed: ${showBills(bill)}; pre-training of the shipped backbone used ${json.pretrainingExecutions ?? 'an unknown number of'} executions`,
    `world model on the executed groups: rank correlation within a task ${n(json.fidelity.spearmanWithinTask)}, among valid ${n(json.fidelity.spearmanAmongValid)}, outcome accuracy ${n(json.fidelity.outcomeAccuracy)}`,
    `${o.cpuS.toFixed(0)} CPU s, ${o.wallS.toFixed(0)} s of wall time; ${anchorCount(methodOf(o.first).anchors.share, train.groups)} of ${train.groups} groups a step executed`,
    '',
    `run directory ${json.run}`,
    'go on with:',
    `  wmrl fidelity ${json.run}`,
    `  wmrl replay ${json.run}`,
    `  wmrl eval ${json.run} --split dev`,
  ].join('\n')
  return { json, text }
}
