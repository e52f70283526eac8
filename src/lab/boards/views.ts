import type { TaskCard } from '../../tasks/index.ts'
import { modalityOf } from '../grammar/sample.ts'
import type { Family, Step, View } from '../grammar/spec.ts'

export interface ViewPlan {
  readonly label: string
  readonly view: View
  readonly families: readonly Family[]
  readonly steps: (family: Family) => readonly Step[]
}

/** How a task's files become columns, and which families read them so. */
export function viewsOf(card: TaskCard): ViewPlan[] {
  const kind = modalityOf(card)
  if (kind === 'table') return tableViews(card)
  if (kind === 'text') return textViews()
  return kind === 'image' ? imageViews(card) : seriesViews()
}

const scaledFor =
  (kind: 'standard' | 'quantile') =>
  (f: Family): readonly Step[] =>
    ['svm', 'mlp', 'ridge', 'logistic', 'knn', 'linearsvm', 'pls', 'discriminant'].includes(f) ? [{ kind }] : []

export function tableViews(card: TaskCard): ViewPlan[] {
  const cats = card.columns.some((c) => c.type === 'category')
  const missing = card.columns.some((c) => c.missing)
  const multiclass = (card.submission.classes?.length ?? 0) > 2
  const fill = missing ? 'median' : 'none'
  const table = (
    encoding: 'dummies' | 'codes' | 'target' | 'category' | 'count' | 'raw',
    f: 'median' | 'none' | 'neg' | 'flag',
  ): View => ({ kind: 'table', dates: 'parts', encoding: cats ? encoding : 'raw', fill: f })
  const trees: Family[] = ['lightgbm', 'forest', 'extra', 'boosting']
  const smooth: Family[] = ['svm', 'mlp', 'ridge', 'logistic', 'knn']
  // One-hot columns of hundreds of levels cost more than a recipe may; other encodings stand in.
  const huge = card.columns.some((c) => (c.levels ?? 0) > 100)
  const wide = table(huge ? 'count' : 'dummies', fill)
  const plans: ViewPlan[] = [
    { label: 'dummies', view: table('dummies', fill), families: [...trees, 'histboost'], steps: () => [] },
    {
      label: 'scaled',
      view: table(huge ? 'codes' : 'dummies', missing ? 'flag' : 'none'),
      families: smooth,
      steps: scaledFor('standard'),
    },
    {
      label: 'ranked',
      view: wide,
      families: ['svm', 'mlp', 'ridge', 'logistic', 'knn', 'pls', 'discriminant'],
      steps: scaledFor('quantile'),
    },
  ]
  if (cats) {
    plans.push({
      label: 'codes',
      view: table('codes', missing ? 'neg' : 'none'),
      families: [...trees, 'histboost'],
      steps: () => [],
    })
    plans.push({
      label: 'count',
      view: table('count', fill),
      families: ['forest', 'extra', 'lightgbm'],
      steps: () => [],
    })
    if (!multiclass && card.submission.kind !== 'multi')
      plans.push({
        label: 'target',
        view: table('target', fill),
        families: [...trees, 'ridge', 'svm'],
        steps: scaledFor('standard'),
      })
  }
  if (card.modality === 'signal' && !cats) {
    plans.push({
      label: 'derivative',
      view: { kind: 'table', dates: 'keep', encoding: 'raw', fill: 'none', diff: true },
      families: ['ridge', 'pls', 'svm', 'extra', 'mlp', 'logistic'],
      steps: scaledFor('standard'),
    })
  }
  return plans
}

function textViews(): ViewPlan[] {
  const none = (): readonly Step[] => []
  const linear: Family[] = ['ridge', 'logistic', 'linearsvm', 'bayes']
  const plan = (
    vector: 'word' | 'bigram' | 'char' | 'longchar' | 'both' | 'count',
    families: Family[],
    svd?: number,
  ): ViewPlan => ({
    label: svd ? `${vector}${svd}` : vector,
    view: { kind: 'text', vector, ...(svd ? { svd } : {}) },
    families,
    steps: none,
  })
  return [
    plan('longchar', linear),
    plan('bigram', linear),
    plan('both', ['ridge', 'logistic', 'linearsvm']),
    plan('char', [...linear, 'knn']),
    plan('word', linear),
    plan('count', linear),
    plan('char', ['svm', 'extra', 'lightgbm', 'mlp'], 60),
    plan('bigram', ['svm', 'forest', 'lightgbm', 'knn'], 60),
  ]
}

function imageViews(card: TaskCard): ViewPlan[] {
  const none = (): readonly Step[] => []
  const many: Family[] = ['svm', 'logistic', 'extra', 'forest', 'knn', 'mlp', 'ridge']
  const plan = (
    features: 'raw' | 'half' | 'hog' | 'hograw' | 'colour',
    families: Family[],
    steps: (f: Family) => readonly Step[] = none,
    tag = '',
  ): ViewPlan => ({ label: features + tag, view: { kind: 'image', features }, families, steps })
  return [
    plan('hog', [...many, 'discriminant', 'lightgbm']),
    plan('hograw', ['svm', 'logistic', 'extra', 'mlp', 'ridge', 'discriminant']),
    plan('raw', ['svm', 'extra', 'forest', 'knn', 'mlp']),
    plan('half', ['svm', 'extra', 'logistic', 'knn', 'discriminant']),
    plan('raw', ['svm', 'knn', 'discriminant', 'mlp', 'extra'], () => [{ kind: 'pca', n: 40 }], '-pca'),
    plan('hog', ['svm', 'mlp', 'ridge'], scaledFor('standard'), '-scaled'),
    ...(card.images === 'png' ? [plan('colour', ['svm', 'extra', 'forest', 'mlp', 'logistic'])] : []),
  ]
}

function seriesViews(): ViewPlan[] {
  const families: Family[] = [
    'svm',
    'forest',
    'extra',
    'lightgbm',
    'logistic',
    'knn',
    'mlp',
    'discriminant',
    'boosting',
  ]
  const plan = (features: 'stats' | 'fft' | 'both', kind: 'standard' | 'quantile'): ViewPlan => ({
    label: `${features}-${kind}`,
    view: { kind: 'series', features },
    families,
    steps: scaledFor(kind),
  })
  return [plan('both', 'standard'), plan('both', 'quantile'), plan('fft', 'standard'), plan('stats', 'quantile')]
}
