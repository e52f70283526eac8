import { keyed, TaskError } from '../core/index.ts'
import { type BoardStore, position } from '../grading/index.ts'
import type { Task, TaskCard } from '../tasks/index.ts'
import { MULTI_TARGET, NEEDS_DENSE, NO_PROBABILITY, TAKES_MISSING, WANTS_SCALE } from './grammar/families.ts'
import { renderSpec } from './grammar/render.ts'
import { modalityOf, sampleSpec } from './grammar/sample.ts'
import {
  type Family,
  isClassKind,
  type ModelChoice,
  type OutputForm,
  type Spec,
  type TableView,
  type TargetForm,
  type View,
} from './grammar/spec.ts'
import { type ProgramScorer, pool } from './score-program.ts'

/** How a portable program reads each kind of files. */
interface Habit {
  readonly name: string
  readonly encoding: TableView['encoding']
  readonly vector: 'longchar' | 'bigram' | 'word'
  readonly picture: 'hog' | 'hograw' | 'raw'
  readonly series: 'both' | 'fft'
}
const HABITS: readonly Habit[] = [
  { name: 'a', encoding: 'dummies', vector: 'longchar', picture: 'hog', series: 'both' },
  { name: 'b', encoding: 'codes', vector: 'bigram', picture: 'hograw', series: 'both' },
  { name: 'c', encoding: 'target', vector: 'word', picture: 'raw', series: 'fft' },
]

type Args = readonly (readonly [string, string])[]
/** A model under one name for every task: what it is where a number is predicted, and where a class is. */
interface PortableModel {
  readonly name: string
  readonly regress: readonly [Family, Args]
  readonly classify: readonly [Family, Args]
  readonly scale?: 'standard' | 'quantile'
  readonly with?: string
}
const same = (name: string, family: Family, args: Args): PortableModel => ({
  name,
  regress: [family, args],
  classify: [family, args],
})
const linear = (name: string, alpha: string, c: string, scale?: 'quantile'): PortableModel => ({
  name,
  regress: ['ridge', [['alpha', alpha]]],
  classify: [
    'logistic',
    [
      ['C', c],
      ['max_iter', '1000'],
    ],
  ],
  ...(scale ? { scale } : {}),
})
const args = (...pairs: string[]): Args => pairs.map((p) => p.split('=') as [string, string])

const MODELS: readonly PortableModel[] = [
  linear('linear', '1', '1'),
  linear('linear-strong', '10', '0.1'),
  linear('linear-weak', '0.1', '10'),
  linear('linear-ranked', '1', '1', 'quantile'),
  same('svm-3', 'svm', args('C=3')),
  same('svm-30', 'svm', args('C=30')),
  same('knn-10', 'knn', args('n_neighbors=10', 'weights="distance"')),
  same('knn-30', 'knn', args('n_neighbors=30', 'weights="distance"')),
  same('tree-6', 'tree', args('max_depth=6')),
  same('forest-100', 'forest', args('n_estimators=100')),
  same('forest-300', 'forest', args('n_estimators=300', 'min_samples_leaf=2', 'max_features=0.3')),
  same('forest-200', 'forest', args('n_estimators=200', 'min_samples_leaf=5', 'max_features=0.5')),
  same('extra-300', 'extra', args('n_estimators=300', 'min_samples_leaf=2', 'max_features=0.5')),
  same('extra-200', 'extra', args('n_estimators=200')),
  same('boosting-200', 'boosting', args('n_estimators=200')),
  same('boosting-300', 'boosting', args('n_estimators=300', 'learning_rate=0.05', 'max_depth=4', 'subsample=0.5')),
  same('histboost-200', 'histboost', args('max_iter=200', 'learning_rate=0.05', 'max_leaf_nodes=15')),
  same('histboost-100', 'histboost', args('max_iter=100')),
  same('lightgbm-200', 'lightgbm', args('n_estimators=200', 'learning_rate=0.05', 'num_leaves=15')),
  same('lightgbm-400', 'lightgbm', args('n_estimators=400', 'learning_rate=0.02', 'colsample_bytree=0.5')),
  same('lightgbm-300', 'lightgbm', args('n_estimators=300', 'learning_rate=0.05', 'num_leaves=7')),
  // No early stopping: scikit-learn 1.7 cannot hold out rows of text labels.
  same('mlp', 'mlp', args('hidden_layer_sizes=(100, 50)', 'alpha=0.1', 'max_iter=400')),
  { ...same('lightgbm+extra', 'lightgbm', args('n_estimators=200', 'learning_rate=0.05')), with: 'extra-200' },
  { ...same('forest+linear', 'forest', args('n_estimators=200', 'min_samples_leaf=2')), with: 'linear' },
]

