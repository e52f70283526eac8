import { execFileSync, spawnSync } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir, totalmem } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { home } from '../src/cli/paths.ts'
import { RunLedger } from '../src/ledger/index.ts'
import { prepare, root, wmrl } from './helpers.ts'

const SMALL = [
  '--set',
  'train.steps=1',
  '--set',
  'train.groups=1',
  '--set',
  'train.groupSize=2',
  '--set',
  'train.turns=1',
  '--set',
  'tasks.only=["ames-sale-price"]',
  '--set',
  'engine.threads=1',
]
const PROGRAM =
  'import pandas as pd\nsub = pd.read_csv("sample_submission.csv")\nsub.to_csv("submission.csv", index=False)\n'

let dir: string
/** A home of its own whose tasks may be damaged; the environment for programs is the real one. */
let ownHome: string
let env: NodeJS.ProcessEnv
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-bad-'))
  prepare('ames-sale-price')
  ownHome = join(dir, 'home')
  mkdirSync(ownHome)
  env = { WMRL_HOME: ownHome, WMRL_PYTHON: process.env.WMRL_PYTHON ?? join(home(), 'venv', 'bin', 'python') }
}, 900_000)
afterAll(() => rmSync(dir, { recursive: true, force: true }))

const freshTask = (): string => {
  const to = join(ownHome, 'tasks', 'builtin', 'ames-sale-price')
  rmSync(to, { recursive: true, force: true })
  cpSync(join(home(), 'tasks', 'builtin', 'ames-sale-price'), to, { recursive: true })
  return to
}
const program = (): string => {
  const path = join(dir, 'p.py')
  writeFileSync(path, PROGRAM)
  return path
}
/** One line, naming the place and the fix. */
function oneLine(stderr: string, ...parts: (string | RegExp)[]): void {
  expect(stderr.trim().split('\n').length).toBe(1)
  for (const p of parts) expect(stderr).toMatch(p)
}

describe('configuration', () => {
  it('with an unknown key: exit 2 and the nearest key', () => {
    const r = wmrl(['train', '--dry-run', '--set', 'train.stepz=3'])
    expect(r.status).toBe(2)
    oneLine(r.stderr, /train\.stepz/, /did you mean train\.steps/)
  })
  it('with an ill-typed key: exit 2, key and value', () => {
    const r = wmrl(['train', '--dry-run', '--set', 'train.steps=many'])
    expect(r.status).toBe(2)
    oneLine(r.stderr, /train\.steps/, /many/)
    const e = wmrl(['train', '--dry-run', '--set', 'method.mode=papers'])
    expect(e.status).toBe(2)
    oneLine(e.stderr, /method\.mode/, /paper, recommended/)
  })
  it('in a file that is no YAML, or is missing', () => {
    const bad = join(dir, 'bad.yaml')
    writeFileSync(bad, 'train: [steps: 1')
    expect(wmrl(['train', bad, '--dry-run']).status).toBe(2)
    const r = wmrl(['train', join(dir, 'none.yaml'), '--dry-run'])
    expect(r.status).toBe(2)
    oneLine(r.stderr, /none\.yaml/)
  })
  it('in a file that is not UTF-8: the file and the fix', () => {
    const bad = join(dir, 'latin.yaml')
    writeFileSync(bad, Buffer.from([...Buffer.from('seed: 1 # gr'), 0xfc, 0x0a]))
    const r = wmrl(['train', bad, '--dry-run'])
    expect(r.status).toBe(2)
    oneLine(r.stderr, /latin\.yaml: is not UTF-8 text; save it as UTF-8/)
  })
  it('that nothing reads is said, and is no error', () => {
    const args = ['train', '--dry-run', '--json', '--set', 'train.clipLow=0.1']
    const r = wmrl(args)
    expect(r.status).toBe(0)
    oneLine(r.stderr, /^train\.clipLow: 0\.1 has no effect in mode recommended/)
    expect(wmrl([...args, '--set', 'method.mode=paper']).stderr).toBe('')
  })
  it('of an unknown command or flag: exit 2', () => {
    expect(wmrl(['trian']).status).toBe(2)
    expect(wmrl(['train', '--steps', '3']).status).toBe(2)
  })
  it('is layered: file, environment, --set', () => {
    const file = join(dir, 'c.yaml')
    writeFileSync(file, 'train:\n  steps: 1\n  groups: 2\n  turns: 3\n')
    const r = wmrl(['train', file, '--dry-run', '--json', '--set', 'train.turns=1'], {
      env: { WMRL_TRAIN__GROUPS: '5' },
    })
    expect(JSON.parse(r.stdout).config.train).toMatchObject({ steps: 1, groups: 5, turns: 1 })
  })
})

