import { averageRanks, rankCorrelation } from '../core/index.ts'
import type { MetricName } from '../tasks/index.ts'

/**
 * The metrics of the built-in suite in double precision. Inputs were checked before (finite, ranges, labels), so these are
 * plain formulas; each equals the recorded golden value to 1e-9. Truth and prediction have one entry a row.
 */

const mean = (x: readonly number[]): number => x.reduce((a, b) => a + b, 0) / x.length

function meanOf(n: number, f: (i: number) => number): number {
  let s = 0
  for (let i = 0; i < n; i++) s += f(i)
  return s / n
}

export const rmse = (y: readonly number[], p: readonly number[]): number =>
  Math.sqrt(meanOf(y.length, (i) => (y[i]! - p[i]!) ** 2))
export const mae = (y: readonly number[], p: readonly number[]): number =>
  meanOf(y.length, (i) => Math.abs(y[i]! - p[i]!))
export const mape = (y: readonly number[], p: readonly number[]): number =>
  100 * meanOf(y.length, (i) => Math.abs(y[i]! - p[i]!) / Math.abs(y[i]!))
export const rmsle = (y: readonly number[], p: readonly number[]): number =>
  Math.sqrt(meanOf(y.length, (i) => (Math.log1p(p[i]!) - Math.log1p(y[i]!)) ** 2))

export function r2(y: readonly number[], p: readonly number[]): number {
  const m = mean(y)
  let sse = 0
  let sst = 0
  for (let i = 0; i < y.length; i++) {
    sse += (y[i]! - p[i]!) ** 2
    sst += (y[i]! - m) ** 2
  }
  return 1 - sse / sst
}

/** In percent; a 0/0 term counts 0. */
export const smape = (y: readonly number[], p: readonly number[]): number =>
  100 *
  meanOf(y.length, (i) => {
    const d = Math.abs(y[i]!) + Math.abs(p[i]!)
    return d === 0 ? 0 : (2 * Math.abs(y[i]! - p[i]!)) / d
  })

/** Predictions are floored at 1e-9. */
export const poissonDeviance = (y: readonly number[], p: readonly number[]): number =>
  2 *
  meanOf(y.length, (i) => {
    const q = Math.max(p[i]!, 1e-9)
    return (y[i]! > 0 ? y[i]! * Math.log(y[i]! / q) : 0) - y[i]! + q
  })

/** Pearson correlation of average ranks; 0 where either side is constant. */
export const spearman = (y: readonly number[], p: readonly number[]): number => rankCorrelation(y, p) ?? 0

export function auc(y: readonly number[], p: readonly number[]): number {
  const r = averageRanks(p)
  let sum = 0
  let n1 = 0
  for (let i = 0; i < y.length; i++) {
    if (y[i] === 1) {
      sum += r[i]!
      n1++
    }
  }
  return (sum - (n1 * (n1 + 1)) / 2) / (n1 * (y.length - n1))
}

/** Probabilities are clipped to [1e-15, 1-1e-15]. */
export const logLoss = (y: readonly number[], p: readonly number[]): number =>
  -meanOf(y.length, (i) => {
    const q = Math.min(1 - 1e-15, Math.max(1e-15, p[i]!))
    return y[i]! * Math.log(q) + (1 - y[i]!) * Math.log(1 - q)
  })

export const brier = (y: readonly number[], p: readonly number[]): number =>
  meanOf(y.length, (i) => (y[i]! - p[i]!) ** 2)

/** Step-wise area under precision-recall; tied scores enter together. */
export function averagePrecision(y: readonly number[], p: readonly number[]): number {
  const o = p.map((_, i) => i).sort((a, b) => p[b]! - p[a]! || a - b)
  const positives = y.reduce((a, b) => a + b, 0)
  let tp = 0
  let lastRecall = 0
  let area = 0
  for (let i = 0; i < o.length; i++) {
    tp += y[o[i]!]!
    if (i + 1 < o.length && p[o[i + 1]!] === p[o[i]!]) continue
    const recall = tp / positives
    area += (recall - lastRecall) * (tp / (i + 1))
    lastRecall = recall
  }
  return area
}

