import { ConfigError } from '../../core/index.ts'
import type { ServerReport } from './probes.ts'

/** What a run is going to ask of its server. */
export interface Needs {
  readonly losses: readonly string[]
  /** The world model is the frozen base of this server. */
  readonly frozenBase: boolean
  readonly kl: boolean
  readonly entropy: boolean
  readonly context: number | undefined
  /** Tokens of the longest sequence that the run can make. */
  readonly longest: number | undefined
  /** Sampling goes on while the next update is computed. */
  readonly overlap: boolean
}

/** Largest gap between sampler and trainer, in nats a token, that importance weights can bridge. */
const MOST_GAP = 0.05

/** @throws ConfigError naming the first key that asks for what this server was seen not to have. Nothing is trained yet. */
export function requireServer(r: ServerReport, n: Needs): void {
  const no = (path: string, message: string, fix: string): never => {
    throw new ConfigError(path, message, fix)
  }
  for (const loss of n.losses)
    if (!r.losses[loss]) no('engine.url', `the server refuses the loss ${loss}`, 'see: wmrl engine check URL')
  if (r.zeroLogprobs)
    no(
      'engine.url',
      'the server answers samples with log-probabilities of 0',
      'have its sampler return log-probabilities',
    )
  if (r.echoesLogprobs)
    no('engine.url', 'the server repeats the request’s log-probabilities', 'have its trainer return its own')
  if (r.sampleLogprobs === 'unknown')
    no('engine.url', 'log-probabilities of samples could not be measured', 'see: wmrl engine check URL')
  if (!(r.samplerTrainerGap <= MOST_GAP))
    no(
      'engine.url',
      `sampler and trainer differ by ${r.samplerTrainerGap.toFixed(3)} nats on the same tokens`,
      'have the sampler return raw log-probabilities of the same weights',
    )
  if (r.reduction === 'unknown')
    no(
      'engine.url',
      'how the server reduces a loss could not be measured (it reports no gradient norm)',
      'set engine.reduction',
    )
  if (n.frozenBase && !(r.frozenBase && r.frozenBaseUntouched))
    no('engine.worldModelUrl', 'the frozen base cannot be sampled from this server', 'give another server for it')
  if (n.kl && r.promptLogprobs === 'none')
    no('train.kl', 'the server gives no log-probabilities of prompts, which the divergence needs', 'set train.kl: 0')
  if (n.entropy) no('train.entropy', 'a server does not compute the exact entropy', 'set train.entropy: 0')
  if (n.overlap && r.samplerIsolation === 'none')
    no(
      'train.maxStaleness',
      'sampling on this server changes the model that is being trained',
      'set train.maxStaleness: 0',
    )
  if (n.context === undefined)
    no(
      'engine.context',
      'the server does not say how long its context is',
      'give it, or engine.tokenizer with its config.json',
    )
  if (n.longest !== undefined && n.context !== undefined && n.longest > n.context)
    no(
      'engine.context',
      `${n.longest} tokens do not fit a context of ${n.context}`,
      'use fewer turns or shorter actions',
    )
}
