import Database from 'libsql'
import { LedgerError, messageOf } from '../core/index.ts'

/** What SQLite can hold here. Booleans, dates and objects are refused before they reach the driver, which would abort. */
export type SqlValue = string | number | bigint | null | Uint8Array
export type SqlParams = Readonly<Record<string, SqlValue>>
export type Row = Record<string, SqlValue>

/** A transaction here takes milliseconds; on a slow disk under load, where several runs share the cache, seconds. */
const BUSY = 'PRAGMA busy_timeout=20000'

const REMOVE = 'put a copy of it back, or remove it to begin anew'

/** Where the file itself is at fault: no database, one with broken pages, or one without our tables (an empty one). */
function damaged(path: string, cause: unknown, advice: string): LedgerError | undefined {
  const why = /not a database|malformed|no such table|no such column/i.exec(messageOf(cause))?.[0]
  if (why === undefined) return undefined
  const what = why.startsWith('no such') ? 'is empty or holds no record of wmrl' : `is damaged (${why})`
  return new LedgerError(`${path} ${what}; ${advice}`, { cause })
}

/**
 * The only importer of `libsql`. Its traps that are closed here: parameters are checked one by one and by name; reads go
 * through `.all()` (`.get()` adds a field, `.run()` with RETURNING keeps the lock); text with NUL is refused, since it would
 * be cut (programs' output is stored as blobs); busy_timeout is set; transactions are immediate and never nested.
 */
export class Sqlite {
  private readonly db: Database.Database
  private readonly statements = new Map<string, Database.Statement>()
  private inside = false

  private constructor(
    readonly path: string,
    db: Database.Database,
    private readonly writes: boolean,
    private readonly advice: string,
  ) {
    this.db = db
  }

  /**
   * Opens for writing, in WAL with synchronous=FULL. One process writes; others use `openReadOnly`. `advice` is what to do about
   * a file that is damaged.
   */
  static open(path: string, advice = REMOVE): Sqlite {
    return Sqlite.guard(path, advice, () => {
      const db = new Database(path)
      const s = new Sqlite(path, db, true, advice)
      // First: switching to WAL already waits for another process's lock.
      db.exec(BUSY)
      db.exec('PRAGMA journal_mode=WAL')
      db.exec('PRAGMA synchronous=FULL')
      db.exec('PRAGMA foreign_keys=ON')
      return s
    })
  }

  static openReadOnly(path: string, advice = REMOVE): Sqlite {
    return Sqlite.guard(path, advice, () => {
      const db = new Database(path === ':memory:' ? path : `file:${encodeURI(path)}?mode=ro`)
      db.exec(BUSY)
      return new Sqlite(path, db, false, advice)
    })
  }

  private static guard<T>(path: string, advice: string, f: () => T): T {
    try {
      return f()
    } catch (cause) {
      throw (
        damaged(path, cause, advice) ??
        new LedgerError(`${path} cannot be opened as a database: ${messageOf(cause)}`, { cause })
      )
    }
  }

  exec(sql: string): void {
    this.wrap(sql, () => this.db.exec(sql))
  }

  run(sql: string, params: SqlParams = {}): void {
    this.wrap(sql, () => this.prepare(sql).run(checked(sql, params)))
  }

  all(sql: string, params: SqlParams = {}): Row[] {
    const rows = this.wrap(sql, () => this.prepare(sql).all(checked(sql, params)) as Record<string, unknown>[])
    // The driver hands blobs out as ArrayBuffer.
    for (const r of rows) for (const k of Object.keys(r)) if (r[k] instanceof ArrayBuffer) r[k] = new Uint8Array(r[k])
    return rows as Row[]
  }

  first(sql: string, params: SqlParams = {}): Row | undefined {
    return this.all(sql, params)[0]
  }

  /** Runs `f` in one immediate transaction; whatever it throws rolls back. */
  transaction<T>(f: () => T): T {
    if (this.inside) throw new LedgerError(`${this.path}: a transaction inside a transaction`)
    this.exec('BEGIN IMMEDIATE')
    this.inside = true
    try {
      const out = f()
      this.inside = false
      this.exec('COMMIT')
      return out
    } catch (e) {
      this.inside = false
      try {
        this.db.exec('ROLLBACK')
      } catch {
        // The first error is the one to tell; a failed COMMIT may already have rolled back.
      }
      throw e
    }
  }

  close(): void {
    this.statements.clear()
    if (this.writes) this.fold()
    this.db.close()
  }

  /**
   * Folds the log into the file: the driver leaves it beside a file that was closed, and who copies the file alone would miss
   * what is in it. Not waited for: where another process reads or writes, the log stays, and nothing is lost.
   */
  private fold(): void {
    try {
      this.db.exec('PRAGMA busy_timeout=0')
      this.db.prepare('PRAGMA wal_checkpoint(TRUNCATE)').all()
    } catch {
      // A full disk, say: the log holds everything, and the next one that closes tries again.
    }
  }

  private prepare(sql: string): Database.Statement {
    let s = this.statements.get(sql)
    if (!s) {
      s = this.db.prepare(sql)
      this.statements.set(sql, s)
    }
    return s
  }

  private wrap<T>(sql: string, f: () => T): T {
    try {
      return f()
    } catch (cause) {
      if (cause instanceof LedgerError) throw cause
      const bad = damaged(this.path, cause, this.advice)
      if (bad) throw bad
      const full = /disk I\/O error|database or disk is full|readonly/i.test(messageOf(cause))
      throw new LedgerError(
        `${this.path}: ${messageOf(cause)}${full ? '; free disk space or choose another run directory' : ` (in ${sql.slice(0, 60)})`}`,
        { cause },
      )
    }
  }
}

function checked(sql: string, params: SqlParams): Record<string, SqlValue | Buffer> {
  const wanted = new Set([...sql.matchAll(/[:@$]([A-Za-z_]\w*)/g)].map((m) => m[1]!))
  const out: Record<string, SqlValue | Buffer> = {}
  for (const k of wanted) if (!(k in params)) throw new LedgerError(`parameter ${k} is missing in ${sql.slice(0, 60)}`)
  for (const [k, v] of Object.entries(params)) {
    if (!wanted.has(k)) throw new LedgerError(`parameter ${k} is not used in ${sql.slice(0, 60)}`)
    if (v instanceof Uint8Array) {
      out[k] = Buffer.from(v.buffer, v.byteOffset, v.byteLength)
      continue
    }
    const ok =
      v === null ||
      typeof v === 'bigint' ||
      (typeof v === 'number' && Number.isFinite(v)) ||
      (typeof v === 'string' && !v.includes('\0'))
    if (!ok) throw new LedgerError(`parameter ${k} of ${sql.slice(0, 60)} cannot be stored: ${String(v).slice(0, 40)}`)
    out[k] = v
  }
  return out
}
