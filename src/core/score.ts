/**
 * A reward: finite, in [0,1]. The one constructor throws on anything else, so that a NaN, a null or a raw
 * competition score can never be mistaken for one.
 */
export type Score = number & { readonly __score: unique symbol }

/** Raised when a number that is not finite or lies outside [0,1] is offered as a score. */
export class ScoreError extends Error {
  override readonly name = 'ScoreError'
}

/** @throws ScoreError when `x` is not a finite number in [0,1]. */
export function score(x: unknown): Score {
  if (typeof x !== 'number' || !Number.isFinite(x) || x < 0 || x > 1) {
    throw new ScoreError(`a score must be a finite number in [0,1], got ${String(x)}`)
  }
  return (x === 0 ? 0 : x) as Score
}
