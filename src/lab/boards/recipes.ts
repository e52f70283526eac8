import { keyed } from '../../core/index.ts'
import type { TaskCard } from '../../tasks/index.ts'
import { NO_PROBABILITY } from '../grammar/families.ts'
import { renderSpec } from '../grammar/render.ts'
import { modalityOf, sampleSpec } from '../grammar/sample.ts'
import type { Family, ModelChoice, Spec, Step, View } from '../grammar/spec.ts'
import { type Args, forms, type Named, needsProbability, suits, tasksOf } from './forms.ts'
import { reserve } from './reserve.ts'
import { type ViewPlan, viewsOf } from './views.ts'

export interface Recipe {
  readonly name: string
  readonly family: string
  readonly strength: 'strong' | 'plain' | 'crippled'
  readonly code: string
}

/** Random programs of the grammar in every population, beside the designed ones. */
export const PLAIN = 36

/**
 * The population of a leaderboard, by a rule that looks at the card alone and was fixed before any score was seen:
 * strong recipes from every family that suits the files (tuned, blended, stacked, with the encodings and outputs that
 * suit the metric), then `plain` programs drawn from the grammar, then a few crippled ones, at most a fifth. In this order
 * they compete for a place (see `composeBoard`).
 *
 * @param o.plain how many are drawn from the grammar
 * @param o.reserve with the further strong recipes of boards whose first ones leave too few
 */
export function recipes(card: TaskCard, o: { plain?: number; reserve?: boolean } = {}): Recipe[] {
  const out: Recipe[] = []
  const seen = new Set<string>()
  const add = (name: string, family: string, strength: Recipe['strength'], spec: Spec): void => {
    const code = renderSpec(card, spec, keyed('board', card.id, name))
    if (seen.has(code)) return
    seen.add(code)
    out.push({ name, family, strength, code })
  }
  for (const s of strong(card)) add(s.name, s.family, 'strong', s.spec)
  if (o.reserve) for (const s of reserve(card)) add(s.name, s.family, 'strong', s.spec)
  const huge = card.columns.some((c) => (c.levels ?? 0) > 100)
  for (let k = 0; k < (o.plain ?? PLAIN); k++) {
    const spec = sampleSpec(card, keyed('board', 'plain', card.id, k), { careless: 0, bug: 0 })
    if (huge && spec.view.kind === 'table' && spec.view.encoding === 'dummies') continue
    if (spec.model.family !== 'dummy') add(`plain-${k}`, spec.model.family, 'plain', spec)
  }
  for (const s of crippled(card)) add(s.name, s.family, 'crippled', s.spec)
  return out
}

const GRID: Partial<Record<Family, readonly Args[]>> = {
  lightgbm: [
    [
      ['n_estimators', '200'],
      ['learning_rate', '0.05'],
      ['num_leaves', '15'],
    ],
    [
      ['n_estimators', '400'],
      ['learning_rate', '0.02'],
      ['num_leaves', '31'],
      ['colsample_bytree', '0.5'],
    ],
    [
      ['n_estimators', '300'],
      ['learning_rate', '0.05'],
      ['num_leaves', '7'],
      ['min_child_samples', '40'],
    ],
  ],
  histboost: [
    [
      ['max_iter', '200'],
      ['learning_rate', '0.05'],
      ['max_leaf_nodes', '15'],
    ],
    [
      ['max_iter', '100'],
      ['learning_rate', '0.1'],
      ['l2_regularization', '10'],
    ],
  ],
  boosting: [
    [
      ['n_estimators', '300'],
      ['learning_rate', '0.05'],
      ['max_depth', '4'],
      ['subsample', '0.5'],
    ],
    [
      ['n_estimators', '200'],
      ['learning_rate', '0.1'],
      ['max_depth', '3'],
    ],
  ],
  forest: [
    [
      ['n_estimators', '300'],
      ['min_samples_leaf', '2'],
      ['max_features', '0.3'],
    ],
    [
      ['n_estimators', '200'],
      ['min_samples_leaf', '5'],
      ['max_features', '0.5'],
    ],
  ],
  extra: [
    [
      ['n_estimators', '300'],
      ['min_samples_leaf', '2'],
      ['max_features', '0.5'],
    ],
    [
      ['n_estimators', '200'],
      ['min_samples_leaf', '5'],
    ],
  ],
  svm: [[['C', '3']], [['C', '30']]],
  mlp: [
    [
      ['hidden_layer_sizes', '(100, 50)'],
      ['alpha', '0.1'],
      ['max_iter', '400'],
    ],
  ],
  ridge: [[['alpha', '10']], [['alpha', '1']]],
  logistic: [
    [
      ['C', '1'],
      ['max_iter', '1000'],
    ],
    [
      ['C', '0.1'],
      ['max_iter', '1000'],
    ],
    [
      ['C', '10'],
      ['max_iter', '1000'],
    ],
  ],
  linearsvm: [[['C', '0.1']], [['C', '1']]],
  knn: [
    [
      ['n_neighbors', '10'],
      ['weights', '"distance"'],
    ],
    [
      ['n_neighbors', '30'],
      ['weights', '"distance"'],
    ],
  ],
  bayes: [[]],
  discriminant: [[]],
  pls: [[['n_components', '8']], [['n_components', '16']]],
}

