import type { Sqlite } from './sqlite.ts'

/** A finished run as it is kept. `end` is JSON without the submission, which stands beside it as bytes. */
export interface StoredExecution {
  readonly end: string
  readonly submission: Uint8Array | undefined
  readonly stdout: Uint8Array
  readonly stderr: Uint8Array
  readonly cost: string
  readonly rung: string
}

/** Executions by content key, in a database of their own that runs share. */
export class ExecutionCache {
  constructor(private readonly db: Sqlite) {
    db.exec(`CREATE TABLE IF NOT EXISTS executions(
      key TEXT PRIMARY KEY, end TEXT NOT NULL, submission BLOB, stdout BLOB NOT NULL, stderr BLOB NOT NULL,
      cost TEXT NOT NULL, rung TEXT NOT NULL) WITHOUT ROWID`)
  }

  find(key: string): StoredExecution | undefined {
    const r = this.db.first('SELECT end, submission, stdout, stderr, cost, rung FROM executions WHERE key = :key', {
      key,
    })
    if (!r) return undefined
    return {
      end: r.end as string,
      submission: (r.submission as Uint8Array | null) ?? undefined,
      stdout: r.stdout as Uint8Array,
      stderr: r.stderr as Uint8Array,
      cost: r.cost as string,
      rung: r.rung as string,
    }
  }

  put(key: string, e: StoredExecution): void {
    this.db.run(
      `INSERT INTO executions(key, end, submission, stdout, stderr, cost, rung)
       VALUES(:key, :end, :submission, :stdout, :stderr, :cost, :rung) ON CONFLICT(key) DO NOTHING`,
      {
        key,
        end: e.end,
        submission: e.submission ?? null,
        stdout: e.stdout,
        stderr: e.stderr,
        cost: e.cost,
        rung: e.rung,
      },
    )
  }

  count(): number {
    return Number(this.db.first('SELECT count(*) AS n FROM executions')!.n)
  }

  close(): void {
    this.db.close()
  }
}
