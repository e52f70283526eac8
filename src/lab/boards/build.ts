import { readFile } from 'node:fs/promises'
import { keyedSeed } from '../../core/index.ts'
import { type Executor, executionKey, folderHash } from '../../executors/index.ts'
import { type BoardFile, checkSubmission, gradeSubmission, readAnswers } from '../../grading/index.ts'
import type { Limits } from '../../sandbox/index.ts'
import { type Task, testIds } from '../../tasks/index.ts'
import { pool } from '../score-program.ts'
import { composeBoard, errorVector, LEAST_STRONG, type Scored } from './compose.ts'
import { PLAIN, type Recipe, recipes } from './recipes.ts'

/** CPU seconds of a recipe: strong ones may take long, the others are quick ones by definition. */
export const RECIPE_CPU_S = { strong: 20, plain: 5, crippled: 5 } as const

/** Recipes that must have run before a board is composed. */
const LEAST_RAN = 80

export interface BoardReport {
  readonly file: BoardFile
  readonly ran: number
  readonly cpuS: number
  /** Errors of no two entries correlate above this. */
  readonly correlation: number
}

/**
 * Executes a task's recipes and composes its two leaderboards. Executions are cached by content, so an interrupted build
 * goes on where it stopped. Recipes are ours, so they are graded here, with both scopes at hand.
 */
export async function buildBoard(
  task: Task,
  executor: Executor,
  limits: Limits,
  width: number,
  signal: AbortSignal,
): Promise<BoardReport> {
  const { card } = task
  const ids = await testIds(task)
  const dataHash = await folderHash(task.publicDir)
  const seed = keyedSeed('task', 0, task.ref.suite, task.ref.id)
  const scope = async (s: 'feedback' | 'final') => readAnswers(card, ids, await readFile(task.answersPath(s)))
  const answers = { feedback: await scope('feedback'), final: await scope('final') }
  const truth = truthInOrder(ids, answers)
  const left: { recipe: string; why: string }[] = []
  let cpuS = 0
  const one = async (recipe: Recipe): Promise<Scored | undefined> => {
    const own = { ...limits, cpuS: RECIPE_CPU_S[recipe.strength] }
    const key = executionKey({
      code: recipe.code,
      dataHash,
      environment: executor.environment,
      limits: own,
      seed,
      rung: undefined,
    })
    const e = await executor.execute({ key, code: recipe.code, publicDir: task.publicDir, limits: own, seed }, signal)
    cpuS += e.cost.cpuS
    const drop = (why: string): undefined => {
      left.push({ recipe: recipe.name, why })
    }
    if (e.end.kind !== 'finished' || !e.end.submission)
      return drop(e.end.kind === 'crashed' ? `crashed: ${e.end.error.type}` : e.end.kind)
    const checked = checkSubmission(card, ids, e.end.submission)
    if ('code' in checked) return drop(`invalid: ${checked.code}`)
    const f = gradeSubmission(card, answers.feedback, [0, 1], 'feedback', e.end.submission)
    const g = gradeSubmission(card, answers.final, [0, 1], 'final', e.end.submission)
    if (f.kind !== 'scored' || g.kind !== 'scored') return drop('not gradable')
    return { recipe, feedback: f.score, final: g.score, errors: errorVector(card, checked.predicted, truth) }
  }
  const run = async (reserve: boolean): Promise<Scored[]> => {
    // Where many recipes cannot run (a text column of single words has no word pairs), more random ones are drawn.
    for (let plain = PLAIN; ; plain += 20) {
      left.length = 0
      const scored = await pool(
        recipes(card, { plain, reserve }).map((r) => () => one(r)),
        width,
      )
      const ran = scored.filter((s): s is Scored => s !== undefined)
      if (ran.length >= LEAST_RAN || plain >= 10 * PLAIN) return ran
    }
  }
  // The reserve of strong recipes is asked where the first ones leave too few.
  let ran = await run(false)
  let board = composeBoard(ran)
  if (board.kept.filter((s) => s.recipe.strength === 'strong').length < LEAST_STRONG) {
    ran = await run(true)
    board = composeBoard(ran)
  }
  const higher = card.metric.higherIsBetter
  const entries = [...board.kept]
    .sort((a, b) => (higher ? b.feedback - a.feedback : a.feedback - b.feedback))
    .map((s) => ({
      recipe: s.recipe.name,
      family: s.recipe.family,
      strength: s.recipe.strength,
      feedback: round12(s.feedback),
      final: round12(s.final),
    }))
  left.sort((a, b) => (a.recipe < b.recipe ? -1 : 1))
  return {
    file: {
      schema: 'wmrl-board/1',
      task: card.id,
      metric: card.metric.name,
      higherIsBetter: higher,
      correlation: board.correlation,
      entries,
      left: [...left, ...board.left],
    },
    ran: ran.length,
    cpuS,
    correlation: board.correlation,
  }
}

/** Twelve digits: what a double's sum in another order may change is not part of a board. */
const round12 = (x: number): number => Number(x.toPrecision(12))

function truthInOrder(
  ids: readonly string[],
  answers: Record<'feedback' | 'final', ReturnType<typeof readAnswers>>,
): string[][] {
  const at = new Map<string, string[]>()
  for (const a of [answers.feedback, answers.final]) {
    for (const [i, id] of a.scopeIds.entries()) {
      at.set(
        id,
        a.truth.map((c) => c[i]!),
      )
    }
  }
  const columns = answers.feedback.truth.length
  return Array.from({ length: columns }, (_, c) => ids.map((id) => at.get(id)![c]!))
}
