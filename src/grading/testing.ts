import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { loadTask, type Task, type TaskCard } from '../tasks/index.ts'

/** A small valid card for tests; ids 1..4, feedback 1,2, final 3,4. */
export function cardOf(change: Partial<TaskCard> = {}): TaskCard {
  return {
    schema: 'wmrl-task/2',
    id: 'toy',
    suite: 'small',
    title: 'Toy',
    modality: 'tabular',
    split: 'train',
    trainable: true,
    metric: { name: 'rmse', higherIsBetter: false },
    submission: { kind: 'value', idColumn: 'id', columns: ['y'] },
    targets: ['y'],
    columns: [{ name: 'x', type: 'number', missing: false }],
    extraTrainColumns: [],
    rows: { train: 4, test: 4, feedback: 2, final: 2 },
    target: { type: 'number', positive: true, skewed: false },
    story: 'Predict y from x.',
    metricFormula: 'root mean squared error',
    splitRule: 'row',
    notes: [],
    source: { registry: 'npm', package: 'none', item: 'toy', sha256: null },
    licence: 'none',
    leakChecks: {},
    ...change,
  }
}

export const TOY_IDS = ['1', '2', '3', '4'] as const
const FINAL_SECRET = '777.125'

/** Writes the toy task to a folder of its own; dispose of it. The final answers hold a number found nowhere else. */
export async function toyTask(
  change: Partial<TaskCard> = {},
  files: Record<string, string> = {},
): Promise<{ task: Task; dataDir: string; finalSecret: string } & Disposable> {
  const dataDir = mkdtempSync(join(tmpdir(), 'wmrl-toy-'))
  const card = cardOf(change)
  const dir = join(dataDir, card.suite, card.id)
  const all: Record<string, string> = {
    'task.json': JSON.stringify(card),
    'public/train.csv': 'id,x,y\n11,1,1\n12,2,2\n13,3,3\n14,4,4\n',
    'public/test.csv': 'id,x\n1,1\n2,2\n3,3\n4,4\n',
    'public/sample_submission.csv': 'id,y\n1,0\n2,0\n3,0\n4,0\n',
    'private/feedback.csv': 'id,y\n1,1.5\n2,2.5\n',
    'private/final.csv': `id,y\n3,3.5\n4,${FINAL_SECRET}\n`,
    ...files,
  }
  for (const [name, text] of Object.entries(all)) {
    await mkdir(dirname(join(dir, name)), { recursive: true })
    writeFileSync(join(dir, name), text)
  }
  return {
    task: await loadTask(dataDir, card.suite, card.id),
    dataDir,
    finalSecret: FINAL_SECRET,
    [Symbol.dispose]: () => rmSync(dataDir, { recursive: true, force: true }),
  }
}
