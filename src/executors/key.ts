import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { contentHash } from '../core/index.ts'
import type { Limits } from '../sandbox/index.ts'

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

/** Digest of every file of a folder, names included, in sorted order. */
export async function folderHash(dir: string): Promise<string> {
  const h = createHash('sha256')
  const visit = async (path: string, name: string): Promise<void> => {
    const entries = await readdir(path, { withFileTypes: true })
    for (const e of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
      const inner = join(path, e.name)
      const label = `${name}/${e.name}`
      if (e.isDirectory()) await visit(inner, label)
      else {
        const bytes = await readFile(inner)
        h.update(`${label}:${bytes.length}:`)
        h.update(bytes)
      }
    }
  }
  await visit(dir, '')
  return h.digest('hex')
}
