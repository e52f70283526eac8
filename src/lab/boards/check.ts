import { keyed } from '../../core/index.ts'
import type { Executor } from '../../executors/index.ts'
import type { BoardFile, Grader } from '../../grading/index.ts'
import type { Limits } from '../../sandbox/index.ts'
import type { Task } from '../../tasks/index.ts'
import { pool, programScorer } from '../score-program.ts'
import { RECIPE_CPU_S } from './build.ts'
import { PLAIN, recipes } from './recipes.ts'

export interface BoardCheck {
  readonly id: string
  readonly entries: number
  readonly checked: number
  readonly differences: readonly { readonly recipe: string; readonly why: string }[]
}

/** Relative difference that other processors' arithmetic may make. */
const TOLERANCE = 1e-6

/**
 * Executes a keyed share of a shipped leaderboard's entries again and compares their scores. `executor` must not be a cached
 * one, else nothing is shown; `grader` gives raw scores of both scopes.
 */
export async function checkBoard(
  task: Task,
  file: BoardFile,
  o: { share: number; executor: Executor; grader: Grader; limits: Limits; width: number; signal: AbortSignal },
): Promise<BoardCheck> {
  const known = new Map(
    [true, false].flatMap((reserve) => recipes(task.card, { plain: 11 * PLAIN, reserve }).map((r) => [r.name, r])),
  )
  const asked = file.entries.filter((e) => keyed('board-check', task.card.id, e.recipe).next() < o.share)
  const differences: { recipe: string; why: string }[] = []
  await pool(
    asked.map((e) => async () => {
      const recipe = known.get(e.recipe)
      if (!recipe) return void differences.push({ recipe: e.recipe, why: 'the population has no such recipe' })
      const limits = { ...o.limits, cpuS: RECIPE_CPU_S[recipe.strength] }
      const scorer = programScorer(o.executor, o.grader, limits)
      const r = await scorer.score(task, recipe.code, ['feedback', 'final'], o.signal)
      if (r.kind !== 'valid')
        return void differences.push({ recipe: e.recipe, why: r.kind === 'failed' ? r.text : r.detail })
      for (const scope of ['feedback', 'final'] as const) {
        const now = r.scores[scope]!
        if (Math.abs(now - e[scope]) > TOLERANCE * Math.max(1e-3, Math.abs(e[scope])))
          differences.push({ recipe: e.recipe, why: `${scope} ${now}, shipped ${e[scope]}` })
      }
    }),
    o.width,
  )
  return { id: task.card.id, entries: file.entries.length, checked: asked.length, differences }
}