/** A program under one name for every task: the same model and habits, written for the task's files and submission. */
export interface PortableProgram {
  readonly name: string
  spec(card: TaskCard): Spec
}

/** The fixed programs that the head-room is measured against, from the plain to the elaborate. */
export function portablePrograms(): PortableProgram[] {
  return MODELS.flatMap((m) =>
    HABITS.map((h) => ({ name: `${m.name}/${h.name}`, spec: (card) => portable(card, m, h) })),
  )
}

const RANKS_ONLY = new Set(['auc', 'average_precision', 'capture_at_20'])

function portable(card: TaskCard, m: PortableModel, h: Habit): Spec {
  const kind = card.submission.kind
  const regress = kind === 'value' || kind === 'multi' || card.metric.name === 'qwk'
  const task = regress ? 'regress' : 'classify'
  const probabilities = kind === 'proba' || (kind === 'prob' && !RANKS_ONLY.has(card.metric.name))
  const choose = (x: PortableModel): ModelChoice => {
    let [family, a] = x[task]
    // Where a model cannot give what the task asks for, the nearest that can stands in.
    if (task === 'classify' && (probabilities || x !== m) && NO_PROBABILITY.has(family))
      [family, a] = MODELS[0]!.classify
    if (kind === 'multi' && !MULTI_TARGET.has(family)) [family, a] = MODELS[9]!.regress
    return { family, task, args: a }
  }
  const model = choose(m)
  const partner = kind === 'multi' ? undefined : MODELS.find((x) => x.name === m.with)
  const view = viewOf(card, model.family, h)
  const sparse = view.kind === 'text' && !view.svd
  const scale = WANTS_SCALE.has(model.family) && !sparse ? [{ kind: m.scale ?? ('standard' as const) }] : []
  return {
    view,
    steps: scale,
    model,
    ...(partner ? { second: choose(partner), combine: 'vote' as const } : {}),
    ...formOf(card, model, !partner),
  }
}

function viewOf(card: TaskCard, family: Family, h: Habit): View {
  switch (modalityOf(card)) {
    case 'text':
      return NEEDS_DENSE.has(family) ||
        ['forest', 'extra', 'lightgbm', 'boosting', 'svm', 'mlp', 'tree'].includes(family)
        ? { kind: 'text', vector: h.vector, svd: 60 }
        : { kind: 'text', vector: h.vector }
    case 'image':
      return { kind: 'image', features: h.picture }
    case 'series':
      return { kind: 'series', features: h.series }
    case 'table': {
      const cats = card.columns.some((c) => c.type === 'category')
      const gaps = card.columns.some((c) => c.missing) && !TAKES_MISSING.has(family)
      const several = (card.submission.classes?.length ?? 0) > 2 || card.submission.kind === 'multi'
      const encoding = h.encoding === 'target' && several ? 'count' : h.encoding
      return { kind: 'table', dates: 'parts', encoding: cats ? encoding : 'raw', fill: gaps ? 'median' : 'none' }
    }
  }
}

/** The target's form and the output that the metric calls for. */
function formOf(card: TaskCard, model: ModelChoice, plain: boolean): { target: TargetForm; output: OutputForm } {
  const { kind } = card.submission
  const metric = card.metric.name
  if (metric === 'cindex') return { target: 'hazard', output: { kind: 'predict' } }
  if (kind === 'value') {
    const relative = ['rmsle', 'mape', 'smape'].includes(metric) && card.target.positive
    if (relative) return { target: 'log', output: { kind: 'predict' } }
    return { target: 'raw', output: { kind: metric === 'rmsle' ? 'clip' : 'predict' } }
  }
  if (kind === 'multi') return { target: 'raw', output: { kind: 'predict' } }
  if (model.task === 'regress') return { target: 'raw', output: { kind: kind === 'prob' ? 'predict' : 'round' } }
  const noProbability = NO_PROBABILITY.has(model.family) && plain
  if (isClassKind(kind) && kind === 'label') {
    if (!noProbability && ['f1', 'mcc', 'balanced_accuracy', 'macro_f1'].includes(metric))
      return card.submission.classes?.length === 2
        ? { target: 'raw', output: { kind: 'threshold', at: '0.3' } }
        : { target: 'raw', output: { kind: 'prior' } }
    return { target: 'raw', output: { kind: 'predict' } }
  }
  return { target: 'raw', output: { kind: noProbability ? 'decision' : 'proba' } }
}

