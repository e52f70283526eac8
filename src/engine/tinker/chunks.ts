import type { ForwardOutput, WireDatum } from './wire/messages.ts'

/** Bytes of a datum on the wire, nearly: four a token, and its tensors. */
const bytesOf = (d: WireDatum): number =>
  d.tokens.length * 4 + Object.values(d.inputs).reduce((s, t) => s + t.data.length * (t.dtype === 'int64' ? 8 : 4), 0)

/** Splits a batch, in order, at a number of data and of bytes; a single datum above the bytes travels alone. */
export function chunked(
  data: readonly WireDatum[],
  limits: { readonly data: number; readonly bytes: number },
): WireDatum[][] {
  const out: WireDatum[][] = []
  let bytes = 0
  for (const d of data) {
    const size = bytesOf(d)
    const last = out[out.length - 1]
    if (!last || last.length >= limits.data || bytes + size > limits.bytes) {
      out.push([d])
      bytes = size
    } else {
      last.push(d)
      bytes += size
    }
  }
  return out
}

/**
 * One output from those of the chunks. A metric's name carries its reduction after a colon; a mean weighs chunks by their
 * data, what cannot be joined (hashes) is left out where it differs.
 */
export function joined(parts: readonly ForwardOutput[]): ForwardOutput {
  if (parts.length === 1) return parts[0]!
  const total = parts.reduce((n, p) => n + p.outputs.length, 0)
  const metrics: Record<string, number> = {}
  for (const key of new Set(parts.flatMap((p) => Object.keys(p.metrics)))) {
    const having = parts.filter((p) => p.metrics[key] !== undefined)
    const values = having.map((p) => p.metrics[key]!)
    const sum = values.reduce((a, b) => a + b, 0)
    switch (key.slice(key.lastIndexOf(':') + 1)) {
      case 'sum':
        metrics[key] = sum
        break
      case 'min':
        metrics[key] = Math.min(...values)
        break
      case 'max':
      case 'slack':
        metrics[key] = Math.max(...values)
        break
      case 'unique':
      case 'hash_unordered':
        if (values.length === parts.length && values.every((v) => v === values[0])) metrics[key] = values[0]!
        break
      default:
        metrics[key] = having.reduce((s, p) => s + (p.metrics[key]! * p.outputs.length) / total, 0)
    }
  }
  return { type: parts[0]?.type ?? '', outputs: parts.flatMap((p) => p.outputs), metrics }
}
