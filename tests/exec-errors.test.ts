import {
  appendFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { home, solutionsPython } from '../src/cli/paths.ts'
import { folderHash } from '../src/core/index.ts'
import { prepare, wmrl } from './helpers.ts'

let dir: string
let program: string
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-errors-'))
  program = join(dir, 'p.py')
  writeFileSync(program, 'import pandas as pd\npd.read_csv("train.csv")\n')
}, 900_000)
afterAll(() => rmSync(dir, { recursive: true, force: true }))

/** One line on stderr, nothing on stdout. */
function refused(status: number, args: readonly string[], said: RegExp, env: NodeJS.ProcessEnv = {}): void {
  const r = wmrl(args, { env })
  expect(r.stderr.trim().split('\n')).toHaveLength(1)
  expect(r.stderr).toMatch(said)
  expect(r.stdout).toBe('')
  expect(r.status).toBe(status)
}

describe.each(['exec', 'predict'])('%s is given what does not exist: exit 2 before anything is started', (command) => {
  // Without an environment for programs no sandbox could start: the usage error comes first.
  const env = { WMRL_PYTHON: '/nonexistent/python' }
  it('a mistyped task', () => {
    refused(2, [command, '--task', 'concrete-strenght', program], /--task: .*nearest is concrete-strength/, env)
    refused(2, [command, '--task', 'builtin/spam-mial', program], /--task: .*nearest is spam-mail/, env)
    refused(2, [command, '--task', 'big/spam-mail', program], /--task: unknown suite big; builtin or small/, env)
    refused(2, [command, '--task', '../spam-mail', program], /--task: /, env)
  })
  it('a file', () => {
    refused(2, [command, '--task', 'concrete-strength', join(dir, 'none.py')], /none\.py: cannot be read/, env)
  })
})

it('predict reads the environment as train does', () => {
  const env = { WMRL_ENGINE_THREADS: '1' }
  prepare('concrete-strength')
  refused(2, ['predict', '--task', 'concrete-strength', program], /did you mean WMRL_ENGINE__THREADS/, env)
}, 900_000)

it.each(['replay', 'fidelity', 'eval'])('%s of a run that is not there: exit 2, its name', (command) => {
  refused(2, [command, join(dir, 'no-run')], /no-run/)
})

describe('a public file that is not the prepared one is never the fault of a program', () => {
  it.each<[string, (path: string) => void]>([
    ['missing', (p) => rmSync(p)],
    ['cut', (p) => truncateSync(p, 1000)],
    ['longer', (p) => appendFileSync(p, '1,2\n')],
  ])(
    '%s',
    (_, spoil) => {
      prepare('concrete-strength')
      const own = mkdtempSync(join(dir, 'home-'))
      const task = join('tasks', 'builtin', 'concrete-strength')
      mkdirSync(join(own, 'tasks', 'builtin'), { recursive: true })
      cpSync(join(home(), task), join(own, task), { recursive: true })
      spoil(join(own, task, 'public', 'train.csv'))
      const env = { WMRL_HOME: own, WMRL_PYTHON: solutionsPython() }
      const said = /public\/train\.csv .*; run: wmrl tasks prepare concrete-strength/
      refused(1, ['exec', '--task', 'concrete-strength', program], said, env)
      refused(1, ['predict', '--task', 'concrete-strength', program], said, env)
    },
    900_000,
  )
})

it('nor is one of the prepared size with other bytes, which no size tells', async () => {
  prepare('concrete-strength')
  const own = mkdtempSync(join(dir, 'home-'))
  const task = join(own, 'tasks', 'builtin', 'concrete-strength')
  cpSync(join(home(), 'tasks', 'builtin', 'concrete-strength'), task, { recursive: true })
  // As it is prepared today; a home of an earlier version may lack the digest.
  const record = JSON.parse(readFileSync(join(task, 'prepared.json'), 'utf8')) as object
  const publicHash = await folderHash(join(task, 'public'))
  writeFileSync(join(task, 'prepared.json'), JSON.stringify({ ...record, publicHash }))
  const path = join(task, 'public', 'train.csv')
  writeFileSync(path, readFileSync(path, 'utf8').replaceAll(',', ';'))
  const env = { WMRL_HOME: own, WMRL_PYTHON: solutionsPython() }
  const r = wmrl(['exec', '--task', 'concrete-strength', program, '--quiet', '--json'], { env })
  expect(r.status).toBe(1)
  expect(JSON.parse(r.stdout).unscorable).toMatchObject({
    cause: 'infra',
    detail: expect.stringMatching(/public have other bytes .*; run: wmrl tasks prepare concrete-strength$/),
  })
}, 900_000)

it('a home that cannot be written: exit 2, its name and the fix', () => {
  prepare('concrete-strength')
  const own = join(dir, 'closed')
  mkdirSync(join(own, 'tasks', 'builtin'), { recursive: true })
  const task = join('tasks', 'builtin', 'concrete-strength')
  cpSync(join(home(), task), join(own, task), { recursive: true })
  // Root may write anywhere; a file in the way stops it too.
  writeFileSync(join(own, 'sandbox'), '')
  const env = { WMRL_HOME: own, WMRL_PYTHON: solutionsPython() }
  const said = /WMRL_HOME: .*closed\/sandbox cannot be made .*; set it to a folder that can be written/
  refused(2, ['exec', '--task', 'concrete-strength', program], said, env)
}, 900_000)
