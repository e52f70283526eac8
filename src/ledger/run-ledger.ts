import { type ContentKey, LedgerError, type Verdict, type VerdictStore } from '../core/index.ts'
import { Sqlite } from './sqlite.ts'

const SCHEMA = `
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verdicts(key TEXT PRIMARY KEY, verdict TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS steps(step INTEGER PRIMARY KEY, record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS groups(step INTEGER NOT NULL, grp INTEGER NOT NULL, task TEXT NOT NULL, anchor INTEGER NOT NULL,
  predicted TEXT NOT NULL, executed TEXT, corrected TEXT NOT NULL, advantages TEXT, skipped TEXT, PRIMARY KEY(step, grp)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attempts(step INTEGER NOT NULL, grp INTEGER NOT NULL, traj INTEGER NOT NULL, turn INTEGER NOT NULL,
  code TEXT, verdict TEXT NOT NULL, shadow TEXT, PRIMARY KEY(step, grp, traj, turn)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trajectories(step INTEGER NOT NULL, grp INTEGER NOT NULL, traj INTEGER NOT NULL, ended TEXT NOT NULL,
  tokens BLOB NOT NULL, mask BLOB NOT NULL, logprobs BLOB NOT NULL, coefficient REAL, unscorable TEXT, PRIMARY KEY(step, grp, traj)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS checkpoints(step INTEGER PRIMARY KEY, weights TEXT NOT NULL, location TEXT NOT NULL, state TEXT NOT NULL, complete INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS evaluations(name TEXT NOT NULL, task TEXT NOT NULL, sample INTEGER NOT NULL, turn INTEGER NOT NULL, code TEXT,
  feedback TEXT NOT NULL, final TEXT, weights TEXT, PRIMARY KEY(name, task, sample, turn)) WITHOUT ROWID;
`
const SCHEMA_VERSION = '1'
/** A run's record is not to be removed lightly: its checkpoints cannot be gone on with without it. */
const ADVICE = 'put a copy of it back, or train anew in another folder'
const OF_A_STEP = ['groups', 'attempts', 'trajectories']

export interface StepRow {
  readonly step: number
  readonly record: unknown
}
export interface GroupRow {
  readonly step: number
  readonly group: number
  readonly task: string
  readonly anchor: boolean
  readonly predicted: readonly (number | null)[]
  readonly executed: readonly (number | null)[] | undefined
  readonly corrected: readonly (number | null)[]
  readonly advantages: readonly (number | null)[] | undefined
  readonly skipped: string | undefined
}
export interface AttemptRow {
  readonly step: number
  readonly group: number
  readonly trajectory: number
  readonly turn: number
  readonly code: string | undefined
  readonly verdict: Verdict
  readonly shadow: Verdict | undefined
}
export interface TrajectoryRow {
  readonly step: number
  readonly group: number
  readonly trajectory: number
  readonly ended: string
  readonly tokens: readonly number[]
  readonly mask: readonly number[]
  readonly logprobs: readonly number[]
  /** What the engine was given; null where the trajectory took no part. */
  readonly coefficient: number | null
  readonly unscorable: string | undefined
}
export interface CheckpointRow {
  readonly step: number
  readonly weights: string
  readonly location: string
  readonly state: unknown
}
export interface EvaluationRow {
  readonly name: string
  /** Version of the weights that were evaluated; undefined in rows of earlier versions. */
  readonly weights: string | undefined
  readonly task: string
  readonly sample: number
  readonly turn: number
  readonly code: string | undefined
  readonly feedback: Verdict
  readonly final: Verdict | undefined
}

/** One run's record (`run.db`): everything that a number of the run rests on. One process writes it. */
export class RunLedger implements VerdictStore {
  private constructor(private readonly db: Sqlite) {}

  /** Opens or creates. @throws LedgerError when the file is no ledger of this version. */
  static open(path: string): RunLedger {
    const db = Sqlite.open(path, ADVICE)
    db.exec(SCHEMA)
    const l = new RunLedger(db)
    if (l.meta('schema') === undefined) l.setMeta('schema', SCHEMA_VERSION)
    l.check()
    // Ledgers of earlier versions lack this column; to those versions it does no harm.
    if (!db.all('PRAGMA table_info(evaluations)').some((c) => c.name === 'weights'))
      db.exec('ALTER TABLE evaluations ADD COLUMN weights TEXT')
    return l
  }

  /** @throws LedgerError when the file is no ledger of this version. */
  static openReadOnly(path: string): RunLedger {
    const l = new RunLedger(Sqlite.openReadOnly(path, ADVICE))
    l.check()
    return l
  }

  private check(): void {
    const version = this.meta('schema')
    if (version !== SCHEMA_VERSION)
      throw new LedgerError(
        `${this.db.path} has schema ${version ?? 'none'}, this wmrl reads ${SCHEMA_VERSION}; use the version that wrote it`,
      )
  }

