import { anchorCount } from '../method/index.ts'
import {
  type Fidelity,
  type Interval,
  type JudgedTurn,
  mean,
  meanInterval,
  showInterval,
  summarise,
  verdictOf,
} from '../report/index.ts'
import { methodOf, type RunConfig } from '../train/index.ts'
import type { TrainingReport } from './commands/train.ts'
import type { RecordedRow } from './demo-recording.ts'
import { backboneCard } from './session.ts'

/** Attempts of a held-out sample: those that training had, and one more that reads the result of the one before. */
export const ATTEMPTS = (trained: number): number => trained + 1

export interface Evaluated {
  readonly score: number
  readonly valid: number
  readonly percentile: number
  readonly byTask: readonly { task: string; score: number | null }[]
  /** With one attempt more than training had; feedback chooses. */
  readonly furtherScore: number
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
  readonly score: number
  readonly percentile: number
  readonly byTask: readonly { readonly task: string; readonly score: number | null }[]
  readonly turns: readonly JudgedTurn[]
  readonly rows: readonly RecordedRow[]
}

/**
 * An agent with several attempts keeps the program that feedback favours; a single fixed program has no such choice. Beside
 * it stand so many of the fixed ones, the best on these very tasks, with the same choice by feedback.
 */
export function fixedTogether(fixed: readonly Fixed[], attempts: number): { names: string[]; score: number } {
  const best = [...fixed].sort((a, b) => b.score - a.score).slice(0, attempts)
  const all = best.flatMap((f, turn) => f.turns.map((t) => ({ ...t, turn })))
  return { names: best.map((f) => f.name), score: summarise(all).score.mean ?? 0 }
}

