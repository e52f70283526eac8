import { execFileSync, spawn } from 'node:child_process'
import { chmodSync, cpSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { home, solutionsPython } from '../src/cli/paths.ts'
import { processIds, processTree, startTime } from '../src/sandbox/proc.ts'
import { isRoot } from '../src/sandbox/testing/environment.ts'
import { ORDINARY_UID, runAsOrdinaryUser } from '../src/sandbox/testing/ordinary-user.ts'
import { cli, prepare, root, wmrl } from './helpers.ts'

let dir: string
/** What the doctor says of this machine and this user. */
let rung: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-exec-'))
  prepare('concrete-strength')
  rung = rungOf(wmrl(['doctor', '--json', '--quiet']).stdout)
}, 900_000)
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const rungOf = (doctor: string): string => (JSON.parse(doctor) as { sandbox: { rung: string } }).sandbox.rung

const exec = (code: string, ...flags: string[]) => {
  const path = join(dir, 'p.py')
  writeFileSync(path, code)
  const r = wmrl(['exec', '--task', 'concrete-strength', path, '--json', '--quiet', ...flags])
  expect(r.stderr).toBe('')
  return { status: r.status, json: JSON.parse(r.stdout) as Record<string, never> }
}

/** Whether a process of the command `sleep MARK` lives, in whatever namespace. */
const runs = (mark: string): boolean =>
  processIds().some((p) => {
    try {
      return readFileSync(`/proc/${p}/cmdline`, 'utf8').startsWith(`sleep\0${mark}`)
    } catch {
      return false
    }
  })

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
    expect(json).toMatchObject({ outcome: { kind: 'graded', scope: 'feedback' }, rung, cached: false })
    const outcome = json.outcome as unknown as { score: number; percentile: number }
    expect(outcome.score).toBeGreaterThan(3)
    expect(json.score).toBeCloseTo(0.5 + outcome.percentile / 2, 12)
    // No control sequence of the program reaches a terminal.
    expect(json.stdout).toContain('done\\x1b[31m')
    expect(JSON.stringify(json)).not.toContain('final')
    // A program that this machine has never run, then the same again.
    const fresh = `${GOOD}# ${process.pid} ${Date.now()}\n`
    expect(exec(fresh).json.cached).toBe(false)
    expect(exec(fresh).json.cached).toBe(true)
  })
  it.each([['without the cache', '--no-cache'], ['with it']])(
    'runs a program once %s: its outcome and its output are of one run',
    (_, ...flags) => {
      const code = `import secrets\nprint("START")\nraise ValueError(secrets.token_hex(8))  # ${process.pid} ${Date.now()}\n`
      const { json } = exec(code, ...flags)
      const { error } = json.outcome as unknown as { error: { message: string } }
      expect(error.message).toMatch(/^[0-9a-f]{16}$/)
      expect(json.stderr).toContain(error.message)
      expect(json.cached).toBe(false)
    },
  )
  it.each([
    ['crashed', 'x = 1\nx / 0\n', { kind: 'crashed', error: { type: 'ZeroDivisionError', line: 2 } }, 0.1],
    ['syntax error', 'x = (1\n', { kind: 'syntax-error', error: { type: 'SyntaxError' } }, 0],
    ['spinning', 'while True: pass\n', { kind: 'timed-out', submissionPresent: false }, 0.1],
    // The wider profile: where fresh pages are dear, 4 CPU seconds end before the memory does.
    ['memory', 'x = bytearray(1 << 33)\n', { kind: 'out-of-memory' }, 0.1, 'board'],
    ['nothing written', 'print("hello")\n', { kind: 'invalid-submission', code: 'missing' }, 0.2],
  ])('tells %s apart', (_, code, outcome, score, limits = 'demo') => {
    const { json } = exec(code, '--no-cache', '--limits', limits)
    expect(json).toMatchObject({ outcome, score })
  })
  // Failures row 44. At the first moment the sandbox is being made, at the second a program runs in it.
  it.each([
    ['while the sandbox is being made', 0],
    ['while a program runs', 1],
  ])('Ctrl-C twice %s ends at once and leaves no process', async (_, at) => {
    const mark = `4${process.pid}${at}`
    const path = join(dir, 'sleeper.py')
    writeFileSync(path, `import subprocess\nsubprocess.run(["sleep", "${mark}"])\n`)
    const args = [cli, 'exec', '--task', 'concrete-strength', path, '--no-cache', '--quiet']
    const child = spawn(process.execPath, args, { cwd: root, stdio: 'ignore' })
    const ended = new Promise((r) => child.once('exit', r))
    const below = (): number[] => processTree(child.pid!).filter((p) => p !== child.pid)
    while (child.exitCode === null && (at === 0 ? below().length === 0 : !runs(mark)))
      await new Promise((r) => setTimeout(r, 10))
    const children = below().map((p) => [p, startTime(p)] as const)
    expect(children.length).toBeGreaterThan(0)
    child.kill('SIGINT')
    child.kill('SIGINT')
    expect(await ended).toBe(130)
    const left = (): number =>
      children.filter(([p, started]) => started !== undefined && startTime(p) === started).length
    for (let k = 0; k < 200 && (left() > 0 || runs(mark)); k++) await new Promise((r) => setTimeout(r, 50))
    expect([left(), runs(mark)]).toEqual([0, false])
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

/** Runs the built command again and again as whoever runs this module; prints what came as one line. */
const RUNNER = `import { spawnSync } from 'node:child_process'
const { cli, env, cwd, runs } = JSON.parse(process.argv[2])
const of = (args) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [cli, ...args], { encoding: 'utf8', env: { ...process.env, ...env }, cwd })
  return { status, stdout, stderr }
}
console.log(JSON.stringify({ uid: process.getuid(), runs: runs.map(of) }))
`

// Only root can become another user; an ordinary user runs all of the above as itself.
describe.skipIf(!isRoot)('wmrl exec as an ordinary user (needs root, to become one)', () => {
  it('contains and grades on the rung that the doctor finds for that user, without root or cgroups', async () => {
    const own = mkdtempSync(join(tmpdir(), 'wmrl-ordinary-'))
    try {
      const task = join('tasks', 'builtin', 'concrete-strength')
      cpSync(join(home(), task), join(own, task), { recursive: true })
      const program = join(own, 'p.py')
      writeFileSync(program, GOOD)
      const runner = join(own, 'runner.mjs')
      writeFileSync(runner, RUNNER)
      execFileSync('chown', ['-R', `${ORDINARY_UID}:${ORDINARY_UID}`, own])
      chmodSync(own, 0o755)
      const said = await runAsOrdinaryUser(
        runner,
        {
          cli,
          cwd: own,
          env: { WMRL_HOME: own, WMRL_PYTHON: solutionsPython() },
          runs: [
            ['doctor', '--json', '--quiet'],
            ['exec', '--task', 'concrete-strength', program, '--json', '--quiet'],
          ],
        },
        solutionsPython(),
        [root, realpathSync(join(root, 'node_modules'))],
      )
      const { uid, runs } = JSON.parse(said) as {
        uid: number
        runs: { status: number; stdout: string; stderr: string }[]
      }
      expect(uid).toBe(ORDINARY_UID)
      const [doctor, exec] = runs
      expect(exec!.stderr).toBe('')
      expect(exec!.status).toBe(0)
      const found = rungOf(doctor!.stdout)
      expect(['B', 'C', 'D', 'D-']).toContain(found)
      expect(JSON.parse(exec!.stdout)).toMatchObject({
        outcome: { kind: 'graded', scope: 'feedback' },
        rung: found,
        cached: false,
      })
    } finally {
      rmSync(own, { recursive: true, force: true })
    }
  })
})
