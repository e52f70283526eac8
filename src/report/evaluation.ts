import type { Verdict } from '../core/index.ts'
import { type Interval, mean, meanInterval } from './stats.ts'

/** A judged turn of an evaluation, as the ledger keeps it. */
export interface JudgedTurn {
  readonly task: string
  readonly sample: number
  readonly turn: number
  readonly feedback: Verdict
  readonly final: Verdict | undefined
}

export interface Selection {
  readonly score: Interval
  readonly valid: number | null
  /** Mean percentile of the valid ones. */
  readonly percentile: number | null
}

export interface TaskResult {
  readonly task: string
  readonly n: number
  readonly score: number | null
  readonly valid: number | null
  readonly percentile: number | null
}

export interface EvaluationSummary {
  /** Samples with a final score. */
  readonly n: number
  readonly unscorable: number
  /** At the turn that the feedback score would have chosen: the headline. */
  readonly score: Interval
  readonly valid: number | null
  readonly percentile: number | null
  readonly byTask: readonly TaskResult[]
  readonly selection: {
    readonly feedbackChosen: Selection
    readonly lastTurn: Selection
    readonly bestOfTurns: Selection
  }
}

interface Chosen {
  readonly task: string
  readonly score: number
  readonly percentile: number | null
}

const finalScore = (v: Verdict | undefined): number | undefined => (v && !('unscorable' in v) ? v.score : undefined)

/**
 * Summarises an evaluation. Means are over tasks (each task's samples averaged first), and so are the intervals: samples of
 * one task are not independent of each other. The best of turns is an oracle and stands beside, never in front.
 */
export function summarise(turns: readonly JudgedTurn[]): EvaluationSummary {
  const samples = new Map<string, JudgedTurn[]>()
  for (const t of turns) {
    const key = `${t.task}\n${t.sample}`
    samples.set(key, [...(samples.get(key) ?? []), t])
  }
  const picked = { feedbackChosen: [] as Chosen[], lastTurn: [] as Chosen[], bestOfTurns: [] as Chosen[] }
  let unscorable = 0
  for (const list of samples.values()) {
    const ordered = [...list].sort((a, b) => a.turn - b.turn)
    if (ordered.some((t) => 'unscorable' in t.feedback || finalScore(t.final) === undefined)) {
      unscorable++
      continue
    }
    const by = (f: (t: JudgedTurn) => number): JudgedTurn => ordered.reduce((best, t) => (f(t) > f(best) ? t : best))
    picked.feedbackChosen.push(chosen(by((t) => (t.feedback as { score: number }).score)))
    picked.lastTurn.push(chosen(ordered[ordered.length - 1]!))
    picked.bestOfTurns.push(chosen(by((t) => finalScore(t.final)!)))
  }
  const head = picked.feedbackChosen
  const tasks = [...new Set(turns.map((t) => t.task))].sort()
  const selection = {
    feedbackChosen: select(head),
    lastTurn: select(picked.lastTurn),
    bestOfTurns: select(picked.bestOfTurns),
  }
  return {
    n: head.length,
    unscorable,
    score: selection.feedbackChosen.score,
    valid: selection.feedbackChosen.valid,
    percentile: selection.feedbackChosen.percentile,
    byTask: tasks.map((task) => {
      const mine = head.filter((c) => c.task === task)
      const ok = mine.filter((c) => c.percentile !== null)
      return {
        task,
        n: mine.length,
        score: mine.length ? mean(mine.map((c) => c.score)) : null,
        valid: mine.length ? ok.length / mine.length : null,
        percentile: ok.length ? mean(ok.map((c) => c.percentile!)) : null,
      }
    }),
    selection,
  }
}

function chosen(t: JudgedTurn): Chosen {
  const v = t.final as Extract<Verdict, { source: 'executed'; score: unknown }>
  return { task: t.task, score: v.score, percentile: v.outcome.kind === 'graded' ? v.outcome.percentile : null }
}

function select(list: readonly Chosen[]): Selection {
  const tasks = [...new Set(list.map((c) => c.task))]
  const perTask = tasks.map((t) => mean(list.filter((c) => c.task === t).map((c) => c.score)))
  const ok = list.filter((c) => c.percentile !== null)
  return {
    score: meanInterval(perTask),
    valid: list.length ? ok.length / list.length : null,
    percentile: ok.length ? mean(ok.map((c) => c.percentile!)) : null,
  }
}