/** What a demo's seeds come to, as a document and as text. */
export function present(o: {
  results: readonly SeedResult[]
  fixed: readonly Fixed[]
  sandbox: { cpuS: number; executions: number }
  cpuS: number
  wallS: number
  first: RunConfig
}): { json: object; text: string } {
  const { results: r, fixed } = o
  const over = (f: (s: SeedResult) => number): Interval => meanInterval(r.map(f))
  // One seed: the interval is over tasks; several: over seeds, paired.
  const single = r.length === 1
  const paired = (s: SeedResult): number[] =>
    s.after.byTask.flatMap((t) => {
      const b = s.before.byTask.find((x) => x.task === t.task)
      return t.score === null || !b || b.score === null ? [] : [t.score - b.score]
    })
  const gain = single ? meanInterval(paired(r[0]!)) : over((s) => s.after.score - s.before.score)
  const sum = (f: (s: SeedResult) => number): number => r.reduce((a, s) => a + f(s), 0)
  const { train } = o.first
  const method = methodOf(o.first)
  const perSeedAll = train.steps * train.groups * train.groupSize * train.turns
  const attemptsExecuted = sum((s) => s.training.totals.attemptsExecuted)
  const executions = sum((s) => s.training.totals.executions)
  const used = sum((s) => s.training.totals.sandboxCpuS)
  const allExecutedEquivalent = perSeedAll * r.length
  const saved = executions > 0 ? (used / Math.max(1, attemptsExecuted)) * allExecutedEquivalent - used : 0
  const pretrainingExecutions = Number((backboneCard()?.executions as { total?: number } | undefined)?.total ?? 0)
  const some = (x: readonly (number | null)[]): number | null => {
    const k = x.filter((v): v is number => v !== null)
    return k.length ? mean(k) : null
  }
  const fidelity = {
    spearmanWithinTask: some(r.map((s) => s.fidelity.spearmanWithinTask)),
    spearmanAmongValid: some(r.map((s) => s.fidelity.spearmanAmongValid)),
    outcomeAccuracy: some(r.map((s) => s.fidelity.outcomeAccuracy)),
  }
  const further = {
    attempts: ATTEMPTS(train.turns),
    before: over((s) => s.before.furtherScore),
    after: over((s) => s.after.furtherScore),
    gain: over((s) => s.after.furtherScore - s.before.furtherScore),
    fixed: fixedTogether(fixed, ATTEMPTS(train.turns)),
  }
  const controls = r.filter((s) => s.control)
  const difference = meanInterval(controls.map((s) => s.after.score - s.control!.score))
  const before = over((s) => s.before.score)
  const after = over((s) => s.after.score)
  const bestFixed = [...fixed].sort((a, b) => b.score - a.score)[0]!
  // Over tasks, since a fixed program has no seeds.
  const toFixed = meanInterval(
    bestFixed.byTask.flatMap(({ task, score }) => {
      const mine = r.flatMap((s) => s.after.byTask.find((t) => t.task === task)?.score ?? [])
      return score === null || mine.length === 0 ? [] : [mean(mine) - score]
    }),
  )
  const json = {
    seeds: r.map((s) => s.seed),
    run: r[0]!.run,
    runs: r.map((s) => s.run),
    heldOut: { before, after, gain },
    further,
    valid: { before: mean(r.map((s) => s.before.valid)), after: mean(r.map((s) => s.after.valid)) },
    percentile: { before: mean(r.map((s) => s.before.percentile)), after: mean(r.map((s) => s.after.percentile)) },
    fixed: fixed.map(({ name, score, percentile }) => ({ name, score, percentile })),
    toBestFixed: { name: bestFixed.name, difference: toFixed, verdict: verdictOf(toFixed) },
    executions,
    attemptsExecuted,
    predictions: sum((s) => s.training.totals.predictions),
    allExecutedEquivalent,
    sandboxSeconds: { used, saved },
    pretrainingExecutions,
    fidelity,
    ...(controls.length
      ? {
          anchorsOnly: {
            score: meanInterval(controls.map((s) => s.control!.score)),
            difference,
            verdict: verdictOf(difference),
            furtherDifference: meanInterval(controls.map((s) => s.after.furtherScore - s.control!.furtherScore)),
          },
        }
      : {}),
    cpuS: o.cpuS,
    wallS: o.wallS,
  }
  const n = (v: number | null): string => (v === null ? '-' : v.toFixed(3))
  const text = [
    '',
    `held-out score before ${showInterval(before)}, after ${showInterval(after)}`,
    `gain ${showInterval(gain)} (95 %, ${single ? 'over tasks, one seed' : `paired over ${r.length} seeds`}): ${verdictOf(gain)}`,
    `valid ${n(json.valid.before)} -> ${n(json.valid.after)}, percentile of valid ${n(json.percentile.before)} -> ${n(json.percentile.after)}`,
    ...fixed.map(
      (f) => `  fixed ${f.name.padEnd(9)} score ${f.score.toFixed(3)}  percentile ${f.percentile.toFixed(3)}`,
    ),
    `the agent minus the best fixed program (${bestFixed.name}) ${showInterval(toFixed)} (over tasks): ${verdictOf(toFixed)}`,
    ...(controls.length
      ? [
          `anchors alone at the same executions ${showInterval(json.anchorsOnly!.score)}; difference ${showInterval(difference)}: ${verdictOf(difference)}; with ${further.attempts} attempts ${showInterval(json.anchorsOnly!.furtherDifference)}`,
        ]
      : []),
    `with ${further.attempts} attempts, the last reading the result before it, feedback chooses: before ${showInterval(further.before)}, after ${showInterval(further.after)}, gain ${showInterval(further.gain)}; ${further.fixed.names.join(' and ')}, feedback chooses: ${further.fixed.score.toFixed(3)}`,
    `training executions ${executions} (attempts judged by execution ${attemptsExecuted}), predictions ${json.predictions}; training on executions alone would have judged ${allExecutedEquivalent}`,
    `sandbox ${used.toFixed(0)} CPU s used in training, about ${saved.toFixed(0)} saved; pre-training of the shipped backbone used ${pretrainingExecutions} executions`,
    `world model on the executed groups: rank correlation within a task ${n(fidelity.spearmanWithinTask)}, among valid ${n(fidelity.spearmanAmongValid)}, outcome accuracy ${n(fidelity.outcomeAccuracy)}`,
    `${o.cpuS.toFixed(0)} CPU s, ${o.wallS.toFixed(0)} s of wall time; ${anchorCount(method.anchors.share, train.groups)} of ${train.groups} groups a step executed`,
    '',
    `run directory ${json.run}`,
    'go on with:',
    `  wmrl fidelity ${json.run}`,
    `  wmrl replay ${json.run}`,
    `  wmrl eval ${json.run} --split dev`,
  ].join('\n')
  return { json, text }
}