/** Over hundreds of pixels or words, trees look at a root's share of the columns. */
const WIDE_GRID: Partial<Record<Family, readonly Args[]>> = {
  forest: [
    [['n_estimators', '200']],
    [
      ['n_estimators', '100'],
      ['min_samples_leaf', '3'],
    ],
  ],
  extra: [
    [['n_estimators', '200']],
    [
      ['n_estimators', '100'],
      ['min_samples_leaf', '3'],
    ],
  ],
  lightgbm: [
    [
      ['n_estimators', '60'],
      ['learning_rate', '0.15'],
      ['num_leaves', '15'],
      ['colsample_bytree', '0.3'],
    ],
  ],
}

function strong(card: TaskCard): Named[] {
  const kind = modalityOf(card)
  const out: Named[] = []
  const views = viewsOf(card)
  for (const task of tasksOf(card)) {
    for (const { label, view, families, steps } of views) {
      for (const family of families) {
        if (!suits(card, task, family) || (needsProbability(card) && NO_PROBABILITY.has(family))) continue
        const grid = (kind === 'table' ? GRID[family] : (WIDE_GRID[family] ?? GRID[family])) ?? [[]]
        // A regression forest looks at every column by default, which hundreds of pixels or words make too slow.
        const root = kind !== 'table' && task === 'regress' && (family === 'forest' || family === 'extra')
        grid.forEach((plain, g) => {
          const args: Args = root ? [...plain, ['max_features', '"sqrt"']] : plain
          const f = forms(card, task, family)
          const form = f[g % f.length]!
          out.push({
            name: `${label}-${family}-${task}-${g}`,
            family,
            spec: { view, steps: steps(family), model: { family, task, args }, ...form },
          })
        })
      }
    }
    out.push(...blends(card, task, views))
  }
  return thin(out, kind === 'table' ? 60 : 48)
}

function blends(card: TaskCard, task: 'regress' | 'classify', views: readonly ViewPlan[]): Named[] {
  if (card.submission.kind === 'multi') return []
  const kind = modalityOf(card)
  const many = (card.submission.classes?.length ?? 0) > 12
  const choice = (family: Family): ModelChoice => ({
    family,
    task,
    args: ((kind === 'table' ? undefined : WIDE_GRID[family]) ?? GRID[family])?.[0] ?? [],
  })
  const pairs: [Family, Family][] =
    kind === 'text'
      ? task === 'classify'
        ? [['logistic', 'bayes']]
        : [['ridge', 'knn']]
      : task === 'classify'
        ? [
            ['extra', 'logistic'],
            ['forest', 'logistic'],
            ...(many || kind === 'image' ? [] : ([['lightgbm', 'extra']] as [Family, Family][])),
          ]
        : kind === 'table'
          ? [
              ['lightgbm', 'extra'],
              ['lightgbm', 'ridge'],
              ['extra', 'svm'],
            ]
          : [['svm', 'ridge']]
  const out: Named[] = []
  for (const p of views
    .filter((v) => kind !== 'table' || ['dummies', 'target', 'codes', 'scaled'].includes(v.label))
    .slice(0, 4)) {
    for (const [a, b] of pairs) {
      for (const combine of ['vote', 'stack'] as const) {
        if (combine === 'stack' && (many || out.length > 6)) continue
        out.push({
          name: `${p.label}-${combine}-${a}-${b}-${task}`,
          family: combine,
          spec: {
            view: p.view,
            steps: [{ kind: kind === 'text' ? 'normalize' : 'standard' }],
            model: choice(a),
            second: choice(b),
            combine,
            ...forms(card, task, a)[0]!,
          },
        })
      }
    }
  }
  return out
}

/** Every k-th recipe, so that a long list keeps its breadth. */
function thin(list: readonly Named[], limit: number): Named[] {
  if (list.length <= limit) return [...list]
  return Array.from({ length: limit }, (_, i) => list[Math.floor((i * list.length) / limit)]!)
}

/** Programs that a sensible person would not submit: no features, two features, one split. */
function crippled(card: TaskCard): Named[] {
  const kind = modalityOf(card)
  const out: Named[] = []
  const weak: View =
    kind === 'table'
      ? { kind: 'table', dates: 'drop', encoding: 'numeric', fill: 'zero' }
      : kind === 'text'
        ? { kind: 'text', vector: 'stats' }
        : kind === 'image'
          ? { kind: 'image', features: 'half' }
          : { kind: 'series', features: 'stats' }
  for (const task of tasksOf(card)) {
    const make = (name: string, family: Family, args: Args, steps: readonly Step[] = []): void => {
      if (needsProbability(card) && NO_PROBABILITY.has(family)) return
      out.push({
        name: `${name}-${task}`,
        family,
        spec: { view: weak, steps, model: { family, task, args }, ...forms(card, task, family)[0]! },
      })
    }
    make('constant', 'dummy', [['strategy', task === 'regress' ? '"mean"' : '"prior"']])
    if (task === 'classify')
      make('random', 'dummy', [
        ['strategy', '"stratified"'],
        ['random_state', '0'],
      ])
    else make('median', 'dummy', [['strategy', '"median"']])
    make('stump', 'tree', [['max_depth', '1']])
    make('twig', 'tree', [['max_depth', '2']])
    make('neighbour', 'knn', [['n_neighbors', '1']])
    make('crowd', 'knn', [['n_neighbors', '100']])
    make('deep', 'tree', [['max_depth', '30']])
    make('few', 'boosting', [['n_estimators', '3']])
    make('tiny', 'forest', [
      ['n_estimators', '3'],
      ['max_depth', '3'],
    ])
    if (task === 'classify') make('bayes', 'bayes', [])
    else make('lasso', 'lasso', [['alpha', '10']])
  }
  return out
}
