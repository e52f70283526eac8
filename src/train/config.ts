import { z } from 'zod'
import { LIMIT_PROFILES, PREDICTION_SCORES } from '../judge/index.ts'
import { defaultsOf, METHOD_MODES, type MethodConfig, type MethodMode } from '../method/index.ts'

const unit = z.number().min(0).max(1)
const positive = z.number().int().min(1)

const method = z
  .strictObject({
    mode: z
      .enum(METHOD_MODES)
      .default('recommended')
      .describe('which correction: the paper, the recommended one, or a control'),
    advantage: z
      .enum(['std', 'center', 'leave_one_out'])
      .optional()
      .describe('how rewards of a group become advantages; the mode decides by default'),
    stdEpsilon: z.number().positive().optional().describe('advantage std: added to a group’s standard deviation'),
    tie: z
      .number()
      .min(0)
      .optional()
      .describe('a group whose rewards span less than this is tied: nothing to learn from'),
    anchors: z
      .strictObject({ share: unit.optional().describe('share of groups that are really executed') })
      .prefault({}),
    calibration: z
      .strictObject({
        kind: z.enum(['identity', 'affine', 'isotonic', 'centered_isotonic']).optional(),
        bins: positive.optional(),
        binning: z.enum(['equal_width', 'equal_mass', 'distinct']).optional(),
        prior: z.number().min(0).optional().describe('pseudo-pairs a bin on the identity'),
        from: positive.optional().describe('pairs before the first fit'),
        every: positive.optional().describe('new pairs before a refit'),
        window: positive.optional().describe('pairs kept'),
        order: z.enum(['push-first', 'apply-first']).optional(),
      })
      .prefault({}),
    weights: z
      .strictObject({
        kind: z.enum(['none', 'ivd', 'release']).optional(),
        halfLife: z.number().positive().optional(),
        warmup: positive.optional().describe('anchor groups before the weight is set'),
        max: z.number().min(1).optional(),
      })
      .prefault({}),
    lambda: unit.optional().describe('weight of the anchors’ correction in recommended mode'),
    alarms: z
      .strictObject({
        reliability: z.number().optional(),
        reliabilitySteps: positive.optional(),
        reliabilityBeta: unit.optional().describe('what the sums behind the reliability keep an anchor group'),
        noAnchorSteps: positive.optional(),
        tieShare: unit.optional(),
      })
      .prefault({}),
  })
  .prefault({})

/** What the mode decides beyond the correction. Whatever the paper says is the default of its mode; the others agree. */
export interface TrainingDefaults {
  readonly train: {
    readonly turns: number
    readonly learningRate: number
    readonly kl: number
    readonly entropy: number
  }
  readonly prediction: { readonly score: (typeof PREDICTION_SCORES)[number] }
}

/**
 * The paper's groups, group size and budgets of tokens are every mode's. Its limits a program (600 s, 64 GB, 6 cores) are not
 * its mode's default but the profile `executor.limits: paper`: they belong to the tasks and the machine.
 */
export const trainingDefaultsOf = (mode: MethodMode): TrainingDefaults =>
  mode === 'paper'
    ? { train: { turns: 4, learningRate: 1e-6, kl: 0.04, entropy: 0.002 }, prediction: { score: 'sample' } }
    : { train: { turns: 2, learningRate: 3e-4, kl: 0, entropy: 0 }, prediction: { score: 'expected' } }

