import type { Belief, OutcomeKind } from '../core/index.ts'

/** The belief in what a parser knows: no world model was asked. */
export function certain(kind: OutcomeKind, detail?: string): { belief: Belief; tokens: number } {
  return {
    belief: { alternatives: [{ kind, p: 1, ...(detail === undefined ? {} : { detail }) }], shown: 0 },
    tokens: 0,
  }
}