export interface HeadroomTask {
  readonly id: string
  readonly best: number
  readonly bestProgram: string
  readonly programs: number
  readonly valid: number
}

export interface Headroom {
  readonly tasks: readonly HeadroomTask[]
  readonly bestSingle: { readonly program: string; readonly mean: number }
  /** Mean over tasks of the best program's percentile, less the mean of the best single program. */
  readonly gap: number
  /** The portable programs, best first. */
  readonly singles: readonly { readonly program: string; readonly mean: number }[]
}

export interface HeadroomOptions {
  readonly programs: number
  readonly width: number
  readonly scorer: ProgramScorer
  readonly boards: BoardStore
  readonly signal: AbortSignal
  readonly progress?: (done: number, of: number, cached: number) => void
}

/**
 * Executes programs of the grammar on each task: the portable ones under the same name everywhere, then random ones,
 * without mistakes, until there are `programs`. A program that fails has percentile 0; feedback rows, public board.
 */
export async function headroom(tasks: readonly Task[], o: HeadroomOptions): Promise<Headroom> {
  // Without its leaderboard a task has no percentiles: said before anything is executed.
  for (const t of tasks) o.boards.scores(t.ref, 'feedback')
  const jobs = tasks.flatMap((task) => programsFor(task.card, o.programs).map((p) => ({ task, ...p })))
  let done = 0
  let cached = 0
  const trouble = new Map<string, string>()
  const percentiles = await pool(
    jobs.map((j) => async (): Promise<number | null | undefined> => {
      o.signal.throwIfAborted()
      const r = await o.scorer.score(j.task, j.code, ['feedback'], o.signal)
      if (r.kind !== 'unscorable' && r.cached) cached++
      o.progress?.(++done, jobs.length, cached)
      // Trouble of ours is no score: the program leaves the comparison on this task.
      if (r.kind === 'unscorable') {
        trouble.set(j.task.card.id, r.detail)
        return undefined
      }
      if (r.kind === 'failed') return null
      const board = o.boards.scores(j.task.ref, 'feedback')
      return position(r.scores.feedback!, board, j.task.card.metric.higherIsBetter).percentile
    }),
    o.width,
  )
  const rows = jobs.map((j, i) => ({ task: j.task.card.id, name: j.name, p: percentiles[i] }))
  const perTask = tasks.map((t): HeadroomTask => {
    const own = rows.filter((r) => r.task === t.card.id && r.p !== undefined)
    if (own.length === 0)
      throw new TaskError(`${t.card.id}: none of its programs could be executed: ${trouble.get(t.card.id) ?? ''}`)
    const best = own.reduce((a, b) => ((b.p ?? -1) > (a.p ?? -1) ? b : a), own[0]!)
    const valid = own.filter((r) => r.p !== null).length
    return { id: t.card.id, best: best.p ?? 0, bestProgram: best.name, programs: own.length, valid }
  })
  const singles = portablePrograms()
    .slice(0, o.programs)
    .flatMap(({ name }) => {
      const own = rows.filter((r) => r.name === name && r.p !== undefined)
      // What nowhere came to an end has no mean, least of all 0.
      return own.length === 0 ? [] : [{ program: name, mean: own.reduce((s, r) => s + (r.p ?? 0), 0) / own.length }]
    })
    .sort((a, b) => b.mean - a.mean)
  const bestSingle = singles[0]!
  const mean = perTask.reduce((s, t) => s + t.best, 0) / perTask.length
  return { tasks: perTask, bestSingle, gap: mean - bestSingle.mean, singles }
}

/**
 * Programs of a task, each with its name: the portable ones, then random ones until `count` of them differ. Two names may
 * stand for one program where a task leaves no choice.
 */
export function programsFor(card: TaskCard, count: number): { name: string; code: string }[] {
  const out = portablePrograms()
    .slice(0, count)
    .map((p) => ({ name: p.name, code: renderSpec(card, p.spec(card), keyed('headroom', card.id, p.name)) }))
  const seen = new Set(out.map((p) => p.code))
  for (let k = 0; seen.size < count && k < 20 * count; k++) {
    const spec = sampleSpec(card, keyed('headroom', 'random', card.id, k), { careless: 0, bug: 0 })
    const code = renderSpec(card, spec, keyed('headroom', card.id, k))
    if (seen.has(code)) continue
    seen.add(code)
    out.push({ name: `random-${k}`, code })
  }
  return out
}
