import { keyed } from '../../core/index.ts'
import type { TaskCard } from '../../tasks/index.ts'
import { NO_PROBABILITY } from '../grammar/families.ts'
import { renderSpec } from '../grammar/render.ts'
import { modalityOf, sampleSpec } from '../grammar/sample.ts'
import type { Family, ModelChoice, OutputForm, Spec, Step, TargetForm, View } from '../grammar/spec.ts'

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
 */
export function recipes(card: TaskCard, plain = PLAIN): Recipe[] {
  const out: Recipe[] = []
  const seen = new Set<string>()
  const add = (name: string, family: string, strength: Recipe['strength'], spec: Spec): void => {
    const code = renderSpec(card, spec, keyed('board', card.id, name))
    if (seen.has(code)) return
    seen.add(code)
    out.push({ name, family, strength, code })
  }
  for (const s of strong(card)) add(s.name, s.family, 'strong', s.spec)
  const huge = card.columns.some((c) => (c.levels ?? 0) > 100)
  for (let k = 0; k < plain; k++) {
    const spec = sampleSpec(card, keyed('board', 'plain', card.id, k), { careless: 0, bug: 0 })
    if (huge && spec.view.kind === 'table' && spec.view.encoding === 'dummies') continue
    if (spec.model.family !== 'dummy') add(`plain-${k}`, spec.model.family, 'plain', spec)
  }
  for (const s of crippled(card)) add(s.name, s.family, 'crippled', s.spec)
  return out
}

interface Named {
  readonly name: string
  readonly family: string
  readonly spec: Spec
}

type Args = readonly (readonly [string, string])[]

/** What the metric asks of target and output, for a model of one kind. The first is the sensible one. */
function forms(
  card: TaskCard,
  task: 'regress' | 'classify',
  family: Family,
): readonly { target: TargetForm; output: OutputForm }[] {
  const kind = card.submission.kind
  const metric = card.metric.name
  const noProbability = NO_PROBABILITY.has(family)
  if (metric === 'cindex') {
    if (task === 'classify') return [{ target: 'event', output: { kind: noProbability ? 'decision' : 'proba' } }]
    return [
      { target: 'hazard', output: { kind: 'predict' } },
      { target: 'negtime', output: { kind: 'predict' } },
    ]
  }
  if (kind === 'value') {
    const raw = {
      target: 'raw' as const,
      output: { kind: metric === 'rmsle' ? ('clip' as const) : ('predict' as const) },
    }
    const log = { target: 'log' as const, output: { kind: 'predict' as const } }
    if (!card.target.positive) return [raw]
    return ['rmsle', 'mape', 'smape'].includes(metric) ? [log, raw] : card.target.skewed ? [raw, log] : [raw]
  }
  if (kind === 'multi') return [{ target: 'raw', output: { kind: 'predict' } }]
  if (task === 'regress') return [{ target: 'raw', output: { kind: kind === 'prob' ? 'predict' : 'round' } }]
  if (kind === 'prob') return [{ target: 'raw', output: { kind: noProbability ? 'decision' : 'proba' } }]
  if (kind === 'label') {
    const binary = card.submission.classes?.length === 2
    const predict = { target: 'raw' as const, output: { kind: 'predict' as const } }
    if (noProbability) return [predict]
    if (['f1', 'mcc', 'balanced_accuracy', 'macro_f1'].includes(metric)) {
      return binary
        ? [{ target: 'raw', output: { kind: 'threshold', at: '0.3' } }, predict]
        : [{ target: 'raw', output: { kind: 'prior' } }, predict]
    }
    return [predict]
  }
  return [{ target: 'raw', output: { kind: noProbability && kind === 'topk' ? 'decision' : 'proba' } }]
}

function tasksOf(card: TaskCard): readonly ('regress' | 'classify')[] {
  const kind = card.submission.kind
  if (card.metric.name === 'cindex') return ['classify', 'regress']
  if (card.metric.name === 'qwk') return ['regress', 'classify']
  return kind === 'value' || kind === 'multi' ? ['regress'] : ['classify']
}

const needsProbability = (card: TaskCard): boolean =>
  card.submission.kind === 'proba' || ['log_loss', 'brier'].includes(card.metric.name)

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
  const views =
    kind === 'table'
      ? tableViews(card)
      : kind === 'text'
        ? textViews()
        : kind === 'image'
          ? imageViews(card)
          : seriesViews()
  const many = (card.submission.classes?.length ?? 0) > 12
  for (const task of tasksOf(card)) {
    for (const { label, view, families, steps } of views) {
      for (const family of families) {
        if (many && ['boosting', 'histboost'].includes(family)) continue
        // LinearSVR does not converge on sparse text within its limit.
        if (kind === 'text' && family === 'linearsvm' && task === 'regress') continue
        if (needsProbability(card) && NO_PROBABILITY.has(family)) continue
        if (task === 'regress' ? ['logistic', 'bayes', 'discriminant'].includes(family) : family === 'pls') continue
        if (
          card.submission.kind === 'multi' &&
          ['lightgbm', 'histboost', 'boosting', 'svm', 'linearsvm'].includes(family)
        )
          continue
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

interface ViewPlan {
  readonly label: string
  readonly view: View
  readonly families: readonly Family[]
  readonly steps: (family: Family) => readonly Step[]
}

const scaledFor =
  (kind: 'standard' | 'quantile') =>
  (f: Family): readonly Step[] =>
    ['svm', 'mlp', 'ridge', 'logistic', 'knn', 'linearsvm', 'pls', 'discriminant'].includes(f) ? [{ kind }] : []

function tableViews(card: TaskCard): ViewPlan[] {
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