/** Share of positives inside the top fifth by score; a tie at the cut counts fractionally. */
export function captureAt20(y: readonly number[], p: readonly number[]): number {
  const k = Math.max(1, roundHalfEven(0.2 * y.length))
  const cut = [...p].sort((a, b) => b - a)[k - 1]!
  let above = 0
  let inside = 0
  let tieHits = 0
  let ties = 0
  for (let i = 0; i < y.length; i++) {
    if (p[i]! > cut) {
      above++
      inside += y[i]!
    } else if (p[i] === cut) {
      ties++
      tieHits += y[i]!
    }
  }
  return (inside + (k - above) * (tieHits / ties)) / y.reduce((a, b) => a + b, 0)
}

export const accuracy = (y: readonly string[], p: readonly string[]): number =>
  meanOf(y.length, (i) => (y[i] === p[i] ? 1 : 0))

function perClass(y: readonly string[], p: readonly string[]) {
  const t = new Map<string, { tp: number; truth: number; pred: number }>()
  const at = (c: string) => {
    let e = t.get(c)
    if (!e) {
      e = { tp: 0, truth: 0, pred: 0 }
      t.set(c, e)
    }
    return e
  }
  for (let i = 0; i < y.length; i++) {
    at(y[i]!).truth++
    at(p[i]!).pred++
    if (y[i] === p[i]) at(y[i]!).tp++
  }
  return t
}

/** Mean recall over the classes that occur in the truth. */
export function balancedAccuracy(y: readonly string[], p: readonly string[]): number {
  return mean([...perClass(y, p).values()].filter((e) => e.truth > 0).map((e) => e.tp / e.truth))
}

/** Over the union of true and predicted classes. */
export function macroF1(y: readonly string[], p: readonly string[]): number {
  return mean([...perClass(y, p).values()].map((e) => (2 * e.tp) / (e.truth + e.pred)))
}

/** F1 of class "1". */
export function f1(y: readonly string[], p: readonly string[]): number {
  const e = perClass(y, p).get('1')
  return e && e.truth + e.pred > 0 ? (2 * e.tp) / (e.truth + e.pred) : 0
}

/** Matthews correlation of classes "0" and "1"; 0 where a margin is empty. */
export function mcc(y: readonly string[], p: readonly string[]): number {
  let tp = 0
  let tn = 0
  let fp = 0
  let fn = 0
  for (let i = 0; i < y.length; i++) {
    if (y[i] === '1') p[i] === '1' ? tp++ : fn++
    else p[i] === '1' ? fp++ : tn++
  }
  const d = Math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
  return d === 0 ? 0 : (tp * tn - fp * fn) / d
}

/** Quadratic weighted kappa on integer grades. */
export function qwk(y: readonly number[], p: readonly number[]): number {
  const all = [...y, ...p]
  const lo = Math.min(...all)
  const n = Math.max(...all) - lo + 1
  if (n === 1) return 0
  const row = new Array<number>(n).fill(0)
  const col = new Array<number>(n).fill(0)
  let observed = 0
  for (let i = 0; i < y.length; i++) {
    row[y[i]! - lo]!++
    col[p[i]! - lo]!++
    observed += (y[i]! - p[i]!) ** 2
  }
  let expected = 0
  for (let i = 0; i < n; i++) for (let j = 0; j < n; j++) expected += (row[i]! * col[j]! * (i - j) ** 2) / y.length
  return expected === 0 ? 0 : 1 - observed / expected
}

/** Harrell's: usable pairs have the shorter time observed as an event; equal risks count one half. */
export function cindex(y: readonly number[], p: readonly number[], event: readonly number[]): number {
  let num = 0
  let den = 0
  for (let i = 0; i < y.length; i++) {
    if (event[i] !== 1) continue
    for (let j = 0; j < y.length; j++) {
      if (!(y[j]! > y[i]!)) continue
      den++
      if (p[j]! < p[i]!) num++
      else if (p[j] === p[i]) num += 0.5
    }
  }
  return num / den
}

