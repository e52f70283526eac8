/** What is refused when tasks are chosen for training, on tasks that lie in a folder as prepared ones do. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { cardOf } from '../grading/testing.ts'
import type { TaskCard } from '../tasks/index.ts'
import { TaskPool } from './session.ts'

let dataDir: string
let pool: TaskPool
beforeAll(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'wmrl-choice-'))
  pool = new TaskPool(dataDir)
  put({ id: 'spam-mail', split: 'train' })
  put({ id: 'meat-spectra', split: 'train', trainable: false })
  put({ id: 'staff-attrition', split: 'dev' })
  put({ id: 'by-hand', split: 'heldout' })
})
afterAll(() => rmSync(dataDir, { recursive: true, force: true }))

function put(c: Partial<TaskCard> & { id: string }): void {
  const dir = join(dataDir, 'builtin', c.id)
  mkdirSync(join(dir, 'public'), { recursive: true })
  for (const f of ['train.csv', 'test.csv', 'sample_submission.csv']) writeFileSync(join(dir, 'public', f), 'id\n1\n')
  writeFileSync(join(dir, 'task.json'), JSON.stringify(cardOf({ suite: 'builtin', ...c })))
}

test('a split without names: what may be trained on; held-out tasks are evaluated', async () => {
  const ids = async (split: 'train' | 'dev' | 'heldout') => (await pool.select('builtin', split)).map((t) => t.id)
  expect(await ids('train')).toEqual(['spam-mail'])
  expect(await ids('dev')).toEqual(['staff-attrition'])
  expect(await ids('heldout')).toEqual(['by-hand'])
  expect((await pool.select('builtin', 'train', ['spam-mail'])).map((t) => t.id)).toEqual(['spam-mail'])
})

test.each<[string, string[], RegExp]>([
  ['held out by its card', ['spam-mail', 'by-hand'], /^tasks\.only: by-hand is held out.*; name tasks of split train/],
  ['held out, not prepared', ['concrete-strength'], /^tasks\.only: concrete-strength is held out/],
  ['not trainable', ['meat-spectra'], /^tasks\.only: meat-spectra is not trained on.*; leave it out/],
  ['not prepared', ['emoji-group'], /^tasks\.only: emoji-group is not prepared; run: wmrl tasks prepare emoji-group$/],
  ['mistyped', ['spam-mial'], /^tasks\.only: there is no task spam-mial in suite builtin; the nearest is spam-mail$/],
  ['of another suite', ['table-001'], /^tasks\.only: table-001 is a task of suite small.*; set tasks\.suite to small$/],
  ['none', [], /^tasks\.only: names no task; name at least one, or leave it out$/],
])('named tasks that will not do, %s: the key, the id and the fix', async (_, only, said) => {
  await expect(pool.select('builtin', 'train', only)).rejects.toThrow(said)
})

test('a suite that has nothing: the fix is one that works', async () => {
  await expect(pool.select('small', 'train')).rejects.toThrow(/no task of suite small is prepared; run: wmrl tasks/)
  await expect(pool.select('mle-dojo', 'train')).rejects.toThrow(
    /^tasks\.suite: the tasks of mle-dojo cannot be prepared.*; set it to builtin or small$/,
  )
  const empty = new TaskPool(join(dataDir, 'none'))
  await expect(empty.select('builtin', 'heldout')).rejects.toThrow(/run: wmrl tasks prepare --suite builtin$/)
})
