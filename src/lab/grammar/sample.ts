import type { Random } from '../../core/index.ts'
import type { TaskCard } from '../../tasks/index.ts'
import {
  CLASSES,
  drawArgs,
  MULTI_TARGET,
  NEEDS_DENSE,
  NO_PROBABILITY,
  TAKES_CATEGORY,
  TAKES_MISSING,
  WANTS_SCALE,
} from './families.ts'
import {
  BUGS,
  type Bug,
  type Family,
  isClassKind,
  type ModelChoice,
  type OutputForm,
  type Spec,
  type Step,
  type TableView,
  type TargetForm,
  type View,
} from './spec.ts'

const RANKING = new Set(['auc', 'average_precision', 'capture_at_20'])
const IMBALANCE = new Set(['balanced_accuracy', 'macro_f1', 'f1', 'mcc'])

const weighted = <T>(r: Random, table: readonly (readonly [T, number])[]): T => {
  let u = r.next() * table.reduce((s, [, w]) => s + w, 0)
  for (const [x, w] of table) {
    u -= w
    if (u < 0) return x
  }
  return table[table.length - 1]![0]
}

export interface SampleOptions {
  /** Chance that a choice ignores what the rest of the program needs (missing cells left to a model that cannot ...). */
  readonly careless?: number
  /** Chance of one of the named mistakes. */
  readonly bug?: number
}

const isTable = (c: TaskCard): boolean => modalityOf(c) === 'table'

/** Which kind of view a task's files call for. */
export function modalityOf(card: TaskCard): View['kind'] {
  if (card.columns.some((c) => c.type === 'series')) return 'series'
  if (card.images || card.pixels) return 'image'
  if (card.columns.some((c) => c.type === 'text')) return 'text'
  return 'table'
}

/** Draws one program of the grammar for a task. */
export function sampleSpec(card: TaskCard, r: Random, opts: SampleOptions = {}): Spec {
  const careless = () => r.next() < (opts.careless ?? 0.06)
  const bug: Bug | undefined = r.next() < (opts.bug ?? 0) ? r.pick(BUGS) : undefined
  const model = drawModel(card, r)
  const view = drawView(card, r, model, careless)
  let second: ModelChoice | undefined
  let combine: Spec['combine']
  if (r.next() < 0.14 && card.submission.kind !== 'multi' && model.family !== 'dummy') {
    const other = drawModel(card, r, model.task)
    const ok = !NO_PROBABILITY.has(other.family) && !NO_PROBABILITY.has(model.family)
    if (other.family !== model.family && other.family !== 'dummy' && (model.task === 'regress' || ok)) {
      second = other
      combine = r.next() < 0.75 ? 'vote' : 'stack'
    }
  }
  const steps = drawSteps(r, view, model, careless, card)
  const target = drawTarget(card, r, model)
  const output = drawOutput(card, r, model, target, careless)
  const spec: Spec = { view, steps, model, target, output }
  return { ...spec, ...(second && combine ? { second, combine } : {}), ...(bug ? { bug } : {}) }
}

function drawModel(card: TaskCard, r: Random, force?: 'regress' | 'classify'): ModelChoice {
  const kind = card.submission.kind
  const metric = card.metric.name
  let task: 'regress' | 'classify'
  if (force) task = force
  else if (kind === 'value' || kind === 'multi') task = metric === 'cindex' && r.next() < 0.5 ? 'classify' : 'regress'
  else if (metric === 'qwk') task = r.next() < 0.55 ? 'regress' : 'classify'
  else if (kind === 'prob' && RANKING.has(metric)) task = r.next() < 0.15 ? 'regress' : 'classify'
  else task = 'classify'
  const m = modalityOf(card)
  const table: [Family, number][] =
    m === 'table'
      ? [
          ['lightgbm', 5],
          ['histboost', 4],
          ['forest', 4],
          ['extra', 3],
          ['boosting', 3],
          ['ridge', 2],
          ['linear', 1],
          ['lasso', 1],
          ['logistic', 3],
          ['svm', 2],
          ['knn', 2],
          ['tree', 2],
          ['bayes', 1],
          ['discriminant', 1],
          ['mlp', 1.5],
          ['pls', 1],
          ['dummy', 0.5],
        ]
      : m === 'text'
        ? [
            ['ridge', 4],
            ['logistic', 5],
            ['linearsvm', 4],
            ['bayes', 3],
            ['svm', 1.5],
            ['knn', 1.5],
            ['lightgbm', 2],
            ['forest', 2],
            ['extra', 1.5],
            ['tree', 1],
            ['histboost', 1],
            ['dummy', 0.5],
          ]
        : [
            ['svm', 5],
            ['logistic', 3],
            ['ridge', 2],
            ['knn', 3],
            ['forest', 3],
            ['extra', 3],
            ['lightgbm', 2],
            ['discriminant', 1.5],
            ['histboost', 1],
            ['mlp', 2],
            ['tree', 1],
            ['bayes', 1],
            ['pls', 1],
            ['linear', 1],
            ['dummy', 0.5],
          ]
  const many = (card.submission.classes?.length ?? 0) > 12
  const usable = table.filter(
    ([f]) =>
      CLASSES[f][task] !== undefined &&
      (kind !== 'multi' || MULTI_TARGET.has(f)) &&
      !(many && ['boosting', 'histboost', 'lightgbm'].includes(f) && r.next() < 0.7) &&
      !((kind === 'proba' || (kind === 'prob' && !RANKING.has(metric))) && NO_PROBABILITY.has(f) && r.next() < 0.85),
  )
  const family = weighted(r, usable)
  return drawArgs(r, family, task, {
    balanced: IMBALANCE.has(metric) ? r.next() < 0.45 : r.next() < 0.04,
    loss:
      metric === 'mae'
        ? 'absolute'
        : metric === 'mape' || metric === 'smape'
          ? r.next() < 0.6
            ? 'absolute'
            : 'poisson'
          : undefined,
  })
}

