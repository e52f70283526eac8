import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { contentKey, LedgerError, NO_COST, score, type Verdict } from '../core/index.ts'
import { ExecutionCache, RunLedger, Sqlite } from './index.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-ledger-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

const verdict: Verdict = {
  source: 'executed',
  outcome: { kind: 'crashed', error: { type: 'ValueError', message: 'x' } },
  score: score(0.1),
  observation: { text: 'error: ValueError: x' },
  cost: NO_COST,
}

/** Bytes in a database's log; whether an empty one is removed is the driver's business. */
const logOf = (path: string): number => (existsSync(`${path}-wal`) ? statSync(`${path}-wal`).size : 0)

describe('sqlite', () => {
  it.each([
    ['a boolean', true],
    ['a date', new Date()],
    ['an object', {}],
    ['NaN', Number.NaN],
    ['text with NUL', 'a\0b'],
    ['undefined', undefined],
  ])('refuses %s before the driver sees it', (_, v) => {
    const db = Sqlite.open(join(dir, 'a.db'))
    db.exec('CREATE TABLE t(x)')
    expect(() => db.run('INSERT INTO t VALUES(:x)', { x: v as never })).toThrow(LedgerError)
    expect(db.all('SELECT * FROM t')).toEqual([])
    db.close()
  })
  it('names missing and superfluous parameters', () => {
    const db = Sqlite.open(join(dir, 'a.db'))
    db.exec('CREATE TABLE t(x)')
    expect(() => db.run('INSERT INTO t VALUES(:x)', {})).toThrow(/parameter x is missing/)
    expect(() => db.run('INSERT INTO t VALUES(:x)', { x: 1, y: 2 })).toThrow(/parameter y is not used/)
    db.close()
  })
  it('keeps blobs byte for byte and rolls a failed transaction back', () => {
    const db = Sqlite.open(join(dir, 'a.db'))
    db.exec('CREATE TABLE t(x BLOB)')
    const bytes = new Uint8Array([0, 255, 10, 0])
    db.run('INSERT INTO t VALUES(:x)', { x: bytes })
    expect(db.first('SELECT x FROM t')!.x).toEqual(bytes)
    expect(() =>
      db.transaction(() => {
        db.run('DELETE FROM t')
        throw new Error('no')
      }),
    ).toThrow('no')
    expect(db.all('SELECT * FROM t').length).toBe(1)
    expect(() => db.transaction(() => db.transaction(() => 1))).toThrow(/inside a transaction/)
    db.close()
  })
  it('folds its log into the file when it closes, so that a copy of the file alone is whole', () => {
    const path = join(dir, 'folded.db')
    const db = Sqlite.open(path)
    db.exec('CREATE TABLE t(x INTEGER)')
    for (let x = 0; x < 50; x++) db.run('INSERT INTO t VALUES(:x)', { x })
    expect(logOf(path)).toBeGreaterThan(0)
    db.close()
    expect(logOf(path)).toBe(0)
    const copy = join(dir, 'copy.db')
    copyFileSync(path, copy)
    const other = Sqlite.openReadOnly(copy)
    expect(other.first('SELECT count(*) AS n FROM t')?.n).toBe(50)
    other.close()
    // Read-only leaves everything as it is.
    expect(logOf(path)).toBe(0)
  })

  it('closes at once where another one reads, and loses nothing', () => {
    const path = join(dir, 'read.db')
    const db = Sqlite.open(path)
    db.exec('CREATE TABLE t(x INTEGER)')
    db.run('INSERT INTO t VALUES(1)')
    const reader = Sqlite.openReadOnly(path)
    reader.exec('BEGIN')
    expect(reader.first('SELECT count(*) AS n FROM t')?.n).toBe(1)
    db.run('INSERT INTO t VALUES(2)')
    const started = performance.now()
    db.close()
    // Far from the 20 s for which other statements wait.
    expect(performance.now() - started).toBeLessThan(10_000)
    // It still sees what it began with; whoever opens now sees all.
    expect(reader.first('SELECT count(*) AS n FROM t')?.n).toBe(1)
    reader.exec('COMMIT')
    reader.close()
    const again = Sqlite.open(path)
    expect(again.first('SELECT count(*) AS n FROM t')?.n).toBe(2)
    again.close()
    expect(logOf(path)).toBe(0)
  })

  it('opens read-only where told, and says which file is no database', () => {
    const path = join(dir, 'b.db')
    Sqlite.open(path).close()
    const ro = Sqlite.openReadOnly(path)
    expect(() => ro.exec('CREATE TABLE t(x)')).toThrow(LedgerError)
    ro.close()
    const junk = join(dir, 'junk.db')
    writeFileSync(junk, 'this is no database, whatever its name may say'.repeat(100))
    expect(() => RunLedger.open(junk)).toThrow(/junk\.db/)
  })
})

