import { execFileSync } from 'node:child_process'
import { copyFileSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { lockRun } from '../src/cli/runtime.ts'
import { RunLedger } from '../src/ledger/index.ts'
import { catalogue } from '../src/tasks/index.ts'
import { prepare, root, wmrl } from './helpers.ts'

const DEV = catalogue('builtin')
  .filter((e) => e.split === 'dev')
  .map((e) => e.id)
const SMALL = {
  'train.steps': '2',
  'train.groups': '1',
  'train.groupSize': '2',
  'train.turns': '1',
  'train.checkpointEvery': '1',
  'tasks.only': '["ames-sale-price"]',
  'engine.threads': '1',
}

let dir: string
let run: string
/** Newest first. */
let checkpoints: { path: string; weights: string }[]
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-eval-'))
  run = join(dir, 'run')
  prepare('ames-sale-price', ...DEV)
  const set = Object.entries(SMALL).flatMap(([k, v]) => ['--set', `${k}=${v}`])
  const r = wmrl(['train', '--run', run, '--quiet', ...set])
  if (r.status !== 0) throw new Error(r.stderr)
  const ledger = RunLedger.openReadOnly(join(run, 'run.db'))
  checkpoints = ledger.checkpoints().map((c) => ({
    path: join(run, 'checkpoints', basename(c.location)),
    weights: c.weights,
  }))
  ledger.close()
}, 900_000)
afterAll(() => rmSync(dir, { recursive: true, force: true }))

/** Weights by the name of an evaluation. */
const evaluated = (): Record<string, (string | undefined)[]> => {
  const ledger = RunLedger.openReadOnly(join(run, 'run.db'))
  try {
    const weights = (name: string) => [...new Set(ledger.evaluations(name).map((e) => e.weights))]
    return Object.fromEntries(ledger.evaluationNames().map((name) => [name, weights(name)]))
  } finally {
    ledger.close()
  }
}

/**
 * A copy of the run, for tests that take something from it. Made by another process: one that has had the database open and
 * then reads and closes the file itself gives SQLite's locks away.
 */
const copyOfRun = (name: string): string => {
  const to = join(dir, name)
  execFileSync('cp', ['-r', run, to])
  return to
}

it('replay recomputes from the ledger: a changed or missing config.yaml changes nothing, for fidelity and eval neither', () => {
  const copy = copyOfRun('no-config')
  const config = join(copy, 'config.yaml')
  const before = wmrl(['replay', copy])
  expect(before.stdout).toMatch(/^2 steps, \d+ numbers compared, 0 differences\n$/)
  writeFileSync(config, readFileSync(config, 'utf8').replace(/lambda: .*/, 'lambda: 0.9'))
  expect(wmrl(['replay', copy])).toMatchObject({ status: 0, stdout: before.stdout })
  rmSync(config)
  expect(wmrl(['replay', copy])).toMatchObject({ status: 0, stdout: before.stdout })
  expect(wmrl(['fidelity', copy]).status).toBe(0)
  const r = wmrl(['eval', copy, '--split', 'dev', '--samples', '1', '--json', '--quiet'])
  expect(r.stderr).toBe('')
  expect(JSON.parse(r.stdout)).toMatchObject({ n: DEV.length })
})

describe('wmrl eval', () => {
  it('takes a run, which means its newest checkpoint, or a checkpoint of it; each is kept under its weights', () => {
    const one = (what: string): void => {
      const r = wmrl(['eval', what, '--split', 'dev', '--samples', '1', '--json'])
      expect(r.status).toBe(0)
      expect(JSON.parse(r.stdout)).toMatchObject({ n: DEV.length, unscorable: 0 })
      // Progress, with a rate and the time left, on stderr.
      expect(r.stderr).toMatch(new RegExp(`${DEV.length} of ${DEV.length} programs, .*, 0 s left\\n$`))
    }
    expect(checkpoints).toHaveLength(2)
    const [newest, older] = checkpoints as [(typeof checkpoints)[0], (typeof checkpoints)[0]]
    one(run)
    expect(evaluated()).toEqual({ dev: [newest.weights] })
    one(older.path)
    const name = `dev-${basename(older.path).slice(0, 12)}`
    expect(evaluated()).toEqual({ dev: [newest.weights], [name]: [older.weights] })
  })
  it('beside a training of the run is printed and not kept, which is said', () => {
    const busy = copyOfRun('busy')
    const before = readFileSync(join(busy, 'run.db'))
    const args = ['eval', busy, '--split', 'dev', '--samples', '1', '--json']
    {
      using _training = lockRun(busy)
      const r = wmrl(args)
      expect(r.status).toBe(0)
      expect(JSON.parse(r.stdout)).toMatchObject({ n: DEV.length })
      expect(r.stderr).toMatch(new RegExp(`process ${process.pid} is working on .*busy: .* not kept in the run.*\\n$`))
      expect(readFileSync(join(busy, 'run.db')).equals(before)).toBe(true)
    }
    expect(wmrl(args).stderr).not.toMatch(/not kept/)
    expect(readFileSync(join(busy, 'run.db')).equals(before)).toBe(false)
    expect(existsSync(join(busy, 'run.lock'))).toBe(false)
  })
  it.each(['0', '1.5', 'two'])('refuses --samples %s: exit 2, the flag and the value', (n) => {
    const r = wmrl(['eval', run, '--samples', n])
    expect(r.status).toBe(2)
    expect(r.stderr).toMatch(new RegExp(`--samples <n>.*'${n}' is invalid.*whole number above 0`))
  })
  it('refuses a file that no run names: exit 2, one line', () => {
    const copy = join(dir, basename(checkpoints[0]!.path))
    const stranger = join(run, 'checkpoints', 'x.safetensors')
    copyFileSync(checkpoints[0]!.path, copy)
    copyFileSync(copy, stranger)
    for (const [file, said] of [
      [copy, /lies in no run; give a file of the checkpoints\//],
      [stranger, /has no checkpoint x\.safetensors/],
      [join(run, 'checkpoints', 'none.safetensors'), /there is no .*none\.safetensors/],
    ] as const) {
      const r = wmrl(['eval', file, '--split', 'dev'])
      expect(r.status).toBe(2)
      expect(r.stderr.trim().split('\n')).toHaveLength(1)
      expect(r.stderr).toMatch(said)
    }
  })
  it('and --resume refuse another backbone than the run’s: exit 2, one line with the fix', () => {
    const backbone = join(dir, 'backbone')
    cpSync(join(root, 'assets', 'backbone'), backbone, { recursive: true })
    // The same tokens in another text: what counts is the file.
    writeFileSync(join(backbone, 'tokenizer.json'), `${readFileSync(join(backbone, 'tokenizer.json'), 'utf8')}\n`)
    const env = { WMRL_ENGINE__BACKBONE: backbone }
    const config = join(run, 'config.yaml')
    const before = readFileSync(config, 'utf8')
    const again = wmrl(['train', '--run', run, '--resume', '--set', 'train.steps=3', '--quiet'], { env })
    // The refused resume left the run as it was.
    expect(readFileSync(config, 'utf8')).toBe(before)
    writeFileSync(config, before.replace(/^engine:$/m, `engine:\n  backbone: ${backbone}`))
    const evaluated = wmrl(['eval', run, '--split', 'dev'])
    writeFileSync(config, before)
    for (const r of [again, evaluated]) {
      expect(r.status).toBe(2)
      expect(r.stderr.trim().split('\n')).toHaveLength(1)
      expect(r.stderr).toMatch(
        /engine\.backbone: .* was trained from another backbone \(tokenizer \w{12}\) .*; name the folder/,
      )
    }
  })
})
