import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { type Command, InvalidArgumentError } from 'commander'
import { ConfigError, MissingError, type Modality, messageOf, type Split, TaskError } from '../../core/index.ts'
import { FileBoards } from '../../grading/index.ts'
import { RAW_BOARDS } from '../../lab/score-program.ts'
import { validateTask } from '../../lab/validate.ts'
import {
  BUILT_SUITES,
  type BuiltSuite,
  catalogue,
  dataOverlap,
  inventory,
  isPrepared,
  loadTask,
  METRIC_FACTS,
  type MetricName,
  nameOverlap,
  overview,
  type PrepareResult,
  prepareTasks,
  type SubmissionKind,
  suiteDigests,
  suiteDir,
  type TaskCard,
} from '../../tasks/index.ts'
import { type CommandContext, countOf, Failed, pace, run } from '../command.ts'
import { suiteOfId } from '../one-program.ts'
import { artefactDir, dataDir, solutionsPython } from '../paths.ts'
import { boards, headroomOf } from '../task-boards.ts'
import { aligned } from '../task-list.ts'
import { boardStore, inClone, openGrader } from '../wiring.ts'

/** Programs at a time where the work is executions. */
const WIDTH = 2

export function addTasks(program: Command): void {
  const tasks = program
    .command('tasks')
    .description('the task pool: list, prepare, show, check')
    .addHelpText('after', '\nExample:\n  wmrl tasks list --suite builtin')
  const sub = (name: string, description: string, example: string): Command =>
    tasks
      .command(name)
      .description(description)
      .addHelpText('after', `\nExample:\n  wmrl tasks ${example}`)
      .exitOverride()

  sub('list', 'the task pool', 'list --suite builtin')
    .option('--suite <suite>', 'builtin or small; both unless told', suiteOf)
    .action(run(list))
  sub('prepare [ids...]', 'materialises tasks from registry packages; resumable', 'prepare ames-sale-price spam-mail')
    .option('--suite <suite>', 'builtin or small', suiteOf, 'builtin')
    .option('--data <dir>', 'where the tasks go')
    .option('--pin', 'for maintainers: build a suite apart and record its digests')
    .action(run(prepare))
  sub('show <id>', "a task's card, overview, submission contract and boards", 'show spam-mail').action(run(show))
  sub('validate [ids...]', 'grades perfect, sample, constant, malformed and empty submissions', 'validate spam-mail')
    .option('--suite <suite>', 'builtin or small', suiteOf, 'builtin')
    .action(run(validate))
  sub('boards [ids...]', 'recomputes leaderboards from their populations', 'boards spam-mail --check 0.05')
    .option('--check <share>', 'execute this share of the shipped entries again and compare', shareOf)
    .option('--width <n>', 'programs at a time', countOf, WIDTH)
    .action(run(boards))
  sub('overlap', 'names and data shared between splits and suites', 'overlap --json').action(run(overlap))
  sub('headroom', "executes programs of the agent's grammar on train and dev tasks", 'headroom --programs 200')
    .option('--programs <n>', 'programs a task', countOf, 200)
    .option('--width <n>', 'programs at a time', countOf, WIDTH)
    .action(run(headroomOf))
}

function suiteOf(value: string): BuiltSuite {
  const s = BUILT_SUITES.find((x) => x === value)
  if (s) return s
  throw new InvalidArgumentError(`the suites are ${BUILT_SUITES.join(' and ')}`)
}

function shareOf(value: string): number {
  const x = Number(value)
  if (value.trim() !== '' && x > 0 && x <= 1) return x
  throw new InvalidArgumentError('a share is above 0 and at most 1')
}

interface SuiteOption {
  readonly suite?: BuiltSuite
}

interface ListRow {
  readonly id: string
  readonly suite: BuiltSuite
  readonly modality: Modality
  /** Null where the task is not prepared and its metric not known before. */
  readonly metric: MetricName | null
  readonly higherIsBetter: boolean | null
  readonly split: Split
  readonly submissionKind: SubmissionKind | null
  readonly rows: TaskCard['rows'] | null
  readonly prepared: boolean
}

async function list({ out }: CommandContext, o: SuiteOption): Promise<void> {
  const rows: ListRow[] = []
  for (const suite of o.suite ? [o.suite] : BUILT_SUITES) {
    for (const e of catalogue(suite)) {
      const prepared = await isPrepared(dataDir(), e)
      const card = prepared ? (await loadTask(dataDir(), suite, e.id)).card : undefined
      const metric = card?.metric.name ?? e.metric ?? null
      rows.push({
        id: e.id,
        suite,
        modality: e.modality,
        metric,
        higherIsBetter: metric === null ? null : METRIC_FACTS[metric][0],
        split: e.split,
        submissionKind: metric === null ? null : METRIC_FACTS[metric][1],
        rows: card?.rows ?? null,
        prepared,
      })
    }
  }
  out.result(rows, () => {
    const lines = rows.map((r) => [
      r.id,
      r.suite,
      r.modality,
      r.split,
      r.metric === null ? '-' : `${r.metric} ${r.higherIsBetter ? 'up' : 'down'}`,
      r.submissionKind ?? '-',
      r.rows ? `${r.rows.train}/${r.rows.test}` : '-',
      r.prepared ? 'prepared' : '',
    ])
    const done = rows.filter((r) => r.prepared).length
    return `${aligned([['id', 'suite', 'modality', 'split', 'metric', 'kind', 'rows', ''], ...lines])}\n${rows.length} tasks, ${done} prepared`
  })
}

