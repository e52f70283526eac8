import type { InvalidCode, Scope } from '../core/index.ts'
import type { TaskCard } from '../tasks/index.ts'
import { checkSubmission, decodeUtf8, readCsv } from './check.ts'
import { evaluate } from './metrics.ts'
import { position } from './percentile.ts'

/** Of the asked scope only. `fault` is trouble of ours: the reward is then undefined, never 0. */
export type GradeResult =
  | {
      readonly kind: 'scored'
      readonly scope: Scope
      readonly score: number
      readonly percentile: number
      readonly n: number
    }
  | { readonly kind: 'invalid'; readonly code: InvalidCode; readonly message: string }
  | { readonly kind: 'fault'; readonly where: 'answers' | 'grader' | 'board'; readonly message: string }

/** One scope's answers: the ids of *all* test rows, and truth for the rows of the scope. */
export interface Answers {
  readonly ids: readonly string[]
  readonly scopeIds: readonly string[]
  readonly truth: readonly (readonly string[])[]
  readonly event?: readonly string[]
}

/**
 * Reads a scope's answers file: header `id,<targets>[,event]`, one line a row of the scope; `ids` are those of test.csv.
 * @throws Error naming the fault; the caller reports it as `fault`, where `answers`.
 */
export function readAnswers(card: TaskCard, ids: readonly string[], bytes: Uint8Array): Answers {
  const text = decodeUtf8(bytes)
  if (text === undefined) throw new Error('the answers are not UTF-8')
  const t = readCsv(text)
  if ('error' in t) throw new Error(`the answers cannot be read: ${t.error}`)
  const col = (name: string): string[] => {
    const k = t.header.indexOf(name)
    if (k < 0) throw new Error(`the answers lack column ${name}`)
    return t.rows.map((r) => r[k]!.trim())
  }
  const truth = card.targets.map(col)
  const base = { ids, scopeIds: col(card.submission.idColumn), truth }
  return card.metric.name === 'cindex' ? { ...base, event: col('event') } : base
}

/** Checks a submission as a whole, then scores the rows of the scope and places the score on that scope's board. */
export function gradeSubmission(
  card: TaskCard,
  answers: Answers,
  board: readonly number[],
  scope: Scope,
  submission: Uint8Array,
): GradeResult {
  const checked = checkSubmission(card, answers.ids, submission)
  if ('code' in checked) return { kind: 'invalid', ...checked }
  const place = new Map(answers.ids.map((id, i) => [id, i]))
  const at: number[] = []
  for (const id of answers.scopeIds) {
    const k = place.get(id)
    if (k === undefined) return { kind: 'fault', where: 'answers', message: `answer id ${id} is not in test.csv` }
    at.push(k)
  }
  let score: number
  try {
    score = evaluate(card.metric.name, {
      predicted: checked.predicted.map((c) => at.map((k) => c[k]!)),
      truth: answers.truth,
      ...(answers.event ? { event: answers.event } : {}),
      classes: card.submission.columns.length > 1 ? card.submission.columns : (card.submission.classes ?? []),
    })
  } catch (e) {
    return { kind: 'fault', where: 'grader', message: e instanceof Error ? e.message : String(e) }
  }
  if (!Number.isFinite(score))
    return { kind: 'fault', where: 'grader', message: `${card.metric.name} is not finite on these rows` }
  if (board.length < 2)
    return { kind: 'fault', where: 'board', message: `the ${scope} board has ${board.length} entries` }
  const clean = score === 0 ? 0 : score
  return {
    kind: 'scored',
    scope,
    score: clean,
    percentile: position(clean, board, card.metric.higherIsBetter).percentile,
    n: at.length,
  }
}
