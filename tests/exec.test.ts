import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { prepare, wmrl } from './helpers.ts'

let dir: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-exec-'))
  prepare('concrete-strength')
}, 900_000)
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const exec = (code: string, ...flags: string[]) => {
  const path = join(dir, 'p.py')
  writeFileSync(path, code)
  const r = wmrl(['exec', '--task', 'concrete-strength', path, '--json', '--quiet', ...flags])
  expect(r.stderr).toBe('')
  return { status: r.status, json: JSON.parse(r.stdout) as Record<string, never> }
}

const GOOD = `import pandas as pd
from sklearn.ensemble import RandomForestRegressor
train, test = pd.read_csv("train.csv"), pd.read_csv("test.csv")
T = test.drop(columns=["id"])
model = RandomForestRegressor(n_estimators=20, random_state=0).fit(train[T.columns], train["compressive_strength"])
sub = pd.read_csv("sample_submission.csv")
sub["compressive_strength"] = model.predict(T)
sub.to_csv("submission.csv", index=False)
print("done\\x1b[31m")
`

describe('wmrl exec', () => {
  it('grades a good program on the feedback rows alone, and finds it again in the cache', () => {
    const { status, json } = exec(GOOD, '--no-cache')
    expect(status).toBe(0)
    expect(json).toMatchObject({ outcome: { kind: 'graded', scope: 'feedback' }, rung: 'A', cached: false })
    const outcome = json.outcome as unknown as { score: number; percentile: number }
    expect(outcome.score).toBeGreaterThan(3)
    expect(json.score).toBeCloseTo(0.5 + outcome.percentile / 2, 12)
    // No control sequence of the program reaches a terminal.
    expect(json.stdout).toContain('done\\x1b[31m')
    expect(JSON.stringify(json)).not.toContain('final')
    exec(GOOD)
    expect(exec(GOOD).json.cached).toBe(true)
  })
  it.each([
    ['crashed', 'x = 1\nx / 0\n', { kind: 'crashed', error: { type: 'ZeroDivisionError', line: 2 } }, 0.1],
    ['syntax error', 'x = (1\n', { kind: 'syntax-error', error: { type: 'SyntaxError' } }, 0],
    ['spinning', 'while True: pass\n', { kind: 'timed-out', submissionPresent: false }, 0.1],
    ['memory', 'x = bytearray(1 << 33)\nx[::4096] = b"x" * len(x[::4096])\n', { kind: 'out-of-memory' }, 0.1],
    ['nothing written', 'print("hello")\n', { kind: 'invalid-submission', code: 'missing' }, 0.2],
  ])('tells %s apart', (_, code, outcome, score) => {
    const { json } = exec(code, '--no-cache')
    expect(json).toMatchObject({ outcome, score })
  })
  it('keeps a program from answers, network and other files', () => {
    const code = `import os, socket
print("START")
found = [os.path.join(d, f) for d, _, fs in os.walk("/") for f in fs if f in ("feedback.csv", "final.csv")]
print("answers", found)
try:
    socket.create_connection(("192.0.2.1", 80), 2)
    print("network open")
except OSError as e:
    print("network closed")
print("host", os.path.exists("/root/.bashrc"), os.path.exists("/etc/shadow") and os.access("/etc/shadow", os.R_OK))
`
    const { json } = exec(code, '--no-cache')
    const out = String(json.stdout)
    expect(out).toContain('START')
    expect(out).toContain('answers []')
    expect(out).toContain('network closed')
    expect(out).toContain('host False False')
  })
})
