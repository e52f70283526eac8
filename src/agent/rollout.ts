import {
  type Attempt,
  attemptId,
  keyedSeed,
  messageOf,
  type PastTurn,
  type Program,
  type TaskRef,
  type Verdict,
} from '../core/index.ts'
import type { Sample, Sampler } from '../engine/index.ts'
import type { Judge } from '../judge/index.ts'
import type { AgentFormat } from './format.ts'
import type { Trajectory, TrajectoryEnd, Turn } from './trajectory.ts'

export interface GroupPlan {
  readonly task: TaskRef
  readonly size: number
  readonly judge: Judge
  /** On anchors: a second judge whose verdict is recorded and never shown. */
  readonly shadow?: Judge
}

export interface RolloutOptions {
  readonly format: AgentFormat
  readonly turns: number
  /** Prefix of every attempt id and key of every sampling seed, e.g. ['run', 7, 'step', 3]. */
  readonly key: readonly (string | number)[]
  readonly greedy?: boolean
  readonly topP?: number
}

interface Live {
  readonly plan: GroupPlan
  readonly group: number
  readonly index: number
  tokens: number[]
  mask: number[]
  logprobs: number[]
  turns: Turn[]
  history: PastTurn[]
  ended: TrajectoryEnd | undefined
  unscorable: Trajectory['unscorable']
}

/**
 * Rolls out groups in lock-step: every turn samples all live trajectories in one call, then judges all their programs in
 * one call a judge. A failure inside one trajectory is kept with it and never ends the others.
 */
export async function rollout(
  plans: readonly GroupPlan[],
  sampler: Sampler,
  o: RolloutOptions,
  signal: AbortSignal,
): Promise<Trajectory[]> {
  const all: Live[] = []
  for (const [group, plan] of plans.entries()) {
    let prompt: readonly number[] = []
    let failed: string | undefined
    try {
      prompt = await o.format.prompt(plan.task)
    } catch (e) {
      if (signal.aborted) throw e
      failed = `no prompt for ${plan.task.suite}/${plan.task.id}: ${messageOf(e)}`
    }
    for (let index = 0; index < plan.size; index++) {
      const t: Live = {
        plan,
        group,
        index,
        tokens: [...prompt],
        mask: prompt.map(() => 0),
        logprobs: prompt.map(() => 0),
        turns: [],
        history: [],
        ended: undefined,
        unscorable: undefined,
      }
      if (failed !== undefined) fail(t, failed)
      all.push(t)
    }
  }
  for (let turn = 0; turn < o.turns; turn++) {
    signal.throwIfAborted()
    const live = all.filter((t) => t.ended === undefined)
    if (live.length === 0) break
    const actions = await act(live, turn, sampler, o, signal)
    signal.throwIfAborted()
    await judge(actions, turn, o, signal)
    signal.throwIfAborted()
    if (turn + 1 < o.turns)
      await Promise.all(live.filter((t) => t.ended === undefined).map((t) => observe(t, sampler, o.format)))
  }
  return all.map((t) => ({
    task: t.plan.task,
    group: t.group,
    index: t.index,
    tokens: t.tokens,
    mask: t.mask,
    logprobs: t.logprobs,
    turns: t.turns,
    ended: t.ended ?? 'turns',
    version: sampler.version,
    ...(t.unscorable ? { unscorable: t.unscorable } : {}),
  }))
}

interface Action {
  readonly of: Live
  readonly program: Program
}

