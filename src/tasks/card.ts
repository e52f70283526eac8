import { z } from 'zod'

/** The 24 metrics of the built-in suite. */
export const METRIC_NAMES = [
  'rmse',
  'rmsle',
  'mae',
  'r2',
  'mape',
  'smape',
  'poisson_deviance',
  'spearman',
  'auc',
  'log_loss',
  'brier',
  'average_precision',
  'capture_at_20',
  'accuracy',
  'balanced_accuracy',
  'macro_f1',
  'f1',
  'mcc',
  'qwk',
  'cindex',
  'mc_log_loss',
  'map_at_3',
  'top3_accuracy',
  'mcrmse',
] as const
export type MetricName = (typeof METRIC_NAMES)[number]

/** value: one number; prob: one probability; label: one class; proba: a column a class; topk: a list; multi: several numbers. */
export const SUBMISSION_KINDS = ['value', 'prob', 'label', 'proba', 'topk', 'multi'] as const
export type SubmissionKind = (typeof SUBMISSION_KINDS)[number]

/**
 * A task's card (`task.json`): everything about it that is neither data nor answers. `submission.columns` are the columns
 * after the id; `classes` the labels in sorted order where there are any.
 */
export const taskCard = z.strictObject({
  schema: z.literal('wmrl-task/2'),
  id: z.string().regex(/^[a-z0-9][a-z0-9-]*$/),
  suite: z.enum(['builtin', 'small']),
  title: z.string(),
  modality: z.enum(['tabular', 'text', 'image', 'signal']),
  split: z.enum(['train', 'dev', 'heldout']),
  /** False where a task stays in the suite but is not trained on (too few feedback rows). */
  trainable: z.boolean(),
  metric: z.strictObject({ name: z.enum(METRIC_NAMES), higherIsBetter: z.boolean() }),
  submission: z.strictObject({
    kind: z.enum(SUBMISSION_KINDS),
    idColumn: z.string(),
    columns: z.array(z.string()).min(1),
    classes: z.array(z.string()).optional(),
  }),
  targets: z.array(z.string()).min(1),
  /** Columns of the data beside id and targets, in file order. `missing` tells of empty cells in train or test. */
  columns: z.array(
    z.strictObject({
      name: z.string(),
      type: z.enum(['number', 'category', 'text', 'date', 'file', 'series']),
      levels: z.number().int().optional(),
      missing: z.boolean(),
    }),
  ),
  /** Where pictures are, if anywhere. */
  images: z.enum(['png', 'zip', 'npz']).optional(),
  /** Set where every column is a pixel of one picture: its height and width, and the value of white. */
  pixels: z.strictObject({ height: z.number().int(), width: z.number().int(), white: z.number() }).optional(),
  /** Extra columns of the training table (a survival task's event indicator). */
  extraTrainColumns: z.array(z.string()),
  rows: z.strictObject({
    train: z.number().int(),
    test: z.number().int(),
    feedback: z.number().int(),
    final: z.number().int(),
  }),
  /** Facts of the training target that a program's form depends on. */
  target: z.strictObject({
    type: z.enum(['number', 'integer', 'label']),
    positive: z.boolean(),
    skewed: z.boolean(),
    /** Share of the rarest class, for labels and probabilities. */
    rarest: z.number().optional(),
  }),
  story: z.string(),
  metricFormula: z.string(),
  splitRule: z.enum(['row', 'group', 'time']),
  notes: z.array(z.string()),
  source: z.strictObject({
    registry: z.string(),
    package: z.string(),
    item: z.string(),
    sha256: z.string().nullable(),
  }),
  licence: z.string(),
  leakChecks: z.record(z.string(), z.unknown()),
})
export type TaskCard = z.infer<typeof taskCard>
