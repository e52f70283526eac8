import type { MethodConfig } from '../method/index.ts'
import { methodOf, type RunConfig, runConfig } from '../train/index.ts'

interface Values {
  readonly train: RunConfig['train']
  readonly method: MethodConfig
}

/** A key that some configurations do not read: when, and why not. */
interface Idle {
  readonly key: string
  readonly value: (c: Values) => unknown
  /** Why it has no effect, undefined where it has one. */
  readonly why: (c: Values) => string | undefined
}

const inMode = (m: MethodConfig): string => `in mode ${m.mode}`
const modes = (...read: readonly MethodConfig['mode'][]): Idle['why'] => {
  return ({ method }) => (read.includes(method.mode) ? undefined : inMode(method))
}
const corrects = modes('paper', 'recommended')
const unless = (reads: Idle['why'], m: (m: MethodConfig) => string | undefined): Idle['why'] => {
  return (c) => reads(c) ?? m(c.method)
}
const clips: Idle['why'] = ({ method }) =>
  method.mode === 'recommended' ? `${inMode(method)}, whose loss has no clip` : undefined
/** The weights' constants are read where there are weights. */
const weighs = unless(modes('paper'), (m) =>
  m.weights.kind === 'none' ? 'where method.weights.kind is none' : undefined,
)
const maps = unless(corrects, (m) =>
  m.calibration.kind === 'identity' ? 'where method.calibration.kind is identity' : undefined,
)

const KEYS: readonly Idle[] = [
  { key: 'train.clipLow', value: (c) => c.train.clipLow, why: clips },
  { key: 'train.clipHigh', value: (c) => c.train.clipHigh, why: clips },
  {
    key: 'train.truncateRatio',
    value: (c) => c.train.truncateRatio,
    why: ({ method, train }) =>
      method.mode !== 'recommended'
        ? inMode(method)
        : train.maxStaleness > 0
          ? undefined
          : 'where train.maxStaleness is 0',
  },
  { key: 'method.weights.kind', value: (c) => c.method.weights.kind, why: modes('paper') },
  { key: 'method.weights.halfLife', value: (c) => c.method.weights.halfLife, why: weighs },
  { key: 'method.weights.warmup', value: (c) => c.method.weights.warmup, why: weighs },
  { key: 'method.weights.max', value: (c) => c.method.weights.max, why: weighs },
  { key: 'method.lambda', value: (c) => c.method.lambda, why: modes('recommended', 'anchors-only') },
  {
    key: 'method.anchors.share',
    value: (c) => c.method.anchors.share,
    why: modes('paper', 'recommended', 'anchors-only'),
  },
  { key: 'method.calibration.kind', value: (c) => c.method.calibration.kind, why: corrects },
  ...(['bins', 'binning', 'prior', 'from', 'every', 'window', 'order'] as const).map(
    (k): Idle => ({ key: `method.calibration.${k}`, value: (c) => c.method.calibration[k], why: maps }),
  ),
  {
    key: 'method.stdEpsilon',
    value: (c) => c.method.stdEpsilon,
    why: ({ method }) => (method.advantage === 'std' ? undefined : `where method.advantage is ${method.advantage}`),
  },
]

/**
 * Lines about keys that are set to something else than their mode's value and that nothing reads: accepted, as a file may serve
 * several modes, but never without a word.
 */
export function withoutEffect(config: RunConfig): string[] {
  const read = (c: RunConfig): Values => ({ train: c.train, method: methodOf(c) })
  const now = read(config)
  const base = read(runConfig.parse({ method: { mode: config.method.mode } }))
  return KEYS.flatMap(({ key, value, why }) => {
    if (value(now) === value(base)) return []
    const reason = why(now)
    return reason === undefined ? [] : [`${key}: ${JSON.stringify(value(now))} has no effect ${reason}`]
  })
}