async function prepare(
  ctx: CommandContext,
  ids: readonly string[],
  o: { suite: BuiltSuite; data?: string; pin?: boolean },
): Promise<void> {
  const { out, signal } = ctx
  // A mistyped id is said before anything that this machine may lack.
  for (const id of ids) suiteOfId(id)
  const common = {
    dataDir: o.data ?? dataDir(),
    artefactDir: artefactDir(),
    python: solutionsPython(),
    signal,
    log: (l: string) => out.log(l),
  }
  if (o.pin) return pin(ctx, o.suite, common)
  // Ids of the other suite are as good as a flag.
  const bySuite = new Map<BuiltSuite, string[]>()
  for (const id of ids) {
    const suite = suiteOfId(id)
    bySuite.set(suite, [...(bySuite.get(suite) ?? []), id])
  }
  if (ids.length === 0) bySuite.set(o.suite, [])
  const results: PrepareResult[] = []
  for (const [suite, own] of bySuite) {
    if (suite === 'small' && (own.length === 0 || own.some((i) => i.startsWith('table-')))) {
      // Small tables are checked for twins against the built-in suite.
      const first = await prepareTasks({ ...common, suite: 'builtin', ids: [] })
      const bad = first.filter((r) => r.status === 'failed' || r.status === 'missing')
      for (const r of bad) out.log(`builtin/${r.id}: ${r.detail}`)
    }
    const started = Date.now()
    let made = 0
    const done = (r: PrepareResult, left: number): void => {
      if (r.status !== 'prepared') return
      made++
      const perS = made / Math.max(0.001, (Date.now() - started) / 1000)
      out.progress(`${r.id} prepared, ${left} to go, ${perS.toFixed(1)} tasks/s, ${Math.ceil(left / perS)} s left`, {
        last: left === 0,
      })
    }
    results.push(...(await prepareTasks({ ...common, suite, ids: own, done })))
  }
  const count = (s: PrepareResult['status']): number => results.filter((r) => r.status === s).length
  out.result(
    results.map(({ id, status, detail }) => ({ id, status, detail })),
    () => {
      const said = results.filter((r) => r.detail !== '').map((r) => `${r.id}: ${r.status}: ${r.detail}`)
      const counts = (['prepared', 'ready', 'missing', 'failed'] as const).filter((s) => count(s) > 0)
      return [...said, `${counts.map((s) => `${count(s)} ${s}`).join(', ')} in ${common.dataDir}`].join('\n')
    },
  )
  if (count('failed') > 0) throw new Failed(`${count('failed')} tasks could not be built`)
  if (count('missing') > 0) {
    const first = results.find((r) => r.status === 'missing')!
    throw new MissingError(`${count('missing')} tasks lack their source`, first.detail)
  }
}

/** Writes python/suite/digests.json from a build of the suite. */
async function pin(
  { out }: CommandContext,
  suite: BuiltSuite,
  common: Omit<Parameters<typeof suiteDigests>[0], 'suite'>,
): Promise<void> {
  if (!inClone()) throw new ConfigError('--pin', 'digests are recorded in a clone only')
  const { digests, failed } = await suiteDigests({ ...common, suite })
  const path = join(suiteDir(), 'digests.json')
  const { pinnedDigests } = await import('../../tasks/index.ts')
  const order = (d: Record<string, string>): Record<string, string> =>
    Object.fromEntries(Object.entries(d).sort(([a], [b]) => (a < b ? -1 : 1)))
  await writeFile(path, `${JSON.stringify({ ...pinnedDigests(), [suite]: order(digests) }, null, 1)}\n`)
  const rows = [...Object.keys(digests).map((id) => ({ id, status: 'pinned', detail: '' })), ...failed]
  out.result(rows, () => `${Object.keys(digests).length} digests written to ${path}, ${failed.length} tasks failed`)
  if (failed.length > 0) throw new Failed()
}

/** The text that the embedded agent reads; a language model reads the full one. */
const brief = (card: TaskCard): string => overview(card, { style: 'brief', budget: 10_000, count: (t) => t.length })

