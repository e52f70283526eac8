import { existsSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { TaskError } from '../core/index.ts'
import { cardOf, toyTask } from '../grading/testing.ts'
import { loadTask, preparedIds, testIds } from './source.ts'

/** Loads the toy task with one file replaced, and gives the error's message. */
async function refused(file: string, text: string, read: (t: Awaited<ReturnType<typeof toyTask>>) => Promise<unknown>) {
  using toy = await toyTask()
  writeFileSync(join(toy.task.dir, file), text, 'latin1')
  const e = await read(toy).then(
    () => undefined,
    (x: unknown) => x,
  )
  expect(e).toBeInstanceOf(TaskError)
  const message = (e as Error).message
  expect(message).not.toContain('\n')
  expect(message).toContain(file)
  return message
}
const load = (t: Awaited<ReturnType<typeof toyTask>>) => loadTask(t.dataDir, 'small', 'toy')

describe('a card that cannot be used: one line with the place and the fix', () => {
  const cases: [string, string, RegExp][] = [
    ['no JSON', '{"schema":', /not JSON/],
    ['another schema', JSON.stringify({ ...cardOf(), schema: 'wmrl-task/1' }), /schema/],
    [
      'an unknown metric',
      JSON.stringify(cardOf({ metric: { name: 'gini' as never, higherIsBetter: true } })),
      /metric\.name/,
    ],
    ['a missing key', JSON.stringify({ ...cardOf(), rows: undefined }), /rows/],
    ['an unknown key', JSON.stringify({ ...cardOf(), colour: 1 }), /colour/],
    ['no target', JSON.stringify(cardOf({ targets: [] })), /targets/],
    ['an id that is a path', JSON.stringify(cardOf({ id: '../toy' })), /id/],
  ]
  test.each(cases)('%s', async (_, text, why) => {
    const message = await refused('task.json', text, load)
    expect(message).toMatch(why)
    expect(message).toMatch(/run: wmrl tasks prepare toy/)
  })

  test('none at all', async () => {
    await expect(loadTask('/nowhere', 'builtin', 'spam-mail')).rejects.toThrow(
      /not prepared.*run: wmrl tasks prepare spam-mail/,
    )
    expect(await preparedIds('/nowhere', 'builtin')).toEqual([])
  })
})

describe('public files that are not those that were prepared', () => {
  const record = (files: [string, number][]): Record<string, string> => ({
    'prepared.json': JSON.stringify({ schema: 'wmrl-prepared/1', builder: 'b', digest: 'd', versions: {}, files }),
  })
  const files = (): Record<string, string> => {
    const images = { 'public/images/1.txt': 'one', 'public/train.csv': 'id,x,y\n11,1,1\n' }
    return { ...images, ...record(Object.entries(images).map(([name, text]) => [name, text.length])) }
  }
  test('none without a record: a task made by hand', async () => {
    using toy = await toyTask()
    expect(existsSync(join(toy.task.dir, 'prepared.json'))).toBe(false)
    rmSync(toy.task.answersPath('final'))
    expect((await load(toy)).card.id).toBe('toy')
  })
  test.each(['train.csv', 'test.csv', 'sample_submission.csv'])('%s missing, without a record', async (name) => {
    using toy = await toyTask()
    rmSync(join(toy.task.publicDir, name))
    await expect(load(toy)).rejects.toThrow(new RegExp(`public/${name} is missing; run: wmrl tasks prepare toy`))
  })
  test('a recorded file missing, cut, or longer', async () => {
    using toy = await toyTask({}, files())
    const path = join(toy.task.publicDir, 'images/1.txt')
    await load(toy)
    for (const spoil of [() => writeFileSync(path, ''), () => writeFileSync(path, 'four'), () => rmSync(path)]) {
      spoil()
      const e = await load(toy).catch((x: unknown) => x)
      expect(e).toBeInstanceOf(TaskError)
      expect((e as Error).message).toMatch(/public\/images\/1\.txt (has|is missing).*; run: wmrl tasks prepare toy/)
    }
  })
  test('a record that cannot be read', async () => {
    using toy = await toyTask({}, files())
    writeFileSync(join(toy.task.dir, 'prepared.json'), '{')
    await expect(load(toy)).rejects.toThrow(/prepared\.json is no record.*; run: wmrl tasks prepare toy/)
  })
})

describe('test.csv', () => {
  test('its ids in file order', async () => {
    using toy = await toyTask({}, { 'public/test.csv': '\ufeffx,id\n1,7\n2,3\n' })
    expect(await testIds(toy.task)).toEqual(['7', '3'])
  })
  test('without the id column', async () => {
    expect(await refused('public/test.csv', 'a,b\n1,2\n', (t) => testIds(t.task))).toMatch(
      /no column id.*wmrl tasks prepare/,
    )
  })
  test('ragged', async () => {
    expect(await refused('public/test.csv', 'id,x\n1,2,3\n', (t) => testIds(t.task))).toMatch(/line 2/)
  })
  test('not UTF-8', async () => {
    expect(await refused('public/test.csv', 'id,x\n\xff\xfe,2\n', (t) => testIds(t.task))).toMatch(
      /UTF-8.*wmrl tasks prepare/,
    )
  })
})