const schema = z.strictObject({
  seed: z.number().int().min(0).default(0).describe('seed of every draw of the run'),
  engine: z
    .strictObject({
      kind: z
        .enum(['onnx', 'tinker'])
        .default('onnx')
        .describe('onnx: the embedded engine; tinker: a server of the Tinker protocol'),
      backbone: z
        .string()
        .optional()
        .describe('folder of model.safetensors and tokenizer.json; default the shipped one'),
      threads: positive.default(2),
      url: z.url().optional().describe('base URL of a Tinker-protocol server'),
      worldModelUrl: z.url().optional().describe('another server for the frozen backbone'),
      model: z.string().optional().describe('base model name on the server'),
      tokenizer: z
        .string()
        .optional()
        .describe('tinker: folder of the model’s tokenizer.json, tokenizer_config.json and config.json'),
      rank: z
        .number()
        .int()
        .min(0)
        .default(32)
        .describe('tinker: rank of the adapter; 0 trains all weights where it can'),
      context: positive.optional().describe('tinker: tokens of prompt and output, where the server does not say'),
      reduction: z
        .enum(['sum', 'sequence-mean'])
        .optional()
        .describe('tinker: how the server reduces a loss, where it reports no gradient norm to tell by'),
      concurrency: positive.default(64).describe('tinker: samples in flight'),
      thinking: z.boolean().default(true).describe('tinker: whether the agent thinks before it answers'),
    })
    .prefault({}),
  executor: z
    .strictObject({
      kind: z.enum(['local']).default('local').describe('where programs run'),
      workers: positive.optional().describe('programs at a time; default the number of CPUs'),
      limits: z
        .enum(Object.keys(LIMIT_PROFILES) as [keyof typeof LIMIT_PROFILES])
        .default('demo')
        .describe('profile of limits a program'),
      cache: z
        .boolean()
        .default(true)
        .describe('what was executed is kept for later processes; within one equal programs on equal data run once'),
    })
    .prefault({}),
  tasks: z
    .strictObject({
      suite: z.enum(['builtin', 'small', 'mle-dojo']).default('builtin'),
      split: z.enum(['train', 'dev']).default('train').describe('tasks that are trained on'),
      only: z.array(z.string()).optional().describe('ids, instead of the whole split'),
      little: z
        .number()
        .int()
        .min(0)
        .default(0)
        .describe('little tasks of the suite small that are trained on beside the split, a keyed choice of so many'),
    })
    .prefault({}),
  train: z
    .strictObject({
      steps: z.number().int().min(0).default(40),
      groups: positive.default(8),
      groupSize: z.number().int().min(2).default(8),
      turns: positive.optional().describe('attempts a trajectory; the mode decides by default'),
      learningRate: z
        .number()
        .min(0)
        .optional()
        .describe('of AdamW; the mode decides by default (the paper’s is for all weights of a model of 4B or 9B)'),
      decay: z
        .enum(['none', 'linear'])
        .default('none')
        .describe(
          'linear: the learning rate falls to 0 over train.steps, so that the last steps average rather than wander',
        ),
      adamEpsilon: z
        .number()
        .positive()
        .default(1e-8)
        .describe(
          'added to AdamW’s denominator; above a weight’s usual gradient it keeps noise from moving that weight',
        ),
      clipLow: z.number().positive().default(0.2),
      clipHigh: z.number().positive().default(0.28),
      kl: z
        .number()
        .min(0)
        .optional()
        .describe('weight of the divergence from the frozen backbone (k3); the mode decides by default'),
      entropy: z.number().min(0).optional().describe('bonus on the exact token entropy; the mode decides by default'),
      gradClip: z.number().positive().default(1),
      actionTokens: positive.default(4096).describe('tinker: most tokens of one turn'),
      observationTokens: positive.default(1024).describe('tinker: most tokens of one observation'),
      overviewTokens: positive.default(4096).describe('tinker: most tokens of a task’s text'),
      maxStaleness: z
        .number()
        .int()
        .min(0)
        .max(8)
        .default(0)
        .describe('tinker: steps whose roll-outs may run ahead of the updates before them; 0: strictly in turn'),
      truncateRatio: z
        .number()
        .min(1)
        .default(2)
        .describe('largest importance weight of a token that was sampled by older weights'),
      checkpointEvery: positive.default(5),
      evalEvery: z
        .number()
        .int()
        .min(0)
        .default(0)
        .describe('steps between executed evaluations on dev tasks; 0: never'),
      devSamples: positive.default(2),
    })
    .prefault({}),
  method,
  prediction: z
    .strictObject({
      score: z.enum(PREDICTION_SCORES).optional().describe('how a belief becomes a score; the mode decides by default'),
      draws: positive.default(8).describe('draws of prediction.score mean'),
      control: z.enum(['none', 'shuffle', 'oracle']).default('none'),
      by: z
        .enum(['engine', 'chat'])
        .default('engine')
        .describe('who predicts: the frozen backbone of the engine, or a chat endpoint'),
      url: z.url().optional().describe('chat: base URL of an OpenAI-compatible endpoint, with /v1'),
      model: z.string().optional().describe('chat: the endpoint’s model'),
      concurrency: positive.default(16).describe('chat: requests in flight'),
      context: positive.default(12_288).describe('tokens of the world model’s prompt and prediction, in words'),
      maxTokens: positive.default(1024).describe('most tokens of one prediction, in words'),
    })
    .prefault({}),
  budget: z
    .strictObject({
      executions: positive.optional().describe('sandbox starts of training'),
      sandboxS: z.number().positive().optional().describe('CPU seconds in the sandbox'),
      wallS: z.number().positive().optional(),
    })
    .prefault({}),
  alarm: z
    .strictObject({
      unscorableShare: unit.default(0.25).describe('share of unscorable trajectories at which a run stops'),
      anchorFloor: unit.default(0.5).describe('least realised share of the wanted anchors, over alarm.anchorSteps'),
      anchorSteps: positive.default(10).describe('steps that alarm.anchorFloor looks back on'),
      divergence: z
        .number()
        .positive()
        .default(0.02)
        .describe('nats a token between sampler and trainer before the update, above which a step’s line has an alarm'),
      lengthScore: z
        .number()
        .positive()
        .default(3)
        .describe(
          'standard score (Mann-Whitney) of unscorable trajectories’ lengths, from which a step’s line has an alarm',
        ),
    })
    .prefault({}),
})

/**
 * The whole configuration; unknown keys are errors. `wmrl config` prints it with these words. What the mode decides is filled
 * in when it is parsed: nothing below looks a default up, and what is stored holds the numbers.
 */
export const runConfig = schema.transform((c) => {
  const d = trainingDefaultsOf(c.method.mode)
  return {
    ...c,
    train: {
      ...c.train,
      turns: c.train.turns ?? d.train.turns,
      learningRate: c.train.learningRate ?? d.train.learningRate,
      kl: c.train.kl ?? d.train.kl,
      entropy: c.train.entropy ?? d.train.entropy,
    },
    prediction: { ...c.prediction, score: c.prediction.score ?? d.prediction.score },
  }
})
export type RunConfig = z.infer<typeof runConfig>

/** The mode's constants with whatever the configuration sets over them. */
export function methodOf(c: RunConfig): MethodConfig {
  const d = defaultsOf(c.method.mode)
  const over = <T extends object>(base: T, set: { [K in keyof T]?: T[K] | undefined }): T =>
    ({ ...base, ...Object.fromEntries(Object.entries(set).filter(([, v]) => v !== undefined)) }) as T
  return {
    mode: d.mode,
    stdEpsilon: c.method.stdEpsilon ?? d.stdEpsilon,
    tie: c.method.tie ?? d.tie,
    advantage: c.method.advantage ?? d.advantage,
    anchors: over(d.anchors, c.method.anchors),
    calibration: over(d.calibration, c.method.calibration),
    weights: over(d.weights, c.method.weights),
    lambda: c.method.lambda ?? d.lambda,
    alarms: over(d.alarms, c.method.alarms),
  }
}
