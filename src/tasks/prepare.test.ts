import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { ConfigError, folderHash, keyed, MissingError } from '../core/index.ts'
import { cardOf } from '../grading/testing.ts'
import { fetchArtefact } from './artefacts.ts'
import { artefactPins, catalogue, METRIC_FACTS, pinnedDigests } from './catalogue.ts'
import { dataOverlap, nameOverlap } from './overlap.ts'
import { nearest, type PrepareOptions, type PrepareResult, prepareTasks } from './prepare.ts'
import { loadTask, preparedIds, testIds } from './source.ts'
import { testArtefacts, testPython } from './testing.ts'

let dir: string
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-prepare-'))
})
afterEach(() => rmSync(dir, { recursive: true, force: true }))

const signal = new AbortController().signal
const options = (change: Partial<PrepareOptions> = {}): PrepareOptions => ({
  suite: 'builtin',
  ids: [],
  dataDir: join(dir, 'tasks'),
  artefactDir: testArtefacts(),
  python: testPython() ?? 'python3',
  signal,
  log: () => {},
  ...change,
})

describe('the catalogue', () => {
  test('has 36 tasks, 22 to train, 4 dev, 10 held out; each pinned', () => {
    const all = catalogue('builtin')
    const count = (split: string): number => all.filter((e) => e.split === split).length
    expect([all.length, count('train'), count('dev'), count('heldout')]).toEqual([36, 22, 4, 10])
    expect(Object.keys(pinnedDigests().builtin).sort()).toEqual(all.map((e) => e.id).sort())
    for (const e of all) for (const s of e.sources) expect(artefactPins().has(s)).toBe(true)
  })
  test('small has about 200 tasks and more, all for training, apart by id', () => {
    const small = catalogue('small')
    expect(small.length).toBeGreaterThanOrEqual(200)
    expect(small.every((e) => e.split === 'train')).toBe(true)
    const ids = [...catalogue('builtin'), ...small].map((e) => e.id)
    expect(new Set(ids).size).toBe(ids.length)
  })
})

test('an unknown id is a usage error that names the nearest', async () => {
  await expect(prepareTasks(options({ ids: ['spam-mial'] }))).rejects.toThrow(ConfigError)
  await expect(prepareTasks(options({ ids: ['spam-mial'] }))).rejects.toThrow(/nearest is spam-mail/)
  expect(nearest('ames', catalogue('builtin'))).toBe('ames-sale-price')
})

/** A builder of a few lines of shell; `dies` and `fails` are ids. */
function fakeBuilder(o: { dies?: string; fails?: string; refuses?: string } = {}): string {
  const path = join(dir, 'python')
  writeFileSync(
    path,
    `#!/bin/sh
echo x >> "${dir}/starts"
${o.refuses ? `echo "suite: ${o.refuses}" >&2; exit 1` : ''}
while [ $# -gt 0 ]; do case "$1" in --out) out=$2;; --ids) ids=$2;; esac; shift; done
for id in $(echo $ids | tr , ' '); do
  echo "{\\"id\\":\\"$id\\",\\"status\\":\\"begin\\"}"
  if [ "$id" = "${o.dies ?? ''}" ]; then kill -9 $$; fi
  if [ "$id" = "${o.fails ?? ''}" ]; then echo "{\\"id\\":\\"$id\\",\\"status\\":\\"failed\\",\\"detail\\":\\"KeyError: x\\"}"; continue; fi
  mkdir -p "$out/$id/public"; echo "{}" > "$out/$id/task.json"; echo a > "$out/$id/public/train.csv"
  echo "{\\"id\\":\\"$id\\",\\"status\\":\\"built\\",\\"versions\\":{\\"pandas\\":\\"9\\"}}"
done
`,
  )
  chmodSync(path, 0o755)
  return path
}
const starts = (): number => readFileSync(join(dir, 'starts'), 'utf8').length / 2

/** Only what needs no artefact, or whose artefact is there or can be fetched. */
async function fetched(key: string): Promise<boolean> {
  const python = testPython()
  if (!python) return false
  return fetchArtefact(artefactPins().get(key)!, { ...options(), dir: testArtefacts(), python }).then(
    () => true,
    (e: unknown) => {
      if (e instanceof MissingError) return false
      throw e
    },
  )
}