  meta(key: string): string | undefined {
    return this.db.first('SELECT value FROM meta WHERE key = :key', { key })?.value as string | undefined
  }
  setMeta(key: string, value: string): void {
    this.db.run(
      'INSERT INTO meta(key, value) VALUES(:key, :value) ON CONFLICT(key) DO UPDATE SET value = excluded.value',
      { key, value },
    )
  }

  async find(key: ContentKey): Promise<Verdict | undefined> {
    const r = this.db.first('SELECT verdict FROM verdicts WHERE key = :key', { key })
    return r ? (JSON.parse(r.verdict as string) as Verdict) : undefined
  }
  async commit(key: ContentKey, v: Verdict): Promise<void> {
    this.db.run('INSERT INTO verdicts(key, verdict) VALUES(:key, :v) ON CONFLICT(key) DO NOTHING', { key, v: json(v) })
  }
  verdictCount(): number {
    return Number(this.db.first('SELECT count(*) AS n FROM verdicts')!.n)
  }

  /** A whole step in one transaction; one computed again replaces the earlier one with all of its rows. */
  commitStep(
    s: StepRow,
    groups: readonly GroupRow[],
    trajectories: readonly TrajectoryRow[],
    attempts: readonly AttemptRow[],
    checkpoint?: CheckpointRow,
  ): void {
    this.db.transaction(() => {
      for (const table of ['steps', ...OF_A_STEP])
        this.db.run(`DELETE FROM ${table} WHERE step = :step`, { step: s.step })
      this.db.run('INSERT INTO steps(step, record) VALUES(:step, :record)', {
        step: s.step,
        record: json(s.record),
      })
      for (const g of groups) {
        this.db.run(
          `INSERT INTO groups(step, grp, task, anchor, predicted, executed, corrected, advantages, skipped)
           VALUES(:step, :grp, :task, :anchor, :predicted, :executed, :corrected, :advantages, :skipped)`,
          {
            step: g.step,
            grp: g.group,
            task: g.task,
            anchor: g.anchor ? 1 : 0,
            predicted: json(g.predicted),
            executed: g.executed ? json(g.executed) : null,
            corrected: json(g.corrected),
            advantages: g.advantages ? json(g.advantages) : null,
            skipped: g.skipped ?? null,
          },
        )
      }
      for (const t of trajectories) {
        this.db.run(
          `INSERT INTO trajectories(step, grp, traj, ended, tokens, mask, logprobs, coefficient, unscorable)
           VALUES(:step, :grp, :traj, :ended, :tokens, :mask, :logprobs, :coefficient, :unscorable)`,
          {
            step: t.step,
            grp: t.group,
            traj: t.trajectory,
            ended: t.ended,
            tokens: bytes(Int32Array.from(t.tokens)),
            mask: Uint8Array.from(t.mask),
            logprobs: bytes(Float32Array.from(t.logprobs)),
            coefficient: t.coefficient,
            unscorable: t.unscorable ?? null,
          },
        )
      }
      for (const a of attempts) {
        this.db.run(
          `INSERT INTO attempts(step, grp, traj, turn, code, verdict, shadow) VALUES(:step, :grp, :traj, :turn, :code, :verdict, :shadow)`,
          {
            step: a.step,
            grp: a.group,
            traj: a.trajectory,
            turn: a.turn,
            code: clean(a.code),
            verdict: json(a.verdict),
            shadow: a.shadow ? json(a.shadow) : null,
          },
        )
      }
      if (checkpoint) this.putCheckpoint(checkpoint)
    })
  }

  /** Forgets everything later than a step but the verdicts, which were paid for. */
  rewind(step: number): void {
    this.db.transaction(() => {
      for (const table of ['steps', ...OF_A_STEP, 'checkpoints'])
        this.db.run(`DELETE FROM ${table} WHERE step > :step`, { step })
    })
  }

  /** Names weights that are already on disk; the row is the completeness marker. */
  commitCheckpoint(c: CheckpointRow): void {
    this.db.transaction(() => this.putCheckpoint(c))
  }
  private putCheckpoint(c: CheckpointRow): void {
    this.db.run(
      'INSERT OR REPLACE INTO checkpoints(step, weights, location, state, complete) VALUES(:step, :weights, :location, :state, 1)',
      {
        step: c.step,
        weights: c.weights,
        location: c.location,
        state: json(c.state),
      },
    )
  }
  checkpoints(): CheckpointRow[] {
    return this.db
      .all('SELECT step, weights, location, state FROM checkpoints WHERE complete = 1 ORDER BY step DESC')
      .map((r) => ({
        step: Number(r.step),
        weights: r.weights as string,
        location: r.location as string,
        state: JSON.parse(r.state as string) as unknown,
      }))
  }
  /** Keeps the newest `keep` checkpoints' rows; returns the locations that no row names any more. */
  pruneCheckpoints(keep: number): string[] {
    const rows = this.checkpoints()
    const gone = rows.slice(keep)
    for (const g of gone) this.db.run('DELETE FROM checkpoints WHERE step = :step', { step: g.step })
    const named = new Set(rows.slice(0, keep).map((r) => r.location))
    return gone.map((g) => g.location).filter((l) => !named.has(l))
  }

