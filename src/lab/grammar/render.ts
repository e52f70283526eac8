import type { Random } from '../../core/index.ts'
import type { TaskCard } from '../../tasks/index.ts'
import { CLASSES, TEXT_BAYES } from './families.ts'
import type { ImageView, ModelChoice, SeriesView, Spec, Step, TableView, TextView } from './spec.ts'

/** Writes a program. Each import stands just above its first use: a model that writes left to right cannot forget it. */
export function renderSpec(card: TaskCard, spec: Spec, r: Random): string {
  const w = new Writer()
  const train = spec.bug === 'file' ? r.pick(['data/train.csv', 'Train.csv', 'input/train.csv']) : 'train.csv'
  w.line('import numpy as np', 'import pandas as pd')
  w.line(`train = pd.read_csv("${train}")`, 'test = pd.read_csv("test.csv")')
  const multi = card.submission.kind === 'multi'
  w.line('sub = pd.read_csv("sample_submission.csv")')
  targetLines(w, card, spec, r)
  switch (spec.view.kind) {
    case 'table':
      tableLines(w, card, spec.bug === 'noenc' ? { ...spec.view, encoding: 'raw' } : spec.view)
      break
    case 'text':
      textLines(w, card, spec.view)
      break
    case 'image':
      imageLines(w, card, spec.view)
      break
    case 'series':
      seriesLines(w, card, spec.view)
      break
  }
  modelLines(w, spec, r)
  w.line('model.fit(X, y)')
  outputLines(w, card, spec, multi)
  const column = card.submission.columns[0]!
  const name = spec.bug === 'subcol' ? r.pick(['prediction', 'target', 'pred']) : column
  if (card.submission.kind === 'multi') w.line('sub[y.columns] = p')
  else if (card.submission.kind === 'proba') w.line('sub[model.classes_] = p')
  else w.line(`sub["${name}"] = p`)
  const file = spec.bug === 'outname' ? r.pick(['output.csv', 'sub.csv', 'predictions.csv']) : 'submission.csv'
  w.line(`sub.to_csv("${file}"${spec.bug === 'index' ? '' : ', index=False'})`)
  return spec.bug === 'syntax' ? breakSyntax(w.lines, r) : `${w.lines.join('\n')}\n`
}

class Writer {
  readonly lines: string[] = []
  readonly imported = new Set<string>()
  line(...ls: string[]): void {
    this.lines.push(...ls)
  }
  use(module: string, name: string): void {
    const k = `from ${module} import ${name}`
    if (this.imported.has(k)) return
    this.imported.add(k)
    this.lines.push(k)
  }
}

function targetLines(w: Writer, card: TaskCard, spec: Spec, r: Random): void {
  const t = spec.bug === 'target' ? r.pick(['target', 'y', 'label']) : card.targets[0]!
  if (card.submission.kind === 'multi') {
    w.line('y = train[sub.columns[1:]]')
    return
  }
  switch (spec.target) {
    case 'log':
      w.line(`y = np.log1p(train["${t}"])`)
      return
    case 'sqrt':
      w.line(`y = np.sqrt(train["${t}"])`)
      return
    case 'rank':
      w.line(`y = train["${t}"].rank()`)
      return
    case 'event':
      w.line('y = train["event"]')
      return
    case 'hazard':
      w.line(`y = train["event"] / np.sqrt(train["${t}"])`)
      return
    case 'negtime':
      w.line(`y = -train["${t}"]`)
      return
    default:
      w.line(`y = train["${t}"]`)
  }
}

