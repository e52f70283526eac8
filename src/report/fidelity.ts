import type { Belief, OutcomeKind, Verdict } from '../core/index.ts'
import { mean, spearman } from './stats.ts'

/** The same program predicted and executed. */
export interface FidelityPair {
  readonly task: string
  readonly step: number
  /** Within its step; programs of no group are in no group's correlation. */
  readonly group?: number
  readonly predicted: Verdict
  readonly executed: Verdict
}

export interface Fidelity {
  readonly n: number
  /** Pairs that one side could not score. */
  readonly unscorable: number
  /** Share where the most probable end is the real one, and what always naming the most frequent end would give. */
  readonly outcomeAccuracy: number | null
  readonly majority: number | null
  /** Means over tasks; a task whose predictions or outcomes are constant has no correlation and is counted apart. */
  readonly spearmanWithinTask: number | null
  readonly spearmanAmongValid: number | null
  readonly tasksWithoutCorrelation: number
  /** Mean over groups: what an advantage within a group can learn from. Groups without one are counted apart. */
  readonly spearmanWithinGroup: number | null
  readonly groupsWithoutCorrelation: number
  readonly signedR2: number | null
  readonly mae: number | null
  readonly bias: number | null
  /** Expected calibration error of P(valid), ten bins. */
  readonly ece: number | null
  readonly curve: readonly { readonly predicted: number; readonly executed: number; readonly n: number }[]
  readonly byTask: readonly {
    readonly task: string
    readonly n: number
    /** Predictions that could not be read; the executions of those are in no other figure. */
    readonly unread: number
    readonly spearman: number | null
    readonly mae: number | null
  }[]
  /** Means of the tasks' correlations: what the world model was taught much of, and what little. */
  readonly bySuite: readonly { readonly suite: string; readonly tasks: number; readonly spearman: number | null }[]
  readonly byThird: readonly {
    readonly third: number
    readonly n: number
    readonly spearman: number | null
    readonly mae: number | null
  }[]
}

interface Row {
  readonly task: string
  readonly step: number
  readonly group: string | undefined
  readonly w: number
  readonly r: number
  readonly kind: OutcomeKind
  readonly guess: OutcomeKind
  readonly pValid: number
}

function row(p: FidelityPair): Row | undefined {
  if ('unscorable' in p.predicted || 'unscorable' in p.executed) return undefined
  if (p.predicted.source !== 'predicted' || p.executed.source !== 'executed') return undefined
  const mass = kindMass(p.predicted.belief)
  const guess = [...mass].reduce((a, b) => (b[1] > a[1] ? b : a))[0]
  return {
    task: p.task,
    step: p.step,
    group: p.group === undefined ? undefined : `${p.step}/${p.group}`,
    w: p.predicted.score,
    r: p.executed.score,
    kind: p.executed.outcome.kind,
    guess,
    pValid: mass.get('graded') ?? 0,
  }
}

function kindMass(b: Belief): Map<OutcomeKind, number> {
  const out = new Map<OutcomeKind, number>()
  for (const a of b.alternatives) out.set(a.kind, (out.get(a.kind) ?? 0) + a.p)
  return out
}