  steps(): StepRow[] {
    return this.db
      .all('SELECT step, record FROM steps ORDER BY step')
      .map((r) => ({ step: Number(r.step), record: JSON.parse(r.record as string) as unknown }))
  }
  groups(step?: number): GroupRow[] {
    const rows =
      step === undefined
        ? this.db.all('SELECT * FROM groups ORDER BY step, grp')
        : this.db.all('SELECT * FROM groups WHERE step = :step ORDER BY grp', { step })
    return rows.map((r) => ({
      step: Number(r.step),
      group: Number(r.grp),
      task: r.task as string,
      anchor: r.anchor === 1,
      predicted: parse(r.predicted),
      executed: r.executed === null ? undefined : parse(r.executed),
      corrected: parse(r.corrected),
      advantages: r.advantages === null ? undefined : parse(r.advantages),
      skipped: (r.skipped as string | null) ?? undefined,
    }))
  }
  attempts(step?: number): AttemptRow[] {
    const rows =
      step === undefined
        ? this.db.all('SELECT * FROM attempts ORDER BY step, grp, traj, turn')
        : this.db.all('SELECT * FROM attempts WHERE step = :step ORDER BY grp, traj, turn', { step })
    return rows.map((r) => ({
      step: Number(r.step),
      group: Number(r.grp),
      trajectory: Number(r.traj),
      turn: Number(r.turn),
      code: (r.code as string | null) ?? undefined,
      verdict: parse(r.verdict),
      shadow: r.shadow === null ? undefined : parse(r.shadow),
    }))
  }
  /** Versions of the world models that predicted in this run: one, unless it was gone on with from another backbone. */
  worldModels(): string[] {
    return this.db
      .all(
        `SELECT DISTINCT json_extract(v, '$.model') AS model FROM
         (SELECT verdict AS v FROM attempts UNION ALL SELECT shadow FROM attempts WHERE shadow IS NOT NULL)
         WHERE json_extract(v, '$.model') IS NOT NULL ORDER BY model`,
      )
      .map((r) => r.model as string)
  }
  coefficients(step: number): {
    group: number
    trajectory: number
    coefficient: number | null
    unscorable: string | undefined
    /** Whether any of its tokens was sampled: what has none takes no part. */
    sampled: boolean
  }[] {
    return this.db
      .all(
        `SELECT grp, traj, coefficient, unscorable, instr(mask, x'01') > 0 AS sampled FROM trajectories
         WHERE step = :step ORDER BY grp, traj`,
        { step },
      )
      .map((r) => ({
        group: Number(r.grp),
        trajectory: Number(r.traj),
        coefficient: r.coefficient as number | null,
        unscorable: (r.unscorable as string | null) ?? undefined,
        sampled: r.sampled === 1,
      }))
  }

  /** Replaces earlier evaluations of the same names. */
  putEvaluation(rows: readonly EvaluationRow[]): void {
    this.db.transaction(() => {
      for (const name of new Set(rows.map((e) => e.name)))
        this.db.run('DELETE FROM evaluations WHERE name = :name', { name })
      for (const e of rows) {
        this.db.run(
          `INSERT INTO evaluations(name, weights, task, sample, turn, code, feedback, final)
           VALUES(:name, :weights, :task, :sample, :turn, :code, :feedback, :final)`,
          {
            name: e.name,
            weights: e.weights ?? null,
            task: e.task,
            sample: e.sample,
            turn: e.turn,
            code: clean(e.code),
            feedback: json(e.feedback),
            final: e.final ? json(e.final) : null,
          },
        )
      }
    })
  }
  evaluations(name: string): EvaluationRow[] {
    return this.db
      .all('SELECT * FROM evaluations WHERE name = :name ORDER BY task, sample, turn', { name })
      .map((r) => ({
        name,
        weights: (r.weights as string | null | undefined) ?? undefined,
        task: r.task as string,
        sample: Number(r.sample),
        turn: Number(r.turn),
        code: (r.code as string | null) ?? undefined,
        feedback: parse(r.feedback),
        final: r.final === null ? undefined : parse(r.final),
      }))
  }
  evaluationNames(): string[] {
    return this.db.all('SELECT DISTINCT name FROM evaluations ORDER BY name').map((r) => r.name as string)
  }

  close(): void {
    this.db.close()
  }
}

const parse = <T>(v: unknown): T => JSON.parse(v as string) as T
/** NUL cannot be stored as text; in a program it is a syntax error anyway. */
const clean = (code: string | undefined): string | null => (code === undefined ? null : code.replaceAll('\0', '\u2400'))
const json = (v: unknown): string => JSON.stringify(v)
const bytes = (a: Int32Array | Float32Array): Uint8Array => new Uint8Array(a.buffer, a.byteOffset, a.byteLength)