async function act(
  live: readonly Live[],
  turn: number,
  sampler: Sampler,
  o: RolloutOptions,
  signal: AbortSignal,
): Promise<Action[]> {
  // Trajectories that still share their whole history (the first turn of a group) are one request.
  const requests: { prompt: number[]; members: Live[] }[] = []
  for (const t of live) {
    const shared = turn === 0 ? requests.find((r) => r.members[0]!.group === t.group) : undefined
    if (shared) shared.members.push(t)
    else requests.push({ prompt: t.tokens, members: [t] })
  }
  const samples = sampler.sample(
    requests.map((r) => ({
      prompt: r.prompt,
      count: r.members.length,
      maxTokens: Math.min(o.format.maxActionTokens, sampler.limits.context - r.prompt.length),
      stop: o.format.stop,
      seeds: r.members.map((t) => keyedSeed(...o.key, t.group, t.index, turn, 'sample')),
      ...(o.greedy ? { greedy: true } : {}),
      ...(o.topP === undefined ? {} : { topP: o.topP }),
    })),
    signal,
  )
  const out: Action[] = []
  await Promise.all(
    requests.map(async (r, k) => {
      let sequences: Sample['sequences']
      try {
        sequences = (await samples[k]!).sequences
      } catch (e) {
        if (signal.aborted) throw e
        for (const t of r.members) fail(t, messageOf(e))
        return
      }
      for (const [i, t] of r.members.entries()) {
        try {
          const s = sequences[i]!
          t.tokens.push(...s.tokens)
          t.logprobs.push(...s.logprobs)
          for (let j = 0; j < s.tokens.length; j++) t.mask.push(1)
          out.push({ of: t, program: await o.format.parse(t.plan.task, s.tokens, s.stopReason === 'stop') })
        } catch (e) {
          if (signal.aborted) throw e
          fail(t, messageOf(e))
        }
      }
    }),
  )
  return out.sort((a, b) => a.of.group - b.of.group || a.of.index - b.of.index)
}

async function judge(actions: readonly Action[], turn: number, o: RolloutOptions, signal: AbortSignal): Promise<void> {
  const attempts = actions.map(
    ({ of: t, program }): Attempt => ({
      id: attemptId([...o.key, t.group, t.index, turn].join('/')),
      task: t.plan.task,
      action: program,
      history: t.history,
      scope: 'feedback',
    }),
  )
  const ask = async (pick: (p: GroupPlan) => Judge | undefined): Promise<(Verdict | undefined)[]> => {
    const verdicts = new Array<Promise<Verdict> | undefined>(actions.length).fill(undefined)
    const byJudge = new Map<Judge, number[]>()
    actions.forEach((a, i) => {
      const j = pick(a.of.plan)
      if (j) byJudge.set(j, [...(byJudge.get(j) ?? []), i])
    })
    for (const [j, at] of byJudge) {
      const promises = j.judge(
        at.map((i) => attempts[i]!),
        signal,
      )
      at.forEach((i, k) => {
        verdicts[i] = promises[k]!
      })
    }
    return Promise.all(verdicts)
  }
  const [main, shadow] = await Promise.all([ask((p) => p.judge), ask((p) => p.shadow)])
  actions.forEach(({ of: t, program }, i) => {
    const verdict = main[i]!
    const second = shadow[i]
    t.turns.push({ action: program, verdict, ...(second ? { shadow: second } : {}) })
    if ('unscorable' in verdict) {
      t.unscorable = verdict.unscorable
      t.ended = 'unscorable'
    } else t.history.push({ action: program, observation: verdict.observation })
  })
}

async function observe(t: Live, sampler: Sampler, format: AgentFormat): Promise<void> {
  const seen = t.history[t.history.length - 1]!.observation
  try {
    const ids = await format.observe(t.plan.task, seen, t.mask.at(-1) === 1 ? t.tokens.at(-1) : undefined)
    // Room for a whole action, else the next turn would be cut to pieces.
    if (t.tokens.length + ids.length + format.maxActionTokens > sampler.limits.context) {
      t.ended = 'context'
      return
    }
    t.tokens.push(...ids)
    for (let i = 0; i < ids.length; i++) {
      t.mask.push(0)
      t.logprobs.push(0)
    }
  } catch (e) {
    fail(t, messageOf(e))
  }
}

function fail(t: Live, detail: string): void {
  t.unscorable = { cause: 'infra', detail }
  t.ended = 'failed'
}
