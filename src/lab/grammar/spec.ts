import type { SubmissionKind } from '../../tasks/index.ts'

/**
 * A program of the agent's own language as a tuple of independent choices; `render` turns it into Python. The language is
 * small on purpose: it covers every modality, file format and submission kind of the suites, and its best program differs
 * from task to task. It is not Python: what it leaves out is invented columns, custom models and tuning loops.
 */
export interface Spec {
  readonly view: View
  readonly steps: readonly Step[]
  readonly model: ModelChoice
  /** Averaged (voting) or stacked with the first. */
  readonly second?: ModelChoice
  readonly combine?: 'vote' | 'stack'
  readonly target: TargetForm
  readonly output: OutputForm
  readonly bug?: Bug
}

export type View = TableView | TextView | ImageView | SeriesView

export interface TableView {
  readonly kind: 'table'
  readonly dates: 'drop' | 'number' | 'parts' | 'keep'
  readonly encoding: 'dummies' | 'codes' | 'target' | 'category' | 'count' | 'numeric' | 'raw'
  readonly fill: 'median' | 'zero' | 'neg' | 'flag' | 'none'
  /** First differences along the columns, for spectra and other ordered blocks. */
  readonly diff?: boolean
}
export interface TextView {
  readonly kind: 'text'
  readonly vector: 'word' | 'bigram' | 'char' | 'longchar' | 'count' | 'both' | 'hash' | 'stats'
  readonly svd?: number
}
export interface ImageView {
  readonly kind: 'image'
  readonly features: 'raw' | 'half' | 'hog' | 'hograw' | 'colour'
}
export interface SeriesView {
  readonly kind: 'series'
  readonly features: 'stats' | 'fft' | 'both'
}

export type Step =
  | { readonly kind: 'standard' | 'minmax' | 'quantile' | 'normalize' }
  | { readonly kind: 'pca' | 'kbest'; readonly n: number }
  | { readonly kind: 'poly' }

export const FAMILIES = [
  'linear',
  'ridge',
  'lasso',
  'logistic',
  'svm',
  'linearsvm',
  'knn',
  'tree',
  'forest',
  'extra',
  'boosting',
  'histboost',
  'lightgbm',
  'bayes',
  'discriminant',
  'mlp',
  'pls',
  'dummy',
] as const
export type Family = (typeof FAMILIES)[number]

export interface ModelChoice {
  readonly family: Family
  /** Predicts a number, or classes. */
  readonly task: 'regress' | 'classify'
  /** Constructor arguments in order of writing, as Python literals. */
  readonly args: readonly (readonly [string, string])[]
}

/** `rank`: the target's ranks; `event`, `hazard`, `negtime`: forms for censored times. */
export type TargetForm = 'raw' | 'log' | 'sqrt' | 'rank' | 'event' | 'hazard' | 'negtime'

export type OutputForm =
  | { readonly kind: 'predict' | 'clip' | 'round' | 'prior' | 'proba' | 'decision' }
  | { readonly kind: 'threshold'; readonly at: string }

export const BUGS = [
  'file',
  'target',
  'shape',
  'subcol',
  'index',
  'syntax',
  'import',
  'outname',
  'slow',
  'param',
  'attr',
  'task',
  'noenc',
] as const
export type Bug = (typeof BUGS)[number]

/** Submission kinds whose target is a class. */
export const isClassKind = (k: SubmissionKind): boolean => k === 'label' || k === 'proba' || k === 'topk'
