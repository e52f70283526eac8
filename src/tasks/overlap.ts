import { join } from 'node:path'
import { z } from 'zod'
import { MissingError, type Split, TaskError } from '../core/index.ts'
import type { TaskCard } from './card.ts'
import { suiteDir } from './catalogue.ts'
import { NotInstalled, runClient } from './client.ts'

/** Two tasks that have something in common: rows or pictures (`data`, with the share of the smaller), or a source's name. */
export interface Overlap {
  readonly a: string
  readonly b: string
  readonly kind: 'data' | 'name'
  readonly share: number
  /** Splits of `a` and `b`. */
  readonly sides: readonly [Split, Split]
}

const line = z.object({
  a: z.string(),
  b: z.string(),
  kind: z.literal('data'),
  share: z.number(),
  sides: z.tuple([z.enum(['train', 'dev', 'heldout']), z.enum(['train', 'dev', 'heldout'])]),
})
const progressLine = z.union([
  z.object({ read: z.number(), of: z.number() }),
  z.object({ compared: z.number(), of: z.number() }),
])
const CEILING_MS = 60 * 60_000

/** Pairs of prepared tasks whose data overlap by the twins test (python/suite/twins.py). */
export async function dataOverlap(o: {
  readonly python: string
  readonly dataDir: string
  readonly suites: readonly string[]
  readonly signal: AbortSignal
  /** Told how many tasks are read, then how many of their pairs are compared: the whole pool takes minutes. */
  readonly progress?: (done: number, of: number, what: 'tasks' | 'pairs') => void
}): Promise<Overlap[]> {
  const out: Overlap[] = []
  const args = [join(suiteDir(), 'main.py'), 'twins', '--data', o.dataDir, '--suites', o.suites.join(',')]
  const env = { ...process.env, PYTHONNOUSERSITE: '1', PYTHONDONTWRITEBYTECODE: '1', OMP_NUM_THREADS: '1' }
  const onLine = async (l: string): Promise<void> => {
    const json: unknown = JSON.parse(l)
    const p = progressLine.safeParse(json).data
    if (p === undefined) out.push(line.parse(json))
    else if ('read' in p) o.progress?.(p.read, p.of, 'tasks')
    else o.progress?.(p.compared, p.of, 'pairs')
  }
  const end = await runClient(o.python, args, { env, signal: o.signal, ceilingMs: CEILING_MS, onLine }).catch((e) => {
    throw e instanceof NotInstalled ? new MissingError(`there is no ${o.python}`, 'run: npm run setup') : e
  })
  if (end.lastError.startsWith('suite: ')) throw new MissingError(end.lastError.slice(7), 'run: npm run setup')
  if (end.code !== 0) throw new TaskError(`the twins test ended with ${end.killedBy ?? end.code}: ${end.lastError}`)
  return out
}

/** Pairs of cards on different sides, or of different suites, whose sources have the same name. */
export function nameOverlap(cards: readonly TaskCard[]): Overlap[] {
  const name = (c: TaskCard): string => c.source.item.toLowerCase().split('/').pop()!
  const out: Overlap[] = []
  cards.forEach((b, i) => {
    for (const a of cards.slice(0, i)) {
      if (name(a) !== name(b) || (a.suite === b.suite && a.split === b.split)) continue
      out.push({ a: `${a.suite}/${a.id}`, b: `${b.suite}/${b.id}`, kind: 'name', share: 1, sides: [a.split, b.split] })
    }
  })
  return out
}
