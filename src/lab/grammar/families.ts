import type { Random } from '../../core/index.ts'
import type { Family, ModelChoice } from './spec.ts'

interface ClassName {
  readonly module: string
  readonly name: string
}

/** Where a family's class lives, by what it predicts; absent where the family cannot. */
export const CLASSES: Readonly<Record<Family, { readonly regress?: ClassName; readonly classify?: ClassName }>> = {
  linear: { regress: { module: 'sklearn.linear_model', name: 'LinearRegression' } },
  ridge: {
    regress: { module: 'sklearn.linear_model', name: 'Ridge' },
    classify: { module: 'sklearn.linear_model', name: 'RidgeClassifier' },
  },
  lasso: { regress: { module: 'sklearn.linear_model', name: 'Lasso' } },
  logistic: { classify: { module: 'sklearn.linear_model', name: 'LogisticRegression' } },
  svm: { regress: { module: 'sklearn.svm', name: 'SVR' }, classify: { module: 'sklearn.svm', name: 'SVC' } },
  linearsvm: {
    regress: { module: 'sklearn.svm', name: 'LinearSVR' },
    classify: { module: 'sklearn.svm', name: 'LinearSVC' },
  },
  knn: {
    regress: { module: 'sklearn.neighbors', name: 'KNeighborsRegressor' },
    classify: { module: 'sklearn.neighbors', name: 'KNeighborsClassifier' },
  },
  tree: {
    regress: { module: 'sklearn.tree', name: 'DecisionTreeRegressor' },
    classify: { module: 'sklearn.tree', name: 'DecisionTreeClassifier' },
  },
  forest: {
    regress: { module: 'sklearn.ensemble', name: 'RandomForestRegressor' },
    classify: { module: 'sklearn.ensemble', name: 'RandomForestClassifier' },
  },
  extra: {
    regress: { module: 'sklearn.ensemble', name: 'ExtraTreesRegressor' },
    classify: { module: 'sklearn.ensemble', name: 'ExtraTreesClassifier' },
  },
  boosting: {
    regress: { module: 'sklearn.ensemble', name: 'GradientBoostingRegressor' },
    classify: { module: 'sklearn.ensemble', name: 'GradientBoostingClassifier' },
  },
  histboost: {
    regress: { module: 'sklearn.ensemble', name: 'HistGradientBoostingRegressor' },
    classify: { module: 'sklearn.ensemble', name: 'HistGradientBoostingClassifier' },
  },
  lightgbm: {
    regress: { module: 'lightgbm', name: 'LGBMRegressor' },
    classify: { module: 'lightgbm', name: 'LGBMClassifier' },
  },
  bayes: { classify: { module: 'sklearn.naive_bayes', name: 'GaussianNB' } },
  discriminant: { classify: { module: 'sklearn.discriminant_analysis', name: 'LinearDiscriminantAnalysis' } },
  mlp: {
    regress: { module: 'sklearn.neural_network', name: 'MLPRegressor' },
    classify: { module: 'sklearn.neural_network', name: 'MLPClassifier' },
  },
  pls: { regress: { module: 'sklearn.cross_decomposition', name: 'PLSRegression' } },
  dummy: {
    regress: { module: 'sklearn.dummy', name: 'DummyRegressor' },
    classify: { module: 'sklearn.dummy', name: 'DummyClassifier' },
  },
}

/** Naive Bayes over counts, for sparse text. */
export const TEXT_BAYES: readonly ClassName[] = [
  { module: 'sklearn.naive_bayes', name: 'MultinomialNB' },
  { module: 'sklearn.naive_bayes', name: 'ComplementNB' },
]

/** Families that take missing cells as they are. */
export const TAKES_MISSING: ReadonlySet<Family> = new Set(['histboost', 'lightgbm', 'dummy'])
/** Families that take pandas' category columns as they are. */
export const TAKES_CATEGORY: ReadonlySet<Family> = new Set(['histboost', 'lightgbm', 'dummy'])
/** Families without predict_proba. */
export const NO_PROBABILITY: ReadonlySet<Family> = new Set(['ridge', 'linearsvm', 'svm'])
/** Families that need dense input. */
export const NEEDS_DENSE: ReadonlySet<Family> = new Set(['bayes', 'discriminant', 'pls', 'histboost'])
/** Families that want columns of one scale. */
export const WANTS_SCALE: ReadonlySet<Family> = new Set([
  'svm',
  'linearsvm',
  'knn',
  'logistic',
  'mlp',
  'ridge',
  'lasso',
  'linear',
  'pls',
])
/** Families that take several targets at once. */
export const MULTI_TARGET: ReadonlySet<Family> = new Set([
  'linear',
  'ridge',
  'lasso',
  'knn',
  'tree',
  'forest',
  'extra',
  'mlp',
  'pls',
  'dummy',
])