describe('a task', () => {
  it('that is not prepared: one line with the command that prepares it', () => {
    const r = wmrl(['exec', '--task', 'spam-mail', program()], { env: { ...env, WMRL_HOME: join(dir, 'empty') } })
    expect(r.status).toBe(1)
    oneLine(r.stderr, /spam-mail/, /wmrl tasks prepare/)
  })
  it('with a damaged card', () => {
    const t = freshTask()
    writeFileSync(join(t, 'task.json'), '{"schema":')
    const r = wmrl(['exec', '--task', 'ames-sale-price', program()], { env })
    expect(r.status).toBe(1)
    oneLine(r.stderr, /task\.json/, /wmrl tasks prepare/)
  })
  it.each<[string, RegExp, (task: string) => void]>([
    ['without answers', /private\/feedback\.csv/, (t) => rmSync(join(t, 'private'), { recursive: true })],
    [
      'whose answers are not UTF-8',
      /private\/feedback\.csv: the answers are not UTF-8/,
      (t) => writeFileSync(join(t, 'private', 'feedback.csv'), Buffer.from([0x69, 0x64, 0xff, 0xfe, 0x0a])),
    ],
    [
      'whose answers belong to other rows',
      /private\/feedback\.csv: answer id 7777777 is not in test\.csv/,
      (t) => {
        const path = join(t, 'private', 'feedback.csv')
        const [header, first] = readFileSync(path, 'utf8').split('\n') as [string, string]
        writeFileSync(path, `${header}\n7777777${first.slice(first.indexOf(','))}\n`)
      },
    ],
    [
      // Made by hand: without a record nothing tells that it is not what was prepared.
      'whose test.csv is not UTF-8',
      /public\/test\.csv: is not UTF-8 text/,
      (t) => {
        rmSync(join(t, 'prepared.json'))
        writeFileSync(join(t, 'public', 'test.csv'), Buffer.from([0x69, 0x64, 0x2c, 0xff, 0xfe, 0x0a]))
      },
    ],
  ])('%s is unscorable, never a low score: the file and the fix', (_, file, spoil) => {
    spoil(freshTask())
    const r = wmrl(['exec', '--task', 'ames-sale-price', program(), '--quiet', '--json'], { env })
    expect(r.status).toBe(1)
    expect(r.stderr).toBe('')
    const { cause, detail } = JSON.parse(r.stdout).unscorable
    expect(cause).toBe('grader')
    oneLine(detail, file, /; run: wmrl tasks prepare ames-sale-price$/)
  })
  it('whose leaderboard has one row is unscorable: the file and the fix', () => {
    freshTask()
    // An installed package, whose own boards lie in WMRL's home: those of a clone are not to be touched.
    const installed = join(dir, 'installed')
    cpSync(join(root, 'dist'), join(installed, 'dist'), { recursive: true })
    for (const d of ['node_modules', 'python', 'assets']) symlinkSync(join(root, d), join(installed, d))
    cpSync(join(root, 'package.json'), join(installed, 'package.json'))
    const board = JSON.parse(readFileSync(join(root, 'assets', 'boards', 'builtin', 'ames-sale-price.json'), 'utf8'))
    mkdirSync(join(ownHome, 'boards', 'builtin'), { recursive: true })
    const own = join(ownHome, 'boards', 'builtin', 'ames-sale-price.json')
    writeFileSync(own, JSON.stringify({ ...board, entries: board.entries.slice(0, 1) }))
    const main = join(installed, 'dist', 'cli', 'main.js')
    const args = [main, 'exec', '--task', 'ames-sale-price', program(), '--quiet', '--json']
    const r = spawnSync(process.execPath, args, { encoding: 'utf8', env: { ...process.env, ...env } })
    expect(r.status).toBe(1)
    oneLine(
      JSON.parse(r.stdout).unscorable.detail,
      /boards\/builtin\/ames-sale-price\.json: entries: a leaderboard needs at least two entries/,
      /run: wmrl tasks boards ames-sale-price$/,
    )
  })
})

describe('a submission of the wrong shape', () => {
  it.each([
    ['columns', 'sub = sub.rename(columns={sub.columns[1]: "guess"})'],
    ['row-count', 'sub = sub.head(5)'],
    ['not-finite', 'sub.iloc[:, 1] = float("nan")'],
    ['id-duplicate', 'sub.iloc[1, 0] = sub.iloc[0, 0]'],
  ])('ends as invalid-submission, code %s', (code, line) => {
    freshTask()
    const path = join(dir, 'q.py')
    writeFileSync(path, PROGRAM.replace('sub.to_csv', `${line}\nsub.to_csv`))
    const r = wmrl(['exec', '--task', 'ames-sale-price', path, '--json', '--quiet'], { env })
    expect(r.status).toBe(0)
    expect(JSON.parse(r.stdout)).toMatchObject({ outcome: { kind: 'invalid-submission', code }, score: 0.2 })
  })
})