/** `truth` indexes the class columns; rows are clipped at 1e-15, then renormalised. */
export const mcLogLoss = (truth: readonly number[], p: readonly (readonly number[])[]): number =>
  -meanOf(truth.length, (i) => {
    const row = p[i]!.map((v) => Math.max(v, 1e-15))
    return Math.log(row[truth[i]!]! / row.reduce((a, b) => a + b, 0))
  })

const guesses = (cell: string): string[] => [...new Set(cell.split(/\s+/).filter((g) => g !== ''))].slice(0, 3)

/** Guesses are separated by spaces, best first; repeated ones count once. */
export const mapAt3 = (y: readonly string[], p: readonly string[]): number =>
  meanOf(y.length, (i) => {
    const k = guesses(p[i]!).indexOf(y[i]!)
    return k < 0 ? 0 : 1 / (k + 1)
  })

/** Among the first three words as written (repeats are not removed). */
export const top3Accuracy = (y: readonly string[], p: readonly string[]): number =>
  meanOf(y.length, (i) =>
    p[i]!.split(/\s+/)
      .filter((g) => g !== '')
      .slice(0, 3)
      .includes(y[i]!)
      ? 1
      : 0,
  )

/** Mean over target columns of the column's root mean squared error; one row a test row. */
export function mcrmse(y: readonly (readonly number[])[], p: readonly (readonly number[])[]): number {
  const k = y[0]?.length ?? 0
  return meanOf(k, (c) => Math.sqrt(meanOf(y.length, (i) => (y[i]![c]! - p[i]![c]!) ** 2)))
}

/** Python's and IEEE's rounding. */
export function roundHalfEven(x: number): number {
  const f = Math.floor(x)
  const d = x - f
  if (d !== 0.5) return Math.round(x)
  return f % 2 === 0 ? f : f + 1
}

/** Truth and prediction of a submission after its check, in the answers' order. */
export interface Aligned {
  /** One array a submission column (value, prob, label, topk: one; proba and multi: several). */
  readonly predicted: readonly (readonly string[])[]
  /** One array a target column. */
  readonly truth: readonly (readonly string[])[]
  readonly event?: readonly string[]
  readonly classes: readonly string[]
}

/** Evaluates a metric by name; the result may be non-finite where the truth is degenerate (the caller calls that a fault). */
export function evaluate(metric: MetricName, a: Aligned): number {
  const num = (x: readonly string[]): number[] => x.map(Number)
  const y0 = a.truth[0]!
  const p0 = a.predicted[0]!
  const onNumbers: Partial<Record<MetricName, (y: readonly number[], p: readonly number[]) => number>> = {
    rmse,
    rmsle,
    mae,
    r2,
    mape,
    smape,
    spearman,
    auc,
    brier,
    qwk,
    poisson_deviance: poissonDeviance,
    log_loss: logLoss,
    average_precision: averagePrecision,
    capture_at_20: captureAt20,
  }
  const onLabels: Partial<Record<MetricName, (y: readonly string[], p: readonly string[]) => number>> = {
    accuracy,
    f1,
    mcc,
    balanced_accuracy: balancedAccuracy,
    macro_f1: macroF1,
    map_at_3: mapAt3,
    top3_accuracy: top3Accuracy,
  }
  const numeric = onNumbers[metric]
  if (numeric) return numeric(num(y0), num(p0))
  const labelled = onLabels[metric]
  if (labelled) return labelled(y0, p0)
  const rows = (cols: readonly (readonly string[])[]): number[][] => y0.map((_, i) => cols.map((c) => Number(c[i])))
  switch (metric) {
    case 'cindex':
      return cindex(num(y0), num(p0), num(a.event ?? []))
    case 'mc_log_loss':
      return mcLogLoss(
        y0.map((c) => a.classes.indexOf(c)),
        rows(a.predicted),
      )
    case 'mcrmse':
      return mcrmse(rows(a.truth), rows(a.predicted))
    default:
      throw new RangeError(`no metric ${metric}`)
  }
}