describe('one broken task never stops the others', () => {
  const ids = ['word-stress', 'digit-sum']
  const status = (r: readonly PrepareResult[]): string[] => r.map((x) => x.status)

  test('a builder that dies: the task it was at is the broken one', async (ctx) => {
    if (!(await fetched('cmudict'))) ctx.skip()
    const r = await prepareTasks(options({ ids, python: fakeBuilder({ dies: 'word-stress' }) }))
    expect(status(r)).toEqual(['failed', 'prepared'])
    expect(r[0]!.detail).toMatch(/builder ended \(SIGKILL\)/)
    expect(starts()).toBe(2)
  })
  test('a task that cannot be built', async (ctx) => {
    if (!(await fetched('cmudict'))) ctx.skip()
    const r = await prepareTasks(options({ ids, python: fakeBuilder({ fails: 'word-stress' }) }))
    expect(status(r)).toEqual(['failed', 'prepared'])
    expect(r[0]!.detail).toBe('KeyError: x')
    expect(starts()).toBe(1)
  })
  test('a source that cannot be had: its tasks are missing, by name, the others are made', async () => {
    const path = process.env.PATH
    process.env.PATH = join(dir, 'nothing')
    try {
      const said: string[] = []
      // The builder's own tools are found by their full path.
      const python = fakeBuilder()
      writeFileSync(python, readFileSync(python, 'utf8').replace('#!/bin/sh', `#!/bin/sh\nPATH=${path}`))
      const r = await prepareTasks(
        options({
          ids: ['garment-kind', 'word-stress', 'digit-sum'],
          artefactDir: join(dir, 'none'),
          python,
          log: (l) => said.push(l),
        }),
      )
      expect(status(r)).toEqual(['missing', 'missing', 'prepared'])
      expect(said.join('\n')).toMatch(/apt-get.*needed by garment-kind/)
      expect(r[1]!.detail).toMatch(/needs npm, which this machine lacks; install npm/)
    } finally {
      process.env.PATH = path
    }
  })
})

describe('what is there is left alone', () => {
  const one = (change: Partial<PrepareOptions> = {}) =>
    options({ ids: ['digit-sum'], python: fakeBuilder(), ...change })

  test('a second call starts no builder', async () => {
    expect((await prepareTasks(one()))[0]).toMatchObject({ status: 'prepared' })
    expect((await prepareTasks(one()))[0]).toMatchObject({ status: 'ready' })
    expect(starts()).toBe(1)
  })
  test('a task that lost a file, whose file was cut, or that another builder made is built again', async () => {
    const o = one()
    const task = join(o.dataDir, 'builtin', 'digit-sum')
    const spoil: (() => void)[] = [
      () => rmSync(join(task, 'public', 'train.csv')),
      () => writeFileSync(join(task, 'public', 'train.csv'), ''),
      () => rmSync(join(task, 'prepared.json')),
      // Of the same size: what `prepare` is named as the fix for must be seen by it.
      () => writeFileSync(join(task, 'public', 'train.csv'), 'b\n'),
      () => writeFileSync(join(task, 'prepared.json'), '{'),
      () => {
        const r = JSON.parse(readFileSync(join(task, 'prepared.json'), 'utf8')) as object
        writeFileSync(join(task, 'prepared.json'), JSON.stringify({ ...r, builder: 'of yesterday' }))
      },
    ]
    await prepareTasks(o)
    for (const s of spoil) {
      s()
      expect((await prepareTasks(o))[0]).toMatchObject({ status: 'prepared' })
      expect(existsSync(join(task, 'public', 'train.csv'))).toBe(true)
    }
  })
  test('files that differ from those the boards were made on are noticed', async () => {
    const [r] = await prepareTasks(one())
    expect(r!.detail).toMatch(/differ from those that the boards were made on \(built with pandas 9\)/)
  })
  test('the digest of the public files is recorded; a record of an earlier version, without it, is as good', async () => {
    const o = one()
    await prepareTasks(o)
    const task = join(o.dataDir, 'builtin', 'digit-sum')
    const record = JSON.parse(readFileSync(join(task, 'prepared.json'), 'utf8')) as { publicHash?: string }
    expect(record.publicHash).toBe(await folderHash(join(task, 'public')))
    const { publicHash: _, ...earlier } = record
    writeFileSync(join(task, 'prepared.json'), JSON.stringify(earlier))
    expect((await prepareTasks(o))[0]).toMatchObject({ status: 'ready' })
  })
  test('half-made tasks of processes that are gone are swept, and none is listed', async () => {
    const o = one()
    mkdirSync(join(o.dataDir, '.building', '999999999', 'spam-mail'), { recursive: true })
    await prepareTasks(o)
    expect(readdirSync(join(o.dataDir, '.building'))).toEqual([])
    expect(await preparedIds(o.dataDir, 'builtin')).toEqual(['digit-sum'])
  })
})

test('a Python that cannot build is missing, with the fix', async () => {
  const o = options({
    ids: ['digit-sum'],
    python: fakeBuilder({ refuses: 'pandas 2.x is needed to build tasks, it has 3.0.1' }),
  })
  await expect(prepareTasks(o)).rejects.toThrow(/pandas 2\.x is needed.*3\.0\.1; run: npm run setup/)
  await expect(prepareTasks(options({ ids: ['digit-sum'], python: join(dir, 'no-python') }))).rejects.toThrow(
    MissingError,
  )
})