async function show({ out }: CommandContext, id: string): Promise<void> {
  const task = await loadTask(dataDir(), suiteOfId(id), id)
  const { card } = task
  const store = boardStore()
  const n = (scope: 'feedback' | 'final'): number => (store.path(task.ref) ? store.scores(task.ref, scope).length : 0)
  const files = await inventory(task)
  const full = overview(card, { style: 'full', budget: 100_000, count: (t) => t.length, files })
  const document = {
    id,
    suite: card.suite,
    overview: brief(card),
    fullOverview: full,
    contract: { ...card.submission, metric: card.metric.name, higherIsBetter: card.metric.higherIsBetter },
    boards: { public: { n: n('feedback') }, private: { n: n('final') } },
    files,
    card,
  }
  out.result(document, () => {
    const { submission: s, source } = card
    return [
      `${card.id} (${card.suite}, ${card.split}): ${card.title}`,
      card.story,
      '',
      'What the embedded agent reads:',
      ...document.overview
        .trimEnd()
        .split('\n')
        .map((l) => `  ${l}`),
      '',
      `Submission: ${[s.idColumn, ...s.columns].join(',')} (${s.kind}), ${card.rows.test} rows, ${card.metricFormula}`,
      `Boards: public ${document.boards.public.n} entries, private ${document.boards.private.n}`,
      `Rows: ${card.rows.train} train, ${card.rows.test} test (${card.rows.feedback} feedback, ${card.rows.final} final)`,
      `Source: ${source.package}, ${source.item}; licence: ${card.licence}`,
      ...card.notes.map((x) => `Note: ${x}`),
    ].join('\n')
  })
}

async function validate(
  { out, signal }: CommandContext,
  ids: readonly string[],
  o: { suite: BuiltSuite },
): Promise<void> {
  const names = ids.length > 0 ? ids : catalogue(o.suite).map((e) => e.id)
  const store = boardStore()
  await using boarded = openGrader(store)
  await using boardless = openGrader(RAW_BOARDS)
  const rows: { id: string; checks: { name: string; ok: boolean; detail: string }[] }[] = []
  const started = Date.now()
  for (const id of names) {
    signal.throwIfAborted()
    out.progress(`${id}: ${pace(started, rows.length, names.length, 'tasks')}`)
    const suite = suiteOfId(id)
    try {
      const task = await loadTask(dataDir(), suite, id)
      const path = store.path(task.ref)
      if (suite === 'builtin' && !path) throw new TaskError(`no leaderboard; run: wmrl tasks boards ${id}`)
      const file = path ? new FileBoards(dirname(dirname(path))).file(task.ref) : undefined
      rows.push({ id, checks: await validateTask(task, file ? boarded : boardless, file) })
    } catch (e) {
      rows.push({ id, checks: [{ name: 'loads', ok: false, detail: messageOf(e) }] })
    }
  }
  const bad = rows.filter((r) => r.checks.some((c) => !c.ok))
  out.result(rows, () =>
    [
      ...rows.flatMap((r) => [
        `${r.checks.every((c) => c.ok) ? 'ok ' : 'BAD'} ${r.id}`,
        ...r.checks.filter((c) => !c.ok).map((c) => `      ${c.name}: ${c.detail}`),
      ]),
      `${rows.length - bad.length} of ${rows.length} tasks are clean`,
    ].join('\n'),
  )
  if (bad.length > 0) throw new Failed(`${bad.length} tasks are not clean`)
}

async function overlap({ out, signal }: CommandContext): Promise<void> {
  const suites = BUILT_SUITES.filter((s) => existsSync(join(dataDir(), s)))
  const cards: TaskCard[] = []
  for (const s of suites) {
    for (const e of catalogue(s))
      if (await isPrepared(dataDir(), e)) cards.push((await loadTask(dataDir(), s, e.id)).card)
  }
  if (cards.length === 0) throw new TaskError('no task is prepared; run: wmrl tasks prepare')
  const started = { tasks: Date.now(), pairs: 0 }
  const progress = (done: number, of: number, what: 'tasks' | 'pairs'): void => {
    // Pairs begin when all tasks are read.
    if (what === 'tasks' && done === of) started.pairs = Date.now()
    const last = what === 'pairs' && done === of
    out.progress(`${what === 'tasks' ? 'reading' : 'comparing'}: ${pace(started[what], done, of, what)}`, { last })
  }
  const data = await dataOverlap({ python: solutionsPython(), dataDir: dataDir(), suites, signal, progress })
  const rows = [...data, ...nameOverlap(cards)]
  const across = data.filter((p) => p.sides[0] !== p.sides[1] || p.a.split('/')[0] !== p.b.split('/')[0])
  out.result(
    rows.map(({ a, b, kind, share }) => ({ a, b, kind, share })),
    () =>
      [
        ...rows.map((p) => `${p.kind} ${p.share.toFixed(2)}  ${p.a} (${p.sides[0]})  ${p.b} (${p.sides[1]})`),
        `${cards.length} tasks: ${data.length} pairs share data, ${across.length} of them across splits or suites`,
      ].join('\n'),
  )
  if (across.length > 0) throw new Failed(`${across.length} pairs share data across splits or suites`)
}
