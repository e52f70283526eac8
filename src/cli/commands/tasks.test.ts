/** The commands as they are typed: these tests need `npm run build`. */
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { builtEntry } from '../../core/index.ts'
import { testPython } from '../../tasks/testing.ts'

const home = mkdtempSync(join(tmpdir(), 'wmrl-cli-'))
afterAll(() => rmSync(home, { recursive: true, force: true }))

function wmrl(...args: string[]): { code: number | null; out: string; err: string } {
  const env = { ...process.env, WMRL_HOME: home, WMRL_PYTHON: testPython() ?? join(home, 'none') }
  const r = spawnSync(process.execPath, [builtEntry('cli/main.js'), 'tasks', ...args], { encoding: 'utf8', env })
  return { code: r.status, out: r.stdout, err: r.stderr }
}

describe('list', () => {
  test('is one document of every task, prepared or not', () => {
    const r = wmrl('list', '--json')
    expect(r.code).toBe(0)
    const rows = JSON.parse(r.out) as Record<string, unknown>[]
    const ames = rows.find((x) => x.id === 'ames-sale-price')
    expect(ames).toEqual({
      id: 'ames-sale-price',
      suite: 'builtin',
      modality: 'tabular',
      metric: 'rmsle',
      higherIsBetter: false,
      split: 'train',
      submissionKind: 'value',
      rows: null,
      prepared: false,
    })
    expect(rows.filter((x) => x.suite === 'builtin')).toHaveLength(36)
  })
  test('of one suite, for people', () => {
    const r = wmrl('list', '--suite', 'builtin')
    expect(r.out).toMatch(/^id +suite +modality/)
    expect(r.out).toMatch(/36 tasks, 0 prepared\n$/)
  })
})

describe('what is typed wrong: exit code 2, the value, the nearest', () => {
  test.each([
    [['show', 'spam-mial'], /spam-mial.*nearest is spam-mail/],
    [['prepare', 'ames'], /ames.*nearest is ames-sale-price/],
    [['validate', 'nothing-like-it'], /nothing-like-it/],
    [['list', '--suite', 'big'], /big.*builtin and small/],
    [['boards', '--check', '3'], /3.*share/],
    [['headroom', '--programs', 'many'], /many.*whole number/],
    [['lst'], /unknown command|list/],
  ] as const)('%j', (args, said) => {
    const r = wmrl(...args)
    expect(r.code).toBe(2)
    expect(r.err).toMatch(said)
    expect(r.out).toBe('')
  })
})

test('a task that is not prepared: exit code 1, one line with the fix', () => {
  const r = wmrl('show', 'spam-mail')
  expect(r.code).toBe(1)
  expect(r.err.trim().split('\n')).toHaveLength(1)
  expect(r.err).toMatch(/run: wmrl tasks prepare spam-mail/)
})

test('no Python: exit code 3, one line with the fix', () => {
  const env = { ...process.env, WMRL_HOME: home, WMRL_PYTHON: join(home, 'none') }
  const r = spawnSync(process.execPath, [builtEntry('cli/main.js'), 'tasks', 'prepare', 'digit-sum'], {
    encoding: 'utf8',
    env,
  })
  expect(r.status).toBe(3)
  expect(r.stderr).toMatch(/Python environment is missing.*npm run setup/)
})

test('help has an example', () => {
  for (const c of ['list', 'prepare', 'show', 'validate', 'boards', 'overlap', 'headroom']) {
    const r = wmrl(c, '--help')
    expect(r.code).toBe(0)
    expect(r.out).toContain(`Example:\n  wmrl tasks ${c}`)
  }
})

describe.runIf(testPython() !== undefined)('one task from preparation to validation', () => {
  test('prepare, show, validate', () => {
    const made = wmrl('prepare', 'digit-sum', '--json')
    expect(made.code, made.err).toBe(0)
    expect(JSON.parse(made.out)).toEqual([{ id: 'digit-sum', status: 'prepared', detail: '' }])
    expect(JSON.parse(wmrl('prepare', 'digit-sum', '--json').out)).toEqual([
      { id: 'digit-sum', status: 'ready', detail: '' },
    ])

    const shown = JSON.parse(wmrl('show', 'digit-sum', '--json').out) as Record<string, unknown>
    expect(shown).toMatchObject({
      id: 'digit-sum',
      contract: { kind: 'label', idColumn: 'id', columns: ['total'], metric: 'qwk' },
    })
    expect(shown.overview).toMatch(/^pixels label qwk\ntarget "total" integer/)
    expect(shown.boards).toEqual({ public: { n: expect.any(Number) }, private: { n: expect.any(Number) } })

    const checked = wmrl('validate', 'digit-sum', '--json')
    const [row] = JSON.parse(checked.out) as { id: string; checks: { name: string; ok: boolean }[] }[]
    // Without a shipped board there is nothing to place a grade on, and that is said.
    const names = row!.checks.map((c) => c.name)
    if (names.includes('loads')) expect(checked.code).toBe(1)
    else expect([checked.code, row!.checks.filter((c) => !c.ok)]).toEqual([0, []])
  })
  test('a broken card is one line, and the other tasks go on', () => {
    mkdirSync(join(home, 'tasks', 'builtin', 'spam-mail'), { recursive: true })
    writeFileSync(join(home, 'tasks', 'builtin', 'spam-mail', 'task.json'), '{"schema"')
    const r = wmrl('validate', 'spam-mail', 'digit-sum', '--json')
    const rows = JSON.parse(r.out) as { id: string; checks: { name: string; ok: boolean; detail: string }[] }[]
    expect(rows.map((x) => x.id)).toEqual(['spam-mail', 'digit-sum'])
    expect(rows[0]!.checks[0]!.detail).toMatch(
      /task\.json is not JSON; run: wmrl tasks prepare spam-mail|no leaderboard/,
    )
    expect(r.code).toBe(1)
  })
})
