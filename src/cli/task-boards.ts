import { mkdir, rename, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { TaskError } from '../core/index.ts'
import { FileBoards } from '../grading/index.ts'
import { LIMIT_PROFILES } from '../judge/index.ts'
import { buildBoard } from '../lab/boards/build.ts'
import { checkBoard } from '../lab/boards/check.ts'
import { headroom } from '../lab/headroom.ts'
import { programScorer, RAW_BOARDS } from '../lab/score-program.ts'
import { catalogue, type Task } from '../tasks/index.ts'
import { type CommandContext, Failed, pace } from './command.ts'
import { suiteOfId } from './one-program.ts'
import { aligned, load } from './task-list.ts'
import { boardStore, openExecutor, openGrader, ownBoardsDir } from './wiring.ts'

/** Executes and composes leaderboards, or checks a share of those there are. */
export async function boards(
  { out, signal }: CommandContext,
  ids: readonly string[],
  o: { check?: number; width: number },
): Promise<void> {
  for (const id of ids) suiteOfId(id, ['builtin'])
  const tasks = await load('builtin', ids)
  if (o.check !== undefined) return checkBoards(out, signal, tasks, o.check, o.width)
  await using executor = await openExecutor({ workers: o.width })
  const rows: { id: string; entries: number; failed: number }[] = []
  const started = Date.now()
  for (const task of tasks) {
    out.progress(`${task.card.id}: ${pace(started, rows.length, tasks.length, 'tasks')}`)
    const { file } = await buildBoard(task, executor, LIMIT_PROFILES.board, o.width, signal)
    const path = join(ownBoardsDir(), task.ref.suite, `${task.card.id}.json`)
    await mkdir(dirname(path), { recursive: true })
    await writeFile(`${path}.part`, `${JSON.stringify(file)}\n`)
    await rename(`${path}.part`, path)
    const failed = file.left.filter((l) => !/^its errors are|^a fifth/.test(l.why)).length
    rows.push({ id: task.card.id, entries: file.entries.length, failed })
    out.log(`${task.card.id}: ${file.entries.length} entries, ${failed} recipes failed`)
  }
  out.result(rows, () => `${rows.length} leaderboards written to ${ownBoardsDir()}`)
}

async function checkBoards(
  out: CommandContext['out'],
  signal: AbortSignal,
  tasks: readonly Task[],
  share: number,
  width: number,
): Promise<void> {
  await using executor = await openExecutor({ workers: width, cache: false })
  await using grader = openGrader(RAW_BOARDS)
  const store = boardStore()
  const rows: { id: string; entries: number; checked: number; failed: number; detail: string }[] = []
  const started = Date.now()
  for (const task of tasks) {
    out.progress(`${task.card.id}: ${pace(started, rows.length, tasks.length, 'tasks')}`)
    const path = store.path(task.ref)
    if (!path) throw new TaskError(`${task.card.id} has no leaderboard; run: wmrl tasks boards ${task.card.id}`)
    const file = new FileBoards(dirname(dirname(path))).file(task.ref)
    const c = await checkBoard(task, file, { share, executor, grader, limits: LIMIT_PROFILES.board, width, signal })
    const detail = c.differences.map((d) => `${d.recipe}: ${d.why}`).join('; ')
    rows.push({ id: c.id, entries: c.entries, checked: c.checked, failed: c.differences.length, detail })
    if (detail) out.log(`${c.id}: ${detail}`)
  }
  const sum = (f: (r: (typeof rows)[number]) => number): number => rows.reduce((s, r) => s + f(r), 0)
  out.result(rows, () => `${sum((r) => r.checked)} entries executed again, ${sum((r) => r.failed)} differ`)
  if (sum((r) => r.failed) > 0) throw new Failed('shipped leaderboards are not reproduced here')
}

/** How much better the best program of the grammar is than any single one, on train and dev tasks. */
export async function headroomOf(
  { out, signal }: CommandContext,
  o: { programs: number; width: number },
): Promise<void> {
  const ids = catalogue('builtin').filter((e) => e.split !== 'heldout')
  const tasks = (
    await load(
      'builtin',
      ids.map((e) => e.id),
    )
  ).filter((t) => t.card.trainable)
  await using executor = await openExecutor({ workers: o.width })
  await using grader = openGrader(RAW_BOARDS)
  const started = Date.now()
  const h = await headroom(tasks, {
    programs: o.programs,
    width: o.width,
    scorer: programScorer(executor, grader, LIMIT_PROFILES.demo),
    boards: boardStore(),
    signal,
    progress: (done, of, cached) => out.progress(pace(started, done, of, 'programs', cached), { last: done === of }),
  })
  out.result(h, () =>
    [
      aligned([
        ['task', 'best', 'valid', 'program'],
        ...h.tasks.map((t) => [t.id, t.best.toFixed(2), `${t.valid}/${t.programs}`, t.bestProgram]),
      ]),
      '',
      ...h.singles.slice(0, 5).map((s) => `${s.program}: mean ${s.mean.toFixed(3)}`),
      `best single program ${h.bestSingle.program} ${h.bestSingle.mean.toFixed(3)}, gap ${h.gap.toFixed(3)}`,
    ].join('\n'),
  )
}