export function fidelity(pairs: readonly FidelityPair[]): Fidelity {
  const rows = pairs.map(row).filter((r): r is Row => r !== undefined)
  const none = {
    n: 0,
    unscorable: pairs.length,
    outcomeAccuracy: null,
    majority: null,
    spearmanWithinTask: null,
    spearmanAmongValid: null,
    tasksWithoutCorrelation: 0,
    spearmanWithinGroup: null,
    groupsWithoutCorrelation: 0,
    signedR2: null,
    mae: null,
    bias: null,
    ece: null,
    curve: [],
    byTask: [],
    bySuite: [],
    byThird: [],
  }
  if (rows.length === 0) return none
  const tasks = [...new Set(rows.map((r) => r.task))].sort()
  const within = tasks.map((t) => rank(rows.filter((r) => r.task === t)))
  const valid = tasks.map((t) => rank(rows.filter((r) => r.task === t && r.kind === 'graded')))
  const groups = [...new Set(rows.flatMap((r) => r.group ?? []))].map((g) => rank(rows.filter((r) => r.group === g)))
  const some = (x: readonly (number | undefined)[]): number | null => {
    const k = x.filter((v): v is number => v !== undefined)
    return k.length ? mean(k) : null
  }
  const counts = new Map<string, number>()
  for (const r of rows) counts.set(r.kind, (counts.get(r.kind) ?? 0) + 1)
  const last = Math.max(...rows.map((r) => r.step))
  const third = (r: Row): number => Math.min(2, Math.floor((3 * Math.max(0, r.step - 1)) / Math.max(1, last)))
  return {
    n: rows.length,
    unscorable: pairs.length - rows.length,
    outcomeAccuracy: mean(rows.map((r) => (r.kind === r.guess ? 1 : 0))),
    majority: Math.max(...counts.values()) / rows.length,
    spearmanWithinTask: some(within),
    spearmanAmongValid: some(valid),
    tasksWithoutCorrelation: within.filter((v) => v === undefined).length,
    spearmanWithinGroup: some(groups),
    groupsWithoutCorrelation: groups.filter((v) => v === undefined).length,
    signedR2: r2(rows),
    mae: mean(rows.map((r) => Math.abs(r.w - r.r))),
    bias: mean(rows.map((r) => r.w - r.r)),
    ece: calibrationError(rows),
    curve: curve(rows),
    byTask: [...new Set(pairs.map((p) => p.task))].sort().map((t) => {
      const mine = rows.filter((r) => r.task === t)
      return {
        task: t,
        n: mine.length,
        unread: pairs.filter((p) => p.task === t && 'unscorable' in p.predicted).length,
        spearman: within[tasks.indexOf(t)] ?? null,
        mae: mine.length > 0 ? mean(mine.map((r) => Math.abs(r.w - r.r))) : null,
      }
    }),
    bySuite: [...new Set(tasks.map(suiteOf))].sort().map((suite) => {
      const mine = within.filter((_, i) => suiteOf(tasks[i]!) === suite)
      return { suite, tasks: mine.length, spearman: some(mine) }
    }),
    byThird: [0, 1, 2].map((k) => {
      const mine = rows.filter((r) => third(r) === k)
      return {
        third: k + 1,
        n: mine.length,
        spearman: some(tasks.map((t) => rank(mine.filter((r) => r.task === t)))),
        mae: mine.length ? mean(mine.map((r) => Math.abs(r.w - r.r))) : null,
      }
    }),
  }
}

const rank = (rows: readonly Row[]): number | undefined =>
  spearman(
    rows.map((r) => r.w),
    rows.map((r) => r.r),
  )

/** sign(S_wr) S_wr^2 / (S_ww S_rr) of within-task centred scores. */
function r2(rows: readonly Row[]): number | null {
  let ww = 0
  let rr = 0
  let wr = 0
  for (const t of new Set(rows.map((r) => r.task))) {
    const mine = rows.filter((r) => r.task === t)
    const mw = mean(mine.map((r) => r.w))
    const mr = mean(mine.map((r) => r.r))
    for (const r of mine) {
      ww += (r.w - mw) ** 2
      rr += (r.r - mr) ** 2
      wr += (r.w - mw) * (r.r - mr)
    }
  }
  return ww < 1e-9 || rr < 1e-9 ? null : (Math.sign(wr) * wr * wr) / (ww * rr)
}

function calibrationError(rows: readonly Row[]): number {
  let sum = 0
  for (let b = 0; b < 10; b++) {
    const mine = rows.filter((r) => Math.min(9, Math.floor(r.pValid * 10)) === b)
    if (mine.length)
      sum +=
        (mine.length / rows.length) *
        Math.abs(mean(mine.map((r) => r.pValid)) - mean(mine.map((r) => (r.kind === 'graded' ? 1 : 0))))
  }
  return sum
}

function curve(rows: readonly Row[]): Fidelity['curve'] {
  return Array.from({ length: 10 }, (_, b) => rows.filter((r) => Math.min(9, Math.floor(r.w * 10)) === b))
    .filter((m) => m.length > 0)
    .map((m) => ({ predicted: mean(m.map((r) => r.w)), executed: mean(m.map((r) => r.r)), n: m.length }))
}

/** Of `builtin/spam-mail`. */
const suiteOf = (task: string): string => task.split('/')[0]!
