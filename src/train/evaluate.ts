import { type AgentFormat, rollout } from '../agent/index.ts'
import { attemptId, NO_COST, type TaskRef, type Verdict, type WeightsVersion } from '../core/index.ts'
import type { Sampler } from '../engine/index.ts'
import type { Judge } from '../judge/index.ts'

/** One turn of an evaluation roll-out, judged at both scopes. The final verdict makes no observation. */
export interface EvaluatedTurn {
  readonly task: TaskRef
  readonly sample: number
  readonly turn: number
  readonly code: string | undefined
  readonly feedback: Verdict
  readonly final: Verdict | undefined
  /** What was evaluated. */
  readonly weights: WeightsVersion
}

export interface EvaluateOptions {
  readonly tasks: readonly TaskRef[]
  readonly samples: number
  readonly turns: number
  readonly seed: number
  readonly format: AgentFormat
  readonly executed: Judge
  /** False inside training: dev tasks are judged at scope feedback alone. */
  readonly final: boolean
  readonly greedy?: boolean
  readonly key: string
}

/**
 * Rolls out at scope feedback by real execution, then judges the same attempts at scope final (the execution is cached, it
 * is a second grade).
 */
export async function evaluate(sampler: Sampler, o: EvaluateOptions, signal: AbortSignal): Promise<EvaluatedTurn[]> {
  const trajectories = await rollout(
    o.tasks.map((task) => ({ task, size: o.samples, judge: o.executed })),
    sampler,
    { format: o.format, turns: o.turns, key: [o.seed, 'eval', o.key], ...(o.greedy ? { greedy: true } : {}) },
    signal,
  )
  const turns = trajectories.flatMap((t) => t.turns.map((turn, k) => ({ t, turn, k })))
  const finals = o.final
    ? await Promise.all(
        o.executed.judge(
          turns.map(({ t, turn, k }) => ({
            id: attemptId([o.seed, 'eval', o.key, t.group, t.index, k].join('/')),
            task: t.task,
            action: turn.action,
            history: [],
            scope: 'final' as const,
          })),
          signal,
        ),
      )
    : []
  const judged = turns.map(({ t, turn, k }, i) => ({
    task: t.task,
    sample: t.index,
    turn: k,
    code: turn.action.code,
    feedback: turn.verdict,
    final: finals[i],
    weights: t.version,
  }))
  // A roll-out that failed before its first turn is a sample that could not be scored, not one fewer.
  const lost = trajectories
    .filter((t) => t.turns.length === 0)
    .map((t) => ({
      task: t.task,
      sample: t.index,
      turn: 0,
      code: undefined,
      feedback: {
        source: 'executed' as const,
        unscorable: t.unscorable ?? { cause: 'infra' as const, detail: 'no turn' },
        cost: NO_COST,
      },
      final: undefined,
      weights: t.version,
    }))
  return [...judged, ...lost]
}
