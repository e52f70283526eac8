import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { gunzipSync, gzipSync } from 'node:zlib'
import {
  type Attempt,
  attemptId,
  contentHash,
  keyed,
  MissingError,
  messageOf,
  packageRoot,
  type TaskRef,
  type Verdict,
} from '../core/index.ts'
import { Sqlite } from '../ledger/index.ts'
import type { RunConfig } from '../train/index.ts'
import { type CommandContext, Failed } from './command.ts'
import { home } from './paths.ts'
import { openRuntime } from './runtime.ts'
import { makeJudges, type NanoEngine } from './session.ts'

/** A row that no training changes, with the verdict that the recording gave. */
export interface RecordedRow {
  readonly task: TaskRef
  readonly code: string
  readonly verdict: Verdict
}

/** Executes a keyed share of the recorded rows again, without any cache. @throws Failed naming the first that differs. */
export async function verifyRows(
  { out, signal }: CommandContext,
  rows: readonly RecordedRow[],
  share: number,
  nano: NanoEngine,
  config: RunConfig,
): Promise<void> {
  const chosen = rows.filter((r) => keyed('verify', r.task.id, contentHash(r.code)).next() < share)
  await using rt = await openRuntime({ cache: false })
  const { pool, executor, grader } = rt
  const { executed } = makeJudges({ config, pool, executor, grader, nano, keyWithRung: false })
  const again = await Promise.all(
    executed.judge(
      chosen.map(
        (r, i): Attempt => ({
          id: attemptId(`verify/${i}`),
          task: r.task,
          action: { code: r.code },
          history: [],
          scope: 'final',
        }),
      ),
      signal,
    ),
  )
  // A limit in CPU seconds falls at another place on another processor: such rows show nothing.
  const limited = chosen.filter((r, i) => endedByLimit(r.verdict) || endedByLimit(again[i]!)).length
  const differ = chosen.filter(
    (r, i) => !endedByLimit(r.verdict) && !endedByLimit(again[i]!) && !sameVerdict(r.verdict, again[i]!),
  )
  out.log(
    `verified ${chosen.length} of ${rows.length} recorded rows by execution: ${differ.length} differences, ${limited} ended by a limit`,
  )
  if (differ.length > 0)
    throw new Failed(
      `the recording differs from an execution on ${differ[0]!.task.id}; run: npm run demo -- --no-cache`,
    )
}

const endedByLimit = (v: Verdict): boolean =>
  !('unscorable' in v) && v.source === 'executed' && ['timed-out', 'out-of-memory'].includes(v.outcome.kind)

/** Equal ends and, for graded ones, scores to 1e-6: other processors sum in another order. */
function sameVerdict(a: Verdict, b: Verdict): boolean {
  if ('unscorable' in a || 'unscorable' in b || a.source !== 'executed' || b.source !== 'executed') return false
  if (a.outcome.kind !== b.outcome.kind) return false
  return (
    a.outcome.kind !== 'graded' ||
    b.outcome.kind !== 'graded' ||
    Math.abs(a.outcome.score - b.outcome.score) <= 1e-6 * Math.max(1, Math.abs(a.outcome.score))
  )
}

export function demoDir(): string {
  const dir = join(home(), 'demo')
  mkdirSync(dir, { recursive: true })
  return dir
}

/** Executions of the rows that no training changes: an SQLite file, compressed. */
const shippedRecording = (): string => join(packageRoot(), 'assets', 'demo', 'executions.db.gz')

/**
 * SQLite writes beside its file; what is shipped stays as it is. A copy is of one recording: another one has another name.
 * @throws MissingError where the recording is damaged
 */
export function recordedCopy(shipped = shippedRecording()): string {
  const packed = existsSync(shipped) ? readFileSync(shipped) : undefined
  const digest = packed ? contentHash(packed).slice(0, 16) : 'none'
  const copy = join(demoDir(), `recorded-${digest}.db`)
  if (packed && !existsSync(copy)) {
    const part = `${copy}.${process.pid}`
    try {
      writeFileSync(part, gunzipSync(packed))
    } catch (e) {
      rmSync(part, { force: true })
      throw new MissingError(
        `${shipped} is damaged (${messageOf(e)})`,
        'git checkout it, or run npm run demo -- --no-cache',
      )
    }
    renameSync(part, copy)
  }
  for (const f of readdirSync(demoDir()))
    if (/^recorded\b/.test(f) && !f.startsWith(`recorded-${digest}.db`)) rmSync(join(demoDir(), f), { force: true })
  return copy
}

/** Puts a demo's own executions of those rows in the place of the shipped recording. */
export function keepRecording(path: string, shipped = shippedRecording()): string {
  const whole = `${path}.whole`
  rmSync(whole, { force: true })
  const db = Sqlite.open(path)
  try {
    db.exec(`VACUUM INTO '${whole.replaceAll("'", "''")}'`)
  } finally {
    db.close()
  }
  mkdirSync(dirname(shipped), { recursive: true })
  writeFileSync(`${shipped}.part`, gzipSync(readFileSync(whole), { level: 9 }))
  renameSync(`${shipped}.part`, shipped)
  rmSync(whole, { force: true })
  return shipped
}

/** A file for executions of one demo, so that each pays for its own; removed at its end, or by a later demo if it was killed. */
export function freshCache(name: 'fresh' | 'recording'): Disposable & { readonly path: string } {
  for (const f of readdirSync(demoDir())) {
    const pid = /^(?:fresh|recording)-(\d+)-/.exec(f)?.[1]
    if (pid && !existsSync(`/proc/${pid}`)) rmSync(join(demoDir(), f), { force: true })
  }
  const path = join(demoDir(), `${name}-${process.pid}-${Date.now()}.db`)
  return {
    path,
    [Symbol.dispose]() {
      for (const end of ['', '-wal', '-shm']) rmSync(`${path}${end}`, { force: true })
    },
  }
}