function drawView(card: TaskCard, r: Random, model: ModelChoice, careless: () => boolean): View {
  switch (modalityOf(card)) {
    case 'series':
      return { kind: 'series', features: r.pick(['stats', 'fft', 'both'] as const) }
    case 'image':
      return {
        kind: 'image',
        features:
          card.images === 'png'
            ? r.pick(['raw', 'half', 'hog', 'hograw', 'colour'] as const)
            : r.pick(['raw', 'half', 'hog', 'hograw'] as const),
      }
    case 'text': {
      const vector = weighted(r, [
        ['word', 3],
        ['bigram', 2],
        ['char', 3],
        ['longchar', 2],
        ['count', 1.5],
        ['both', 1.5],
        ['hash', 0.7],
        ['stats', 0.8],
      ] as const)
      const dense = NEEDS_DENSE.has(model.family) && model.family !== 'bayes'
      const svd =
        vector === 'stats'
          ? false
          : dense
            ? !careless()
            : ['forest', 'extra', 'knn', 'lightgbm', 'svm'].includes(model.family)
              ? r.next() < 0.35
              : r.next() < 0.03
      return { kind: 'text', vector, ...(svd ? { svd: r.pick([30, 60, 100]) } : {}) }
    }
    default:
      return drawTable(card, r, model, careless)
  }
}

function drawTable(card: TaskCard, r: Random, model: ModelChoice, careless: () => boolean): TableView {
  const cats = card.columns.some((c) => c.type === 'category')
  const dates = card.columns.some((c) => c.type === 'date')
  const missing = card.columns.some((c) => c.missing)
  const multiclass = isClassKind(card.submission.kind) && (card.submission.classes?.length ?? 0) > 2
  let encoding: TableView['encoding'] = 'raw'
  if (cats || dates) {
    encoding = weighted(r, [
      ['dummies', 4],
      ['codes', 3],
      ['target', multiclass || card.submission.kind === 'multi' ? 0 : 2.5],
      ['category', TAKES_CATEGORY.has(model.family) ? 3 : 0],
      ['count', 1],
      ['numeric', 1],
    ] as const)
    if (careless()) encoding = r.pick(['raw', 'category', 'target'] as const)
  }
  const takes =
    TAKES_MISSING.has(model.family) || (['forest', 'extra', 'tree'].includes(model.family) && r.next() < 0.5)
  let fill: TableView['fill'] = 'none'
  if (missing || (encoding === 'target' && false)) {
    fill = takes
      ? weighted(r, [
          ['none', 4],
          ['median', 1],
          ['zero', 0.5],
          ['neg', 1],
          ['flag', 0.5],
        ] as const)
      : weighted(r, [
          ['median', 4],
          ['zero', 2],
          ['neg', 1],
          ['flag', 1],
        ] as const)
    if (careless()) fill = 'none'
  } else if (r.next() < 0.06) fill = 'median'
  if (
    encoding === 'category' &&
    (fill === 'median' || fill === 'flag' || fill === 'zero' || fill === 'neg') &&
    !careless()
  )
    fill = 'none'
  return {
    kind: 'table',
    dates: dates ? r.pick(['drop', 'number', 'parts', 'parts', 'keep'] as const) : 'keep',
    encoding,
    fill,
    ...(card.modality === 'signal' && !cats && r.next() < 0.4 ? { diff: true } : {}),
  }
}