type Args = [string, string][]

const maybe = (r: Random, p: number, out: Args, name: string, values: readonly (string | number)[]): void => {
  if (r.next() < p) out.push([name, String(r.pick(values))])
}

/** Draws a family's arguments. `balanced` wishes for class weights; `loss` names a robust or relative loss wanted. */
export function drawArgs(
  r: Random,
  family: Family,
  task: 'regress' | 'classify',
  want: { balanced: boolean; loss?: 'absolute' | 'poisson' | undefined },
): ModelChoice {
  const a: Args = []
  switch (family) {
    case 'ridge':
      a.push(['alpha', String(r.pick(task === 'regress' ? [0.1, 1, 3, 10, 30, 100] : [0.3, 1, 3, 10]))])
      break
    case 'lasso':
      a.push(['alpha', String(r.pick([0.001, 0.01, 0.1, 1]))])
      break
    case 'logistic':
      a.push(['C', String(r.pick([0.01, 0.1, 0.3, 1, 3, 10, 30]))], ['max_iter', String(r.pick([300, 1000]))])
      break
    case 'svm':
      a.push(['C', String(r.pick([0.3, 1, 3, 10, 30, 100]))])
      maybe(r, 0.2, a, 'gamma', [0.003, 0.01, 0.03, 0.1])
      break
    case 'linearsvm':
      a.push(['C', String(r.pick([0.03, 0.1, 0.3, 1, 3]))])
      break
    case 'knn':
      a.push(['n_neighbors', String(r.pick([1, 3, 5, 10, 20, 40]))])
      maybe(r, 0.5, a, 'weights', ['"distance"'])
      break
    case 'tree':
      a.push(['max_depth', String(r.pick([2, 3, 4, 5, 6, 8, 12]))])
      break
    case 'forest':
    case 'extra':
      a.push(['n_estimators', String(r.pick([50, 100, 200, 300]))])
      maybe(r, 0.5, a, 'min_samples_leaf', [2, 3, 5, 10])
      maybe(r, 0.35, a, 'max_features', [0.3, 0.5, '"sqrt"'])
      break
    case 'boosting':
      a.push(['n_estimators', String(r.pick([100, 200, 300]))])
      maybe(r, 0.6, a, 'learning_rate', [0.03, 0.05, 0.1, 0.2])
      maybe(r, 0.5, a, 'max_depth', [2, 3, 4, 5])
      maybe(r, 0.3, a, 'subsample', [0.5, 0.8])
      break
    case 'histboost':
      if (task === 'regress' && want.loss && r.next() < 0.6) {
        a.push(['loss', want.loss === 'absolute' ? '"absolute_error"' : '"poisson"'])
      }
      a.push(['max_iter', String(r.pick([50, 100, 200, 300]))])
      maybe(r, 0.6, a, 'learning_rate', [0.03, 0.05, 0.1, 0.2])
      maybe(r, 0.3, a, 'max_leaf_nodes', [7, 15, 31])
      break
    case 'lightgbm':
      if (task === 'regress' && want.loss && r.next() < 0.6)
        a.push(['objective', want.loss === 'absolute' ? '"mae"' : '"poisson"'])
      a.push(['n_estimators', String(r.pick([50, 100, 200, 400]))])
      maybe(r, 0.7, a, 'learning_rate', [0.02, 0.03, 0.05, 0.1, 0.2])
      maybe(r, 0.5, a, 'num_leaves', [7, 15, 31])
      maybe(r, 0.3, a, 'min_child_samples', [5, 10, 40])
      maybe(r, 0.2, a, 'colsample_bytree', [0.3, 0.5, 0.8])
      break
    case 'mlp':
      a.push(['hidden_layer_sizes', r.pick(['(50,)', '(100,)', '(100, 50)'])])
      maybe(r, 0.5, a, 'alpha', [0.01, 0.1, 1])
      // Early stopping cannot hold out rows of text labels in scikit-learn 1.7.
      a.push(task === 'regress' ? ['early_stopping', 'True'] : ['max_iter', '300'])
      break
    case 'pls':
      a.push(['n_components', String(r.pick([2, 5, 8, 12, 16]))])
      break
    case 'dummy':
      if (task === 'regress') a.push(['strategy', r.pick(['"mean"', '"median"'])])
      else a.push(['strategy', r.pick(['"most_frequent"', '"prior"'])])
      break
    default:
      break
  }
  if (
    task === 'classify' &&
    want.balanced &&
    ['logistic', 'svm', 'linearsvm', 'ridge', 'tree', 'forest', 'extra', 'histboost', 'lightgbm'].includes(family)
  ) {
    a.push(['class_weight', '"balanced"'])
  }
  return { family, task, args: a }
}