function tableLines(w: Writer, card: TaskCard, v: TableView): void {
  w.line(`T = test.drop(columns=["${card.submission.idColumn}"])`, 'X = train[T.columns].copy()')
  const date = card.columns.find((c) => c.type === 'date')?.name
  if (date) {
    if (v.dates === 'drop') w.line(`X, T = X.drop(columns=["${date}"]), T.drop(columns=["${date}"])`)
    if (v.dates === 'number' || v.dates === 'parts') {
      w.line('for d in (X, T):', `    t = pd.to_datetime(d["${date}"])`)
      if (v.dates === 'parts') w.line('    d["month"], d["week"] = t.dt.month, t.dt.dayofweek')
      w.line(`    d["${date}"] = t.astype("int64") // 10**9`)
    }
  }
  switch (v.encoding) {
    case 'dummies':
      w.line('A = pd.get_dummies(pd.concat([X, T]), dtype=float)', 'X, T = A[:len(X)], A[len(X):]')
      break
    case 'codes':
      w.line(
        'for c in X.select_dtypes("object"):',
        '    m = {v: k for k, v in enumerate(X[c].unique())}',
        '    X[c], T[c] = X[c].map(m), T[c].map(m).fillna(-1)',
      )
      break
    case 'count':
      w.line(
        'for c in X.select_dtypes("object"):',
        '    n = X[c].value_counts()',
        '    X[c], T[c] = X[c].map(n).fillna(0), T[c].map(n).fillna(0)',
      )
      break
    case 'target':
      w.use('sklearn.preprocessing', 'TargetEncoder')
      w.line(
        'e = TargetEncoder(random_state=0)',
        'cats = X.select_dtypes("object").columns',
        'X[cats] = e.fit_transform(X[cats], y)',
        'T[cats] = e.transform(T[cats])',
      )
      break
    case 'category':
      w.line(
        'for c in X.select_dtypes("object"):',
        '    X[c] = X[c].astype("category")',
        '    T[c] = pd.Categorical(T[c], categories=X[c].cat.categories)',
      )
      break
    case 'numeric':
      w.line('X, T = X.select_dtypes("number"), T.select_dtypes("number")')
      break
    case 'raw':
      break
  }
  switch (v.fill) {
    case 'flag':
      w.line(
        'X, T = X.assign(gaps=X.isna().sum(axis=1)), T.assign(gaps=T.isna().sum(axis=1))',
        'X, T = X.fillna(X.median()), T.fillna(X.median())',
      )
      break
    case 'median':
      w.line('X, T = X.fillna(X.median()), T.fillna(X.median())')
      break
    case 'zero':
      w.line('X, T = X.fillna(0), T.fillna(0)')
      break
    case 'neg':
      w.line('X, T = X.fillna(-999), T.fillna(-999)')
      break
    case 'none':
      break
  }
  if (v.diff) w.line('X, T = np.diff(X.values, axis=1), np.diff(T.values, axis=1)')
}

const VECTORIZERS: Record<Exclude<TextView['vector'], 'both' | 'stats'>, [string, string]> = {
  word: ['TfidfVectorizer', 'min_df=2'],
  bigram: ['TfidfVectorizer', 'ngram_range=(1, 2), min_df=2, sublinear_tf=True'],
  char: ['TfidfVectorizer', 'analyzer="char_wb", ngram_range=(2, 3), min_df=2'],
  longchar: ['TfidfVectorizer', 'analyzer="char_wb", ngram_range=(2, 5), min_df=2, sublinear_tf=True'],
  count: ['CountVectorizer', 'min_df=2, binary=True'],
  hash: ['HashingVectorizer', 'n_features=1024, alternate_sign=False'],
}

function textLines(w: Writer, card: TaskCard, v: TextView): void {
  const cols = card.columns.filter((c) => c.type === 'text').map((c) => c.name)
  const joined = (d: string): string => cols.map((c) => `${d}["${c}"].fillna("")`).join(' + " " + ')
  w.line(`a = ${joined('train')}`, `b = ${joined('test')}`)
  const from = 'sklearn.feature_extraction.text'
  if (v.vector === 'stats') {
    w.line(
      'f = lambda s: np.c_[s.str.len(), s.str.count(" "), s.str.count("[A-Z]"), s.str.count("[0-9]"), s.str.count("!")]',
      'X, T = f(a), f(b)',
    )
  } else if (v.vector === 'both') {
    w.use(from, 'TfidfVectorizer')
    w.use('sklearn.pipeline', 'make_union')
    w.line(
      `v = make_union(TfidfVectorizer(${VECTORIZERS.bigram[1]}), TfidfVectorizer(${VECTORIZERS.longchar[1]}))`,
      'X, T = v.fit_transform(a), v.transform(b)',
    )
  } else {
    const [cls, args] = VECTORIZERS[v.vector]
    w.use(from, cls)
    w.line(`v = ${cls}(${args})`, 'X, T = v.fit_transform(a), v.transform(b)')
  }
  if (v.svd) {
    w.use('sklearn.decomposition', 'TruncatedSVD')
    w.line(`s = TruncatedSVD(n_components=${v.svd}, random_state=0)`, 'X, T = s.fit_transform(X), s.transform(T)')
  }
}

const HOG = [
  'def hog(a, n=4):',
  '    gy, gx = np.gradient(a, axis=(1, 2))',
  '    m, o = np.hypot(gx, gy), (np.arctan2(gy, gx) % np.pi * 8 / np.pi).astype(int) % 8',
  '    h = np.stack([m * (o == k) for k in range(8)], axis=3)',
  '    h = [c.sum(axis=(1, 2)) for q in np.array_split(h, n, axis=1) for c in np.array_split(q, n, axis=2)]',
  '    h = np.concatenate(h, axis=1)',
  '    return h / (np.linalg.norm(h, axis=1, keepdims=True) + 1e-6)',
]

