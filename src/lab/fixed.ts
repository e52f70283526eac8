import { keyed } from '../core/index.ts'
import type { TaskCard } from '../tasks/index.ts'
import { renderSpec } from './grammar/render.ts'
import { portablePrograms } from './headroom.ts'

/** The programs that stand beside an agent: one of each kind with sensible preprocessing, the same on every task. */
export const FIXED = [
  { name: 'forest', portable: 'forest-100/a' },
  { name: 'boosting', portable: 'lightgbm-200/a' },
  { name: 'linear', portable: 'linear/a' },
] as const

export function fixedProgram(card: TaskCard, portable: string): string {
  const p = portablePrograms().find((x) => x.name === portable)
  if (!p) throw new RangeError(`no portable program ${portable}`)
  return renderSpec(card, p.spec(card), keyed('fixed', card.id, portable))
}