describe('run ledger', () => {
  it('finds a committed verdict again, after reopening too', async () => {
    const path = join(dir, 'run.db')
    const a = RunLedger.open(path)
    await a.commit(contentKey('k'), verdict)
    await a.commit(contentKey('k'), { ...verdict, score: score(0.9) })
    a.close()
    const b = RunLedger.open(path)
    expect(await b.find(contentKey('k'))).toEqual(verdict)
    expect(await b.find(contentKey('other'))).toBeUndefined()
    b.close()
  })
  it('commits a step as a whole and replaces it when computed again', () => {
    const l = RunLedger.open(join(dir, 'run.db'))
    const group = {
      step: 1,
      group: 0,
      task: 'builtin/x',
      anchor: true,
      predicted: [0.1, null],
      executed: [0.2, 0.3],
      corrected: [0.1, null],
      advantages: [-0.5, null],
      skipped: undefined,
    }
    const trajectory = {
      step: 1,
      group: 0,
      trajectory: 0,
      ended: 'turns',
      tokens: [1, 2],
      mask: [0, 1],
      logprobs: [0, -0.5],
      coefficient: -0.5,
      unscorable: undefined,
    }
    const attempt = { step: 1, group: 0, trajectory: 0, turn: 0, code: 'x\0', verdict, shadow: undefined }
    // The first version is larger: none of its rows may stay.
    const more = <T extends object>(row: T): T[] => [row, { ...row, group: 1 }]
    l.commitStep({ step: 1, record: { k: 0 } }, more(group), more(trajectory), more(attempt))
    l.commitStep({ step: 1, record: { k: 1 } }, [group], [trajectory], [attempt])
    expect(l.steps()).toEqual([{ step: 1, record: { k: 1 } }])
    expect(l.groups(1)).toEqual([group])
    expect(l.coefficients(1)).toEqual([
      { group: 0, trajectory: 0, coefficient: -0.5, unscorable: undefined, sampled: true },
    ])
    expect(l.attempts().map((a) => a.verdict)).toEqual([verdict])
    l.commitStep({ step: 2, record: {} }, [{ ...group, step: 2 }], [{ ...trajectory, step: 2, mask: [0, 0] }], [])
    expect(l.coefficients(2)[0]!.sampled).toBe(false)
    l.commitCheckpoint({ step: 2, weights: 'w', location: 'c', state: {} })
    l.rewind(1)
    expect([l.steps().length, l.groups().length, l.coefficients(2), l.checkpoints()]).toEqual([1, 1, [], []])
    l.close()
  })
  it('keeps the newest checkpoints and names those that may go', () => {
    const l = RunLedger.open(join(dir, 'run.db'))
    for (const step of [5, 10, 15])
      l.commitCheckpoint({ step, weights: `w${step}`, location: `/c/${step}`, state: { step } })
    expect(l.pruneCheckpoints(2)).toEqual(['/c/5'])
    expect(l.checkpoints().map((c) => c.step)).toEqual([15, 10])
    l.close()
  })
  it('keeps the newest evaluation of a name as a whole, with the weights that it is of', () => {
    const path = join(dir, 'run.db')
    const l = RunLedger.open(path)
    const row = {
      name: 'dev',
      weights: 'w1',
      task: 't',
      sample: 0,
      turn: 0,
      code: 'x',
      feedback: verdict,
      final: verdict,
    }
    l.putEvaluation([row, { ...row, sample: 1 }, { ...row, name: 'heldout' }])
    l.putEvaluation([{ ...row, weights: 'w2' }])
    expect(l.evaluations('dev')).toEqual([{ ...row, weights: 'w2' }])
    expect(l.evaluations('heldout').length).toBe(1)
    l.close()
  })
  it('opens a ledger of before evaluations named their weights', () => {
    const path = join(dir, 'run.db')
    RunLedger.open(path).close()
    const db = Sqlite.open(path)
    db.exec('ALTER TABLE evaluations DROP COLUMN weights')
    db.run(`INSERT INTO evaluations(name, task, sample, turn, feedback) VALUES('dev', 't', 0, 0, :v)`, {
      v: JSON.stringify(verdict),
    })
    db.close()
    const old = RunLedger.openReadOnly(path)
    expect(old.evaluations('dev')).toMatchObject([{ task: 't', weights: undefined, final: undefined }])
    old.close()
    const l = RunLedger.open(path)
    l.putEvaluation([{ ...l.evaluations('dev')[0]!, weights: 'w' }])
    expect(l.evaluations('dev')[0]!.weights).toBe('w')
    l.close()
  })
  it('refuses a ledger of another schema', () => {
    const path = join(dir, 'run.db')
    const l = RunLedger.open(path)
    l.setMeta('schema', '99')
    l.close()
    expect(() => RunLedger.open(path)).toThrow(/schema 99/)
    expect(() => RunLedger.openReadOnly(path)).toThrow(/schema 99/)
  })
})

describe('execution cache', () => {
  it('keeps a run with its submission', () => {
    const cache = new ExecutionCache(Sqlite.open(join(dir, 'c.db')))
    const e = {
      end: '{"kind":"finished"}',
      submission: new Uint8Array([1, 0, 2]),
      stdout: new Uint8Array(),
      stderr: new Uint8Array([27]),
      cost: '{}',
      rung: 'A',
    }
    cache.put('k', e)
    expect(cache.find('k')).toEqual(e)
    expect(cache.find('x')).toBeUndefined()
    expect(cache.count()).toBe(1)
    cache.close()
  })
})