function drawSteps(r: Random, view: View, model: ModelChoice, careless: () => boolean, card: TaskCard): Step[] {
  const out: Step[] = []
  const sparse = view.kind === 'text' && !view.svd && view.vector !== 'stats'
  const raw =
    view.kind === 'table' &&
    (view.encoding === 'category' ||
      (view.encoding === 'raw' && card.columns.some((c) => c.type === 'category' || c.type === 'date')))
  if (sparse || raw) return out
  const wants = WANTS_SCALE.has(model.family)
  if (wants ? r.next() < 0.8 : r.next() < 0.05) {
    out.push({
      kind: weighted(r, [
        ['standard', 5],
        ['minmax', 1],
        ['quantile', 1.5],
      ] as const),
    })
  }
  const gaps = view.kind === 'table' && view.fill === 'none' && card.columns.some((c) => c.missing)
  if (gaps && !careless()) return out
  if (view.kind === 'image' && r.next() < 0.3) out.push({ kind: 'pca', n: r.pick([20, 40, 80]) })
  else if (
    view.kind === 'table' &&
    isTable(card) &&
    ['ridge', 'lasso', 'logistic', 'linear'].includes(model.family) &&
    card.columns.length <= 15 &&
    r.next() < 0.2
  )
    out.push({ kind: 'poly' })
  else if (r.next() < 0.04) out.push({ kind: 'kbest', n: r.pick([5, 10, 20]) })
  return out
}

function drawTarget(card: TaskCard, r: Random, model: ModelChoice): TargetForm {
  if (card.metric.name === 'cindex')
    return model.task === 'classify' ? 'event' : r.pick(['hazard', 'negtime', 'negtime'] as const)
  if (model.task !== 'regress' || card.submission.kind !== 'value') return 'raw'
  if (!card.target.positive) return 'raw'
  const relative = ['rmsle', 'mape', 'smape', 'spearman'].includes(card.metric.name)
  if (card.metric.name === 'spearman' && r.next() < 0.25) return 'rank'
  if (r.next() < (relative ? 0.6 : card.target.skewed ? 0.35 : 0.1)) return r.next() < 0.85 ? 'log' : 'sqrt'
  return 'raw'
}

function drawOutput(
  card: TaskCard,
  r: Random,
  model: ModelChoice,
  target: TargetForm,
  careless: () => boolean,
): OutputForm {
  const kind = card.submission.kind
  const metric = card.metric.name
  if (kind === 'value' || kind === 'multi') {
    if (metric === 'cindex')
      return {
        kind:
          model.task === 'classify'
            ? NO_PROBABILITY.has(model.family) && !careless()
              ? 'decision'
              : 'proba'
            : 'predict',
      }
    if (metric === 'rmsle' && target === 'raw')
      return { kind: careless() ? 'predict' : r.next() < 0.6 ? 'clip' : 'predict' }
    return { kind: r.next() < 0.08 && card.target.positive ? 'clip' : 'predict' }
  }
  if (model.task === 'regress')
    return kind === 'prob' ? { kind: 'predict' } : { kind: careless() ? 'predict' : 'round' }
  const noProbability = NO_PROBABILITY.has(model.family)
  if (kind === 'prob') {
    if (r.next() < 0.06) return { kind: 'predict' }
    return { kind: noProbability && !careless() ? 'decision' : 'proba' }
  }
  if (kind === 'label') {
    const binary = card.submission.classes?.length === 2
    if (!noProbability && binary && ['f1', 'mcc', 'balanced_accuracy', 'macro_f1'].includes(metric) && r.next() < 0.4) {
      return { kind: 'threshold', at: r.pick(['0.2', '0.3', '0.4']) }
    }
    if (!noProbability && !binary && IMBALANCE.has(metric) && r.next() < 0.25) return { kind: 'prior' }
    return { kind: 'predict' }
  }
  if (kind === 'topk') return { kind: noProbability && !careless() ? 'decision' : 'proba' }
  return { kind: 'proba' }
}

/** Changes one or two choices of a program, keeping the rest: what a second turn tries. Never with a bug. */
export function mutateSpec(card: TaskCard, r: Random, spec: Spec): Spec {
  const { bug: _bug, ...base } = spec
  for (let k = 0; k < 40; k++) {
    const q = sampleSpec(card, r, { careless: 0, bug: 0 })
    const what = r.pick(['model', 'args', 'view', 'steps', 'target', 'all'] as const)
    let next: Spec
    if (what === 'all' || what === 'model') next = what === 'all' ? q : { ...q, view: q.view, target: q.target }
    else if (what === 'args' && q.model.family === base.model.family && q.model.task === base.model.task)
      next = { ...base, model: q.model }
    else if (what === 'view' && sameNeeds(q, base)) next = { ...base, view: q.view }
    else if (what === 'steps' && q.model.family === base.model.family) next = { ...base, steps: q.steps, view: q.view }
    else if (what === 'target' && q.model.task === base.model.task)
      next = { ...base, target: q.target, output: q.output, model: q.model, steps: q.steps, view: q.view }
    else continue
    if (JSON.stringify(next) !== JSON.stringify(base)) return next
  }
  return sampleSpec(card, r, { careless: 0, bug: 0 })
}

const sameNeeds = (a: Spec, b: Spec): boolean =>
  a.model.family === b.model.family ||
  (TAKES_MISSING.has(a.model.family) === TAKES_MISSING.has(b.model.family) &&
    NEEDS_DENSE.has(a.model.family) === NEEDS_DENSE.has(b.model.family))