function imageLines(w: Writer, card: TaskCard, v: ImageView): void {
  const mode = v.features === 'colour' ? 'RGB' : 'L'
  const id = card.submission.idColumn
  if (card.pixels) {
    w.line(
      'h = len({c.split("_")[0] for c in test.columns[1:]})',
      'f = lambda d: d[test.columns[1:]].values.reshape(len(d), h, -1) / 16',
    )
  } else if (card.images === 'png') {
    const file = card.columns.find((c) => c.type === 'file')!.name
    w.use('PIL', 'Image')
    w.line(`f = lambda d: np.array([np.asarray(Image.open(p).convert("${mode}")) for p in d["${file}"]]) / 255`)
  } else if (card.images === 'zip') {
    w.line('import zipfile')
    w.use('PIL', 'Image')
    w.line(
      'z = zipfile.ZipFile("images.zip")',
      `f = lambda d: np.array([np.asarray(Image.open(z.open(f"{i}.png")).convert("${mode}")) for i in d["${id}"]]) / 255`,
    )
  } else {
    w.line(
      'z = np.load("images.npz")',
      'k = dict(zip(z["ids"], z["images"]))',
      `f = lambda d: np.array([k[i] for i in d["${id}"]]) / 255`,
    )
  }
  w.line('A, B = f(train), f(test)')
  switch (v.features) {
    case 'raw':
      w.line('X, T = A.reshape(len(A), -1), B.reshape(len(B), -1)')
      break
    case 'half':
    case 'colour':
      w.line('X, T = A[:, ::2, ::2].reshape(len(A), -1), B[:, ::2, ::2].reshape(len(B), -1)')
      break
    case 'hog':
      w.line(...HOG, 'X, T = hog(A), hog(B)')
      break
    case 'hograw':
      w.line(
        ...HOG,
        'X = np.c_[hog(A), A[:, ::2, ::2].reshape(len(A), -1)]',
        'T = np.c_[hog(B), B[:, ::2, ::2].reshape(len(B), -1)]',
      )
      break
  }
  const extra = card.columns.find((c) => c.type === 'category')?.name
  if (extra) {
    w.line(
      `E = pd.get_dummies(pd.concat([train["${extra}"], test["${extra}"]]), dtype=float).values`,
      'X, T = np.c_[X, E[:len(X)]], np.c_[T, E[len(X):]]',
    )
  }
}

function seriesLines(w: Writer, card: TaskCard, v: SeriesView): void {
  const col = card.columns.find((c) => c.type === 'series')!.name
  w.line(`f = lambda d: [np.array(s.split(), float) for s in d["${col}"]]`, 'A, B = f(train), f(test)')
  const stats =
    'g = lambda q: np.array([[len(s), s.mean(), s.std(), np.abs(s).max(), np.abs(np.diff(s)).mean()] for s in q])'
  const fft = 'h = lambda q: np.array([np.log(np.abs(np.fft.rfft(s, 1024))[:96] + 1e-3) for s in q])'
  if (v.features !== 'fft') w.line(stats)
  if (v.features !== 'stats') w.line(fft)
  if (v.features === 'stats') w.line('X, T = g(A), g(B)')
  else if (v.features === 'fft') w.line('X, T = h(A), h(B)')
  else w.line('X, T = np.c_[g(A), h(A)], np.c_[g(B), h(B)]')
}

const STEP_CLASS: Record<Step['kind'], [string, string]> = {
  standard: ['sklearn.preprocessing', 'StandardScaler'],
  minmax: ['sklearn.preprocessing', 'MinMaxScaler'],
  quantile: ['sklearn.preprocessing', 'QuantileTransformer'],
  normalize: ['sklearn.preprocessing', 'Normalizer'],
  pca: ['sklearn.decomposition', 'PCA'],
  kbest: ['sklearn.feature_selection', 'SelectKBest'],
  poly: ['sklearn.preprocessing', 'PolynomialFeatures'],
}

function stepText(s: Step): string {
  const name = STEP_CLASS[s.kind][1]
  switch (s.kind) {
    case 'pca':
      return `PCA(n_components=${s.n}, random_state=0)`
    case 'kbest':
      return `SelectKBest(k=${s.n})`
    case 'poly':
      return 'PolynomialFeatures(2, include_bias=False)'
    case 'quantile':
      return 'QuantileTransformer(n_quantiles=200)'
    default:
      return `${name}()`
  }
}

