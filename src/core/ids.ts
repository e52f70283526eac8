import { createHash } from 'node:crypto'

/** Hex SHA-256 of parts, each length-prefixed so that no two lists of parts share a digest by concatenation. */
export function contentHash(...parts: readonly (string | Uint8Array)[]): string {
  const h = createHash('sha256')
  for (const p of parts) {
    const bytes = typeof p === 'string' ? Buffer.from(p, 'utf8') : p
    h.update(`${bytes.length}:`)
    h.update(bytes)
  }
  return h.digest('hex')
}

/** Identifies an attempt within a run: `step/group/trajectory/turn` of training, or an evaluation's own path. */
export type AttemptId = string & { readonly __attempt: unique symbol }
export const attemptId = (s: string): AttemptId => s as AttemptId

/** Key of a verdict in a `VerdictStore`. */
export type ContentKey = string & { readonly __content: unique symbol }
export const contentKey = (s: string): ContentKey => s as ContentKey

/** Digest of a set of weights. */
export type WeightsVersion = string & { readonly __weights: unique symbol }
export const weightsVersion = (s: string): WeightsVersion => s as WeightsVersion
