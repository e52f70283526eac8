import type { TaskCard } from '../../tasks/index.ts'
import { NO_PROBABILITY } from '../grammar/families.ts'
import { modalityOf } from '../grammar/sample.ts'
import type { Family, OutputForm, Spec, TargetForm } from '../grammar/spec.ts'

export interface Named {
  readonly name: string
  readonly family: string
  readonly spec: Spec
}

export type Args = readonly (readonly [string, string])[]

/** What the metric asks of target and output, for a model of one kind. The first is the sensible one. */
export function forms(
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

export function tasksOf(card: TaskCard): readonly ('regress' | 'classify')[] {
  const kind = card.submission.kind
  if (card.metric.name === 'cindex') return ['classify', 'regress']
  if (card.metric.name === 'qwk') return ['regress', 'classify']
  return kind === 'value' || kind === 'multi' ? ['regress'] : ['classify']
}

export const needsProbability = (card: TaskCard): boolean =>
  card.submission.kind === 'proba' || ['log_loss', 'brier'].includes(card.metric.name)

/** Whether a family can serve a task of this kind within a recipe's limit. */
export function suits(card: TaskCard, task: 'regress' | 'classify', family: Family): boolean {
  const many = (card.submission.classes?.length ?? 0) > 12
  if (many && ['boosting', 'histboost'].includes(family)) return false
  // LinearSVR does not converge on sparse text within its limit.
  if (modalityOf(card) === 'text' && family === 'linearsvm' && task === 'regress') return false
  if (task === 'regress' ? ['logistic', 'bayes', 'discriminant'].includes(family) : family === 'pls') return false
  return card.submission.kind !== 'multi' || !['lightgbm', 'histboost', 'boosting', 'svm', 'linearsvm'].includes(family)
}