describe('tasks to train on', () => {
  it('that are held out are refused: exit 2, one line', () => {
    const r = wmrl(['train', '--run', join(dir, 'run-h'), ...SMALL, '--set', 'tasks.only=["concrete-strength"]'])
    expect(r.status).toBe(2)
    oneLine(r.stderr, /^wmrl: tasks\.only: concrete-strength is held out/, /name tasks of split train/)
  })
})

describe('tasks to train on that will not do: exit 2, the key, and a fix that works', () => {
  it.each([
    [
      'tasks.only=["spam-mial"]',
      /^wmrl: tasks\.only: there is no task spam-mial in suite builtin; the nearest is spam-mail/,
    ],
    ['tasks.only=[]', /^wmrl: tasks\.only: names no task; name at least one, or leave it out/],
    [
      'tasks.suite=mle-dojo',
      /^wmrl: tasks\.suite: the tasks of mle-dojo cannot be prepared .*; set it to builtin or small/,
    ],
  ])('%s', (set, said) => {
    const r = wmrl(['train', '--run', join(dir, 'run-t'), ...SMALL, '--set', set])
    expect(r.status).toBe(2)
    oneLine(r.stderr, said)
  })
})

describe('a run directory', () => {
  it('that cannot be written: one line, nothing lost', () => {
    const file = join(dir, 'file')
    writeFileSync(file, 'x')
    const r = wmrl(['train', '--run', join(file, 'run'), ...SMALL])
    expect(r.status).toBe(1)
    oneLine(r.stderr, /run directory/, /--run/)
    expect(readFileSync(file, 'utf8')).toBe('x')
  })
  // A limit of 64 GiB a program; a larger machine has room.
  it.runIf(totalmem() < 60 * 2 ** 30)('is not made where there is no room for one program: exit 3', () => {
    const run = join(dir, 'run-large')
    const r = wmrl(['train', '--run', run, ...SMALL, '--set', 'executor.limits=paper'])
    expect(r.status).toBe(3)
    oneLine(r.stderr, /MiB of memory are free, one program may take 65536 MiB/, /executor\.limits to board or demo/)
    expect(existsSync(run)).toBe(false)
  })
  it.each<[string, string, RegExp]>([
    [
      'a task that is not there',
      'tasks.only=["ames-sale-prise"]',
      /^wmrl: tasks\.only: .*the nearest is ames-sale-price/,
    ],
    ['a backbone that is not there', 'engine.backbone=/nonexistent', /^wmrl: engine\.backbone: \/nonexistent\/model/],
  ])('is not made where %s stops a run', (name, set, said) => {
    const run = join(dir, `run-${name.split(' ')[1]}`)
    const r = wmrl(['train', '--run', run, ...SMALL, '--set', set])
    expect(r.status).toBe(2)
    oneLine(r.stderr, said)
    expect(existsSync(run)).toBe(false)
  })
  it('whose run could not begin holds none: the corrected command begins in it', () => {
    const run = join(dir, 'run-e')
    const bad = join(dir, 'bad-backbone')
    mkdirSync(bad)
    // Files that are there, but no backbone: said by the engine, once the folder is made.
    for (const f of ['model.safetensors', 'tokenizer.json']) writeFileSync(join(bad, f), '{}')
    const r = wmrl(['train', '--run', run, ...SMALL, '--set', `engine.backbone=${bad}`])
    expect(r.status).not.toBe(0)
    oneLine(r.stderr, /bad-backbone/)
    expect(existsSync(join(run, 'run.db'))).toBe(true)
    expect(wmrl(['train', '--run', run, ...SMALL, '--quiet'])).toMatchObject({ status: 0, stderr: '' })
    expect(readFileSync(join(run, 'config.yaml'), 'utf8')).not.toContain('bad-backbone')
    expect(JSON.parse(wmrl(['replay', run, '--json']).stdout)).toMatchObject({ steps: 1, differences: 0 })
  })
  it('that holds a run already is not overwritten', () => {
    const run = join(dir, 'run-a')
    expect(wmrl(['train', '--run', run, ...SMALL, '--quiet']).status).toBe(0)
    const r = wmrl(['train', '--run', run, ...SMALL])
    expect(r.status).toBe(2)
    oneLine(r.stderr, /--resume/)
  })
  it('goes on from another folder than the one that it was named from, and keeps its method', () => {
    const run = join(dir, 'run-c')
    expect(wmrl(['train', '--run', 'run-c', ...SMALL, '--quiet'], { cwd: dir }).status).toBe(0)
    const config = readFileSync(join(run, 'config.yaml'), 'utf8')
    // Resolved: the mode's constants are written out.
    expect(config).toMatch(/lambda: 0\.5/)
    for (const change of ['method.lambda=0.9', 'seed=4', 'train.groupSize=4', 'method.mode=paper']) {
      const refused = wmrl(['train', '--run', run, '--resume', '--set', change, '--set', 'train.steps=2'])
      expect(refused.status, change).toBe(2)
      oneLine(refused.stderr, /^wmrl: (method|seed|train)\.?/, /new run/)
    }
    expect(readFileSync(join(run, 'config.yaml'), 'utf8')).toBe(config)
    const r = wmrl(['train', '--run', run, '--resume', '--set', 'train.steps=2', '--json', '--quiet'])
    expect(r.stderr).toBe('')
    expect(JSON.parse(r.stdout)).toMatchObject({ steps: 2, totals: { attemptsExecuted: 4, anchorsWanted: 2 } })
    expect(readFileSync(join(run, 'metrics.jsonl'), 'utf8').trim().split('\n').length).toBe(2)
    expect(JSON.parse(wmrl(['replay', run, '--json']).stdout)).toMatchObject({ steps: 2, differences: 0 })
  })
  it('whose executions cannot be graded is stopped by an alarm, with its result printed and its state saved', () => {
    const run = join(dir, 'run-d')
    rmSync(join(freshTask(), 'private'), { recursive: true })
    const r = wmrl(['train', '--run', run, ...SMALL, '--json', '--quiet'], { env })
    expect(r.status).toBe(1)
    oneLine(r.stderr, /step 1: 100 % of trajectories are unscorable \(grader 2/, /alarm\.unscorableShare/)
    // Whole, the fix included, though the path is long.
    oneLine(r.stderr, /private\/feedback\.csv.*; run: wmrl tasks prepare ames-sale-price\)/)
    expect(JSON.parse(r.stdout)).toMatchObject({ steps: 1, stoppedBy: 'unscorable', anchorShare: 0 })
    const l = RunLedger.openReadOnly(join(run, 'run.db'))
    expect(l.checkpoints().map((c) => c.step)).toEqual([1])
    l.close()
  })
  it.each<[string, Buffer]>([
    ['empty', Buffer.alloc(0)],
    ['damaged', Buffer.from('not a database, '.repeat(300))],
  ])('whose run.db is %s: one line with the fix, and the run is left alone', (what, bytes) => {
    const run = join(dir, `run-${what}`)
    mkdirSync(join(run, 'checkpoints'), { recursive: true })
    const db = join(run, 'run.db')
    for (const args of [
      ['fidelity', run],
      ['replay', run],
      ['train', '--resume', '--run', run],
      ['train', '--run', run],
    ]) {
      writeFileSync(db, bytes)
      const r = wmrl(args)
      expect(r.status, args[0]).toBe(1)
      oneLine(r.stderr, /run\.db is (damaged|empty)/, /; put a copy of it back, or train anew in another folder$/m)
      expect(r.stderr).not.toMatch(/SELECT|sqlite/i)
      expect(readFileSync(db).equals(bytes)).toBe(true)
    }
  })
  it('with a truncated newest checkpoint: the file is named, its ledger kept', () => {
    const run = join(dir, 'run-b')
    expect(wmrl(['train', '--run', run, ...SMALL, '--quiet']).status).toBe(0)
    const l = RunLedger.openReadOnly(join(run, 'run.db'))
    const [newest] = l.checkpoints()
    l.close()
    truncateSync(join(run, newest!.location), 1000)
    const r = wmrl(['train', '--run', run, '--resume', '--set', 'train.steps=2', '--quiet'])
    expect(r.status).toBe(1)
    oneLine(r.stderr, /none of 1 checkpoints opens/, /\.safetensors/, /--run/)
    const again = RunLedger.openReadOnly(join(run, 'run.db'))
    expect(again.steps().length).toBe(1)
    again.close()
  })
  // Mounting the small disk takes root.
  it.runIf(process.getuid?.() === 0)('on a full disk: one line, exit 1', () => {
    const disk = join(dir, 'disk')
    mkdirSync(disk)
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', disk])
    try {
      const r = wmrl(['train', '--run', join(disk, 'run'), ...SMALL, '--quiet'])
      expect(r.status).toBe(1)
      oneLine(r.stderr, /disk|space|ENOSPC/i)
    } finally {
      execFileSync('umount', ['-l', disk])
    }
  })
})
