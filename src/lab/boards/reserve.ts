import type { TaskCard } from '../../tasks/index.ts'
import { NO_PROBABILITY } from '../grammar/families.ts'
import { modalityOf } from '../grammar/sample.ts'
import type { Family, Step, TextView } from '../grammar/spec.ts'
import { type Args, forms, type Named, needsProbability, suits, tasksOf } from './forms.ts'
import { tableViews, type ViewPlan, viewsOf } from './views.ts'

/**
 * Further strong recipes for boards whose first ones cannot run or all err alike (words without pairs, two good columns):
 * other strengths of regularisation and other numbers of trees on the same views, and dense projections of text. Like the
 * first ones they look at the card alone.
 */
export function reserve(card: TaskCard): Named[] {
  const out: Named[] = []
  for (const task of tasksOf(card)) {
    for (const { label, view, families, steps } of reserveViews(card)) {
      for (const family of families) {
        if (!suits(card, task, family) || (needsProbability(card) && NO_PROBABILITY.has(family))) continue
        ;(GRID[family] ?? []).forEach((args, g) => {
          const f = forms(card, task, family)
          out.push({
            name: `reserve-${label}-${family}-${task}-${g}`,
            family,
            spec: { view, steps: steps(family), model: { family, task, args }, ...f[g % f.length]! },
          })
        })
      }
    }
  }
  return out
}

const GRID: Partial<Record<Family, readonly Args[]>> = {
  lightgbm: [
    [
      ['n_estimators', '600'],
      ['learning_rate', '0.01'],
      ['num_leaves', '63'],
      ['colsample_bytree', '0.8'],
    ],
    [
      ['n_estimators', '100'],
      ['learning_rate', '0.1'],
      ['min_child_samples', '5'],
    ],
  ],
  histboost: [
    [
      ['max_iter', '300'],
      ['learning_rate', '0.03'],
      ['l2_regularization', '1'],
    ],
  ],
  boosting: [
    [
      ['n_estimators', '300'],
      ['learning_rate', '0.03'],
      ['max_depth', '6'],
      ['subsample', '0.8'],
    ],
  ],
  forest: [
    [
      ['n_estimators', '300'],
      ['max_features', '"sqrt"'],
    ],
  ],
  extra: [
    [
      ['n_estimators', '300'],
      ['max_features', '"sqrt"'],
    ],
  ],
  svm: [
    [['C', '1']],
    [
      ['C', '100'],
      ['gamma', '0.01'],
    ],
  ],
  mlp: [
    [
      ['hidden_layer_sizes', '(50,)'],
      ['alpha', '1'],
      ['max_iter', '400'],
    ],
  ],
  ridge: [[['alpha', '0.1']], [['alpha', '100']]],
  logistic: [
    [
      ['C', '0.03'],
      ['max_iter', '1000'],
    ],
    [
      ['C', '30'],
      ['max_iter', '1000'],
    ],
  ],
  linearsvm: [[['C', '0.03']], [['C', '3']]],
  knn: [
    [
      ['n_neighbors', '5'],
      ['weights', '"distance"'],
    ],
    [['n_neighbors', '15']],
  ],
  pls: [[['n_components', '4']], [['n_components', '12']], [['n_components', '24']]],
  discriminant: [[]],
}

function reserveViews(card: TaskCard): readonly ViewPlan[] {
  const kind = modalityOf(card)
  if (kind === 'text') return [...denseText(), ...viewsOf(card)]
  const views = viewsOf(card)
  if (kind !== 'table' || card.modality !== 'signal') return views
  const trees: Family[] = ['forest', 'extra', 'lightgbm', 'knn', 'svm']
  return [
    ...views,
    ...tableViews(card)
      .filter((v) => v.label === 'derivative')
      .map((v) => ({ ...v, label: 'derivative-trees', families: trees })),
  ]
}

function denseText(): ViewPlan[] {
  const families: Family[] = ['svm', 'extra', 'mlp', 'lightgbm', 'forest', 'knn', 'discriminant', 'logistic']
  const none = (): readonly Step[] => []
  const plan = (vector: TextView['vector'], svd: number): ViewPlan => ({
    label: `${vector}${svd}`,
    view: { kind: 'text', vector, svd },
    families,
    steps: none,
  })
  return [plan('longchar', 60), plan('char', 100), plan('longchar', 150)]
}
