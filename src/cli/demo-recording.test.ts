import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { MissingError } from '../core/index.ts'
import { Sqlite } from '../ledger/index.ts'
import { demoDir, freshCache, keepRecording, recordedCopy } from './demo-recording.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-recording-'))
  vi.stubEnv('WMRL_HOME', join(dir, 'home'))
})
afterEach(() => {
  vi.unstubAllEnvs()
  rmSync(dir, { recursive: true, force: true })
})

const recorded = (shipped: string, value: number): void => {
  using recording = freshCache('recording')
  const db = Sqlite.open(recording.path)
  db.exec(`CREATE TABLE t (x); INSERT INTO t VALUES (${value})`)
  db.close()
  expect(keepRecording(recording.path, shipped)).toBe(shipped)
}

test('a recording is shipped compressed and read from a copy that another recording replaces', () => {
  const shipped = join(dir, 'assets', 'executions.db.gz')
  const copies = [1, 2].map((value) => {
    recorded(shipped, value)
    const bytes = readFileSync(shipped)
    const copy = recordedCopy(shipped)
    expect(recordedCopy(shipped)).toBe(copy)
    const db = Sqlite.open(copy)
    expect(db.all('SELECT x FROM t')).toEqual([{ x: value }])
    db.run('INSERT INTO t VALUES (9)')
    db.close()
    expect(readFileSync(shipped)).toEqual(bytes)
    return copy
  })
  expect(copies[0]).not.toBe(copies[1])
  expect(readdirSync(demoDir()).filter((f) => f.endsWith('.db'))).toEqual([copies[1]!.split('/').at(-1)])
})

test('a damaged recording is one line with the way out, and leaves no half copy', () => {
  const shipped = join(dir, 'executions.db.gz')
  writeFileSync(shipped, 'no archive')
  expect(() => recordedCopy(shipped)).toThrow(MissingError)
  expect(() => recordedCopy(shipped)).toThrow(/executions\.db\.gz is damaged .*--no-cache/)
  expect(readdirSync(demoDir())).toEqual([])
})