test('two real tasks from their artefacts: whole, as pinned, answers kept to ourselves', async (ctx) => {
  if (!(await fetched('cmudict')) || !(await fetched('udhr'))) ctx.skip()
  const o = options({ ids: ['word-stress', 'language-of-snippet'] })
  const r = await prepareTasks(o)
  expect(r.map((x) => [x.status, x.detail])).toEqual([
    ['prepared', ''],
    ['prepared', ''],
  ])
  for (const { id, digest } of r) {
    expect(digest).toBe(pinnedDigests().builtin[id])
    const task = await loadTask(o.dataDir, 'builtin', id)
    const [higher, kind] = METRIC_FACTS[task.card.metric.name]
    expect([task.card.metric.higherIsBetter, task.card.submission.kind]).toEqual([higher, kind])
    expect(task.card.source).toMatchObject({ registry: 'npm', sha256: expect.stringMatching(/^[0-9a-f]{64}$/) })
    expect((await testIds(task)).length).toBe(task.card.rows.test)
    expect(statSync(join(task.dir, 'private')).mode & 0o777).toBe(0o700)
    expect(statSync(task.publicDir).mode & 0o005).toBe(0o005)
    const rows = (s: 'feedback' | 'final'): number =>
      readFileSync(task.answersPath(s), 'utf8').trim().split('\n').length - 1
    expect([rows('feedback'), rows('final')]).toEqual([task.card.rows.feedback, task.card.rows.final])
  }
  // Resumable: one task lost, the other stays.
  rmSync(join(o.dataDir, 'builtin', 'word-stress'), { recursive: true })
  expect((await prepareTasks(o)).map((x) => x.status)).toEqual(['prepared', 'ready'])
})

describe('twins are found by content', () => {
  /** A prepared task of this table; `names` are its columns. */
  function plant(
    suite: string,
    id: string,
    split: string,
    names: readonly string[],
    rows: readonly (readonly unknown[])[],
  ): void {
    const at = join(dir, 'tasks', suite, id)
    mkdirSync(join(at, 'public'), { recursive: true })
    writeFileSync(join(at, 'task.json'), JSON.stringify({ id, split }))
    const csv = (rs: readonly (readonly unknown[])[], from: number): string =>
      `id,${names.join(',')}\n${rs.map((r, i) => [from + i, ...r].join(',')).join('\n')}\n`
    writeFileSync(join(at, 'public', 'train.csv'), csv(rows.slice(0, 150), 1))
    writeFileSync(join(at, 'public', 'test.csv'), csv(rows.slice(150), 900))
  }
  const table = (name: string, n: number): unknown[][] => {
    const r = keyed('table', name)
    return Array.from({ length: n }, () => [
      Math.round(r.next() * 500) / 10,
      r.int(90),
      r.pick(['red', 'green', 'blue']),
      Math.round(r.next() * 1e4) / 100,
    ])
  }

  test('a planted twin under other names, in other order, among other rows; a table of its own kind is none', async (ctx) => {
    const python = testPython()
    if (!python) ctx.skip()
    const a = table('original', 300)
    plant('builtin', 'original', 'heldout', ['size', 'age', 'colour', 'price'], a)
    // A tenth of the rows, columns renamed and in another order, 0.5 written as 0.50.
    const twin = [...table('other', 270), ...a.slice(40, 70)]
      .map(([s, g, c, p]) => [p, c, g, `${Number(s).toFixed(2)}`])
      .reverse()
    plant('small', 'twin', 'train', ['v1', 'v2', 'v3', 'v4'], twin)
    plant('small', 'stranger', 'train', ['size', 'age', 'colour', 'price'], table('stranger', 300))
    const said: string[] = []
    const found = await dataOverlap({
      python: python!,
      dataDir: join(dir, 'tasks'),
      suites: ['builtin', 'small'],
      signal,
      progress: (done, of, what) => said.push(`${done}/${of} ${what}`),
    })
    // Three tasks; the two of the corpus are not compared with each other.
    expect(said).toEqual(['1/3 tasks', '2/3 tasks', '3/3 tasks', '2/2 pairs'])
    expect(found.map((f) => [f.a, f.b, f.kind])).toEqual([['builtin/original', 'small/twin', 'data']])
    expect(found[0]!.share).toBeGreaterThan(0.05)
    expect(found[0]!.share).toBeLessThan(0.2)
    expect(found[0]!.sides).toEqual(['heldout', 'train'])
  })

  test('the same source under the same name on two sides', () => {
    const at = (id: string, split: 'train' | 'dev', item: string) => ({
      ...cardOf({ id, split }),
      suite: 'builtin' as const,
      source: { registry: 'pypi', package: 'p', item, sha256: null },
    })
    const cards = [
      at('a', 'train', 'x/ames'),
      at('b', 'dev', 'y/Ames'),
      at('c', 'train', 'z/ames'),
      at('d', 'train', 'z/other'),
    ]
    expect(nameOverlap(cards).map((o) => [o.a, o.b])).toEqual([
      ['builtin/a', 'builtin/b'],
      ['builtin/b', 'builtin/c'],
    ])
  })
})