function modelLines(w: Writer, spec: Spec, r: Random): void {
  const one = (m: ModelChoice): string => {
    let choice = m
    if (spec.bug === 'task') {
      const other = m.task === 'regress' ? 'classify' : 'regress'
      if (CLASSES[m.family][other]) choice = { ...m, task: other }
    }
    const sparse = spec.view.kind === 'text' && !spec.view.svd && spec.view.vector !== 'stats'
    const cls =
      choice.family === 'bayes' && sparse
        ? TEXT_BAYES[choice.args.length % 2 === 0 && r.next() < 0.5 ? 0 : 1]!
        : CLASSES[choice.family][choice.task]!
    if (spec.bug !== 'import') w.use(cls.module, cls.name)
    let args = choice.args.map(([k, v]) => `${k}=${v}`)
    if (spec.bug === 'param') args = [...args, r.pick(['n_trees=100', 'depth=5', 'iterations=200'])]
    if (spec.bug === 'slow')
      args = [
        ...args.filter((a) => !/^(n_estimators|max_iter)=/.test(a)),
        r.pick(['n_estimators=50000', 'n_estimators=20000']),
      ]
    if (['forest', 'extra', 'boosting', 'tree', 'mlp'].includes(choice.family)) args.push('random_state=0')
    if (choice.family === 'lightgbm') args.push('verbose=-1')
    const name = spec.bug === 'attr' ? `${cls.name}s` : cls.name
    return `${name}(${args.join(', ')})`
  }
  for (const s of spec.steps) w.use(...STEP_CLASS[s.kind])
  let text = one(spec.model)
  if (spec.second && spec.combine) {
    const b = one(spec.second)
    const suffix = spec.model.task === 'regress' ? 'Regressor' : 'Classifier'
    const cls = `${spec.combine === 'vote' ? 'Voting' : 'Stacking'}${suffix}`
    w.use('sklearn.ensemble', cls)
    const soft =
      spec.combine === 'vote' && spec.model.task === 'classify'
        ? ', voting="soft"'
        : spec.combine === 'stack'
          ? ', cv=3'
          : ''
    text = `${cls}([("a", ${text}), ("b", ${b})]${soft})`
  }
  if (spec.steps.length > 0) {
    w.use('sklearn.pipeline', 'make_pipeline')
    text = `make_pipeline(${[...spec.steps.map(stepText), text].join(', ')})`
  }
  w.line(`model = ${text}`)
}

function outputLines(w: Writer, card: TaskCard, spec: Spec, multi: boolean): void {
  const T = spec.bug === 'shape' ? 'X' : 'T'
  const o = spec.output
  const kind = card.submission.kind
  const back = (x: string): string =>
    spec.target === 'log' ? `np.expm1(${x})` : spec.target === 'sqrt' ? `np.square(${x})` : x
  const flat = spec.model.family === 'pls' && !multi ? `model.predict(${T}).ravel()` : `model.predict(${T})`
  switch (o.kind) {
    case 'predict':
      w.line(`p = ${back(flat)}`)
      break
    case 'clip':
      w.line(`p = np.clip(${back(flat)}, 0, None)`)
      break
    case 'round':
      w.line(`p = np.clip(np.round(${flat}), y.min(), y.max()).astype(int)`)
      break
    case 'threshold':
      w.line(`p = model.classes_[(model.predict_proba(${T})[:, 1] > ${o.at}).astype(int)]`)
      break
    case 'prior':
      w.line(
        `q = model.predict_proba(${T}) / y.value_counts(normalize=True)[model.classes_].values`,
        'p = model.classes_[q.argmax(axis=1)]',
      )
      break
    case 'proba':
    case 'decision': {
      const call = o.kind === 'proba' ? `model.predict_proba(${T})` : `model.decision_function(${T})`
      if (kind === 'topk')
        w.line(`o = np.argsort(-${call}, axis=1)[:, :3]`, 'p = [" ".join(q) for q in model.classes_[o]]')
      else if (kind === 'proba' || o.kind === 'decision') w.line(`p = ${call}`)
      else w.line(`p = ${call}[:, 1]`)
      break
    }
  }
}

function breakSyntax(lines: readonly string[], r: Random): string {
  const out = [...lines]
  const k = r.int(out.length)
  const l = out[k]!
  if (l.endsWith(':')) out[k] = l.slice(0, -1)
  else {
    const close = l.lastIndexOf(r.next() < 0.4 && l.includes('"') ? '"' : ')')
    out[k] = close >= 0 ? l.slice(0, close) + l.slice(close + 1) : `${l})`
  }
  return `${out.join('\n')}\n`
}
