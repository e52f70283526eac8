import { contentHash } from '../core/index.ts'
import type { Limits } from '../sandbox/index.ts'

/** The digest of the public data that a key holds. */
export { folderHash } from '../core/index.ts'

/** Execution key = program, public data, environment, limits, task seed, rung. New boards or answers never re-execute. */
export function executionKey(k: {
  code: string
  dataHash: string
  environment: string
  limits: Limits
  seed: number
  /** Left out (undefined) in recorded caches, whose results stand for every rung. */
  rung: string | undefined
}): string {
  const l = k.limits
  const limits = [l.cpuS, l.wallS ?? 0, l.memoryMb, l.outputBytes, l.submissionBytes, l.diskMb, l.processes, l.cpus]
  return contentHash(
    'execution/1',
    k.code,
    k.dataHash,
    k.environment,
    JSON.stringify(limits),
    String(k.seed),
    k.rung ?? '*',
  )
}
