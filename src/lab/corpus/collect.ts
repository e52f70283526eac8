import { keyed } from '../../core/index.ts'
import type { Task } from '../../tasks/index.ts'
import { renderSpec } from '../grammar/render.ts'
import { mutateSpec, sampleSpec } from '../grammar/sample.ts'
import type { Spec } from '../grammar/spec.ts'
import { programsFor } from '../headroom.ts'
import { type ProgramScorer, pool, type RawResult } from '../score-program.ts'

/** What a program came to, as it is kept: the raw feedback score, or the observation's text. */
export type Ended = { readonly score: number } | { readonly text: string }

/** Two programs on one task, the second a repair or variation of the first; or one program that a policy wrote. */
export interface CorpusRow {
  readonly suite: string
  readonly task: string
  readonly key: string
  readonly first: { readonly code: string; readonly end: Ended }
  readonly second?: { readonly code: string; readonly end: Ended }
}

export interface CollectOptions {
  readonly seed: number
  readonly pairs: (task: Task) => number
  /** Pairs of the programs that the head-room is measured with, without mistakes: a denser sample of what scores what. */
  readonly plainPairs: (task: Task) => number
  /** Chance of a named mistake in the first program. */
  readonly bug: number
  readonly width: number
  readonly known: ReadonlySet<string>
  readonly onRow: (row: CorpusRow) => void
  readonly onUnscorable?: (detail: string) => void
}

/** Executes the grammar's programs, pair by pair; rows already known are not run again. */
export async function collectPairs(
  tasks: readonly Task[],
  scorer: ProgramScorer,
  o: CollectOptions,
  signal: AbortSignal,
): Promise<void> {
  const run = (task: Task, code: string): Promise<RawResult> => scorer.score(task, code, ['feedback'], signal)
  const keep = (task: Task, key: string, first: string, a: RawResult, second: string, b: RawResult): void => {
    if (a.kind === 'unscorable' || b.kind === 'unscorable') {
      o.onUnscorable?.(a.kind === 'unscorable' ? a.detail : b.kind === 'unscorable' ? b.detail : '')
      return
    }
    o.onRow({
      suite: task.ref.suite,
      task: task.ref.id,
      key,
      first: { code: first, end: ended(a) },
      second: { code: second, end: ended(b) },
    })
  }
  const jobs = tasks.flatMap((task) => {
    const name = `${task.ref.suite}/${task.ref.id}`
    const own = Array.from({ length: o.pairs(task) }, (_, k) => async () => {
      const key = `${name}/${k}`
      if (o.known.has(key)) return
      signal.throwIfAborted()
      const { card } = task
      const r = keyed('corpus', o.seed, task.ref.suite, task.ref.id, k)
      const spec = sampleSpec(card, r, { bug: o.bug, careless: 0.08 })
      const first = renderSpec(card, spec, r)
      const a = await run(task, first)
      const second = renderSpec(card, nextSpec(task, spec, a, r), r)
      keep(task, key, first, a, second, await run(task, second))
    })
    const n = o.plainPairs(task)
    const plain = n === 0 ? [] : keyed('plain', o.seed, name).shuffle(programsFor(task.card, 2 * n))
    const others = Array.from({ length: n }, (_, k) => async () => {
      const key = `${name}/plain/${k}`
      if (o.known.has(key)) return
      signal.throwIfAborted()
      const [first, second] = [plain[2 * k]!.code, plain[2 * k + 1]!.code]
      keep(task, key, first, await run(task, first), second, await run(task, second))
    })
    return [...own, ...others]
  })
  // Tasks alternate, so that an interrupted collection has something of every task.
  await pool(keyed('corpus', o.seed, 'order').shuffle(jobs), o.width)
}

function nextSpec(task: Task, spec: Spec, a: RawResult, r: ReturnType<typeof keyed>): Spec {
  if (spec.bug && a.kind === 'failed' && r.next() < 0.7) {
    const { bug: _bug, ...repaired } = spec
    return repaired
  }
  return mutateSpec(task.card, r, spec)
}

export const ended = (r: Exclude<RawResult, { kind: 'unscorable' }>): Ended =>
  r.kind === 'valid' ? { score: r.scores.feedback! } : { text: r.text }
