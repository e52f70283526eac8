import { keyed } from '../../../core/index.ts'
import type { ForwardRequest } from '../wire/messages.ts'

export const TOY_VOCAB = 32

export interface ToyState {
  readonly theta: number[]
  readonly m: number[]
  readonly v: number[]
  readonly t: number
}

/**
 * The smallest learner that can be trained through the protocol: one distribution over tokens, whatever came before.
 * Gradients and Adam are exact, so that what a client did to it can be read from its numbers.
 */
export class ToyModel {
  theta: number[]
  private m: number[]
  private v: number[]
  private t = 0
  private gradient: number[]
  private data = 0

  constructor(
    readonly reduction: 'sum' | 'sequence-mean',
    readonly vocab = TOY_VOCAB,
  ) {
    const r = keyed('toy')
    this.theta = Array.from({ length: vocab }, () => r.next() * 2 - 1)
    const zeros = (): number[] => new Array<number>(vocab).fill(0)
    this.m = zeros()
    this.v = zeros()
    this.gradient = zeros()
  }

  logprobs(): number[] {
    const top = Math.max(...this.theta)
    const z = Math.log(this.theta.reduce((s, x) => s + Math.exp(x - top), 0)) + top
    return this.theta.map((x) => Math.fround(x - z))
  }

  forward(r: ForwardRequest): { logprobs: number[]; elementwise_loss: number[] }[] {
    const lp = this.logprobs()
    return r.data.map((d) => {
      const target = d.inputs.target_tokens!.data
      const n = target.length
      const logprobs = target.map((k) => lp[k] ?? Number.NaN)
      const one = (name: string): readonly number[] => d.inputs[name]?.data ?? new Array<number>(n).fill(0)
      const weights = d.inputs.weights?.data ?? new Array<number>(n).fill(1)
      const scale =
        this.reduction === 'sum'
          ? 1
          : 1 /
            Math.max(
              1e-9,
              weights.reduce((s, w) => s + w, 0),
            )
      const loss = target.map((_, i) => {
        const p = logprobs[i]!
        const ratio = Math.exp(p - one('logprobs')[i]!)
        const a = one('advantages')[i]!
        switch (r.loss) {
          case 'cross_entropy':
            return { value: -p * weights[i]!, slope: -weights[i]! }
          case 'importance_sampling':
            return { value: -ratio * a * weights[i]!, slope: -ratio * a * weights[i]! }
          default: {
            const lo = r.config?.clip_low_threshold ?? 0.8
            const hi = r.config?.clip_high_threshold ?? 1.2
            const clipped = Math.min(hi, Math.max(lo, ratio)) * a
            const used = ratio * a <= clipped
            return { value: -Math.min(ratio * a, clipped) * weights[i]!, slope: used ? -ratio * a * weights[i]! : 0 }
          }
        }
      })
      if (!r.forwardOnly) {
        const p = lp.map(Math.exp)
        target.forEach((k, i) => {
          for (let j = 0; j < this.vocab; j++) this.gradient[j]! += loss[i]!.slope * scale * ((j === k ? 1 : 0) - p[j]!)
        })
      }
      return { logprobs, elementwise_loss: loss.map((l) => l.value) }
    })
  }

  /** Counts a training call's data, which a sequence mean divides by. */
  count(n: number): void {
    this.data += n
  }

  step(lr: number, beta1: number, beta2: number, eps: number): number {
    const divide = this.reduction === 'sum' ? 1 : Math.max(1, this.data)
    const g = this.gradient.map((x) => x / divide)
    const norm = Math.sqrt(g.reduce((s, x) => s + x * x, 0))
    this.t++
    g.forEach((x, j) => {
      this.m[j] = beta1 * this.m[j]! + (1 - beta1) * x
      this.v[j] = beta2 * this.v[j]! + (1 - beta2) * x * x
      this.theta[j]! -=
        (lr * (this.m[j]! / (1 - beta1 ** this.t))) / (Math.sqrt(this.v[j]! / (1 - beta2 ** this.t)) + eps)
    })
    this.gradient.fill(0)
    this.data = 0
    return norm
  }

  /** Gradients that were never applied; a slot's next model inherits them. */
  takeGradient(from: ToyModel): void {
    this.gradient = [...from.gradient]
    this.data = from.data
  }
  accumulated(): readonly number[] {
    return this.gradient
  }
  state(): ToyState {
    return { theta: [...this.theta], m: [...this.m], v: [...this.v], t: this.t }
  }
  restore(s: ToyState, optimizer: boolean): void {
    this.theta = [...s.theta]
    if (!optimizer) return
    this.m = [...s.m]
    this.v = [...s.v]
    this.t = s.t
  }

  sample(count: number, max: number, seed: number, stop: readonly number[], temperature: number) {
    const lp = this.logprobs()
    return Array.from({ length: count }, (_, i) => {
      const r = keyed('toy-sample', seed + i)
      const tokens: number[] = []
      for (let k = 0; k < max; k++) {
        let token = lp.indexOf(Math.max(...lp))
        if (temperature > 0) {
          const w = lp.map((x) => Math.exp(x / temperature))
          let u = r.next() * w.reduce((s, x) => s + x, 0)
          token = w.findIndex((x) => {
            u -= x
            return u < 0
          })
          if (token < 0) token = this.vocab - 1
        }
        tokens.push(token)
        if (stop.includes(token)) return { tokens, logprobs: tokens.map((t) => lp[t]!), stop_reason: 'stop' as const }
      }
      return { tokens, logprobs: tokens.map((t) => lp[t]!), stop_reason: 'length' as const }
    })
  }
}
