import { availableParallelism } from 'node:os'
import { LIMIT_PROFILES } from '../judge/index.ts'
import { anchorCount, usesPredictions } from '../method/index.ts'
import { methodOf, type RunConfig } from '../train/index.ts'

export interface ExpectedCost {
  readonly executions: number
  readonly predictions: number
  readonly allExecutedEquivalent: number
  readonly sampledTokens: number
  /** Read and written by the world model. */
  readonly predictedTokens: number
  readonly trainedTokens: number
  readonly hours: number
  /** What the hours rest on, in words. */
  readonly assumes: string
}

/** Tokens a second of a server with a few accelerators and a model of 4B to 9B: an order of magnitude, no measurement. */
const RATES = { sampled: 5_000, read: 20_000, trained: 10_000 } as const
/** Share of its limit that a program takes. */
const USE = 1 / 3

/** What a run costs at most in executions and tokens, and about how long it takes. Equal programs run once. */
export function expectedCost(config: RunConfig): ExpectedCost {
  const method = methodOf(config)
  const { steps, groups, groupSize, turns, actionTokens, observationTokens, overviewTokens } = config.train
  const anchors =
    method.mode === 'executed-only'
      ? groups
      : method.mode === 'predicted-only'
        ? 0
        : anchorCount(method.anchors.share, groups)
  const sampledGroups = method.mode === 'anchors-only' ? anchors : groups
  const attempts = steps * groupSize * turns
  const counts = {
    executions: attempts * anchors,
    predictions: usesPredictions(method.mode) ? attempts * groups : 0,
    allExecutedEquivalent: attempts * groups,
  }
  if (config.engine.kind === 'onnx') {
    // Measured on the embedded engine: about 45 tokens an action, 120 a trajectory.
    return {
      ...counts,
      sampledTokens: attempts * sampledGroups * 45,
      predictedTokens: counts.predictions * 120,
      trainedTokens: steps * sampledGroups * groupSize * 120,
      hours: Number(((steps * (4 + anchors * groupSize * turns * 0.7)) / 2 / 3600).toFixed(2)),
      assumes: 'two cores',
    }
  }
  const draws = ['expected', 'mean'].includes(config.prediction.score) ? config.prediction.draws : 1
  const sampledTokens = attempts * sampledGroups * actionTokens
  const predictedTokens = counts.predictions * draws * config.prediction.context
  const trainedTokens =
    steps * sampledGroups * groupSize * (overviewTokens + turns * (actionTokens + observationTokens))
  const workers = config.executor.workers ?? availableParallelism()
  const sandboxS = (counts.executions * LIMIT_PROFILES[config.executor.limits].cpuS * USE) / workers
  const tokenS = sampledTokens / RATES.sampled + predictedTokens / RATES.read + trainedTokens / RATES.trained
  return {
    ...counts,
    sampledTokens,
    predictedTokens,
    trainedTokens,
    hours: Number(((sandboxS + tokenS) / 3600).toFixed(1)),
    assumes: `every turn at its full length, ${RATES.sampled} tokens sampled, ${RATES.read} read by the world model and ${RATES.trained} trained a second, programs at a third of their limit, ${workers} at a time`,
  }
}
