import type { ForwardRequest, Tensor, WireDatum } from '../wire/messages.ts'
import {
  ProtoWriter,
  packFloat32,
  packInt32,
  packInt64,
  protoFields,
  readFloat32,
  readInt32,
  readInt64,
} from '../wire/protobuf.ts'

/** The server's half of the codec. */
export function decodeForward(message: Uint8Array): ForwardRequest {
  let modelId = ''
  let seqId = 0
  let loss = ''
  let forwardOnly = false
  const data: WireDatum[] = []
  const config: Record<string, number> = {}
  for (const f of protoFields(message)) {
    if ('bytes' in f) {
      if (f.field === 1) modelId = f.bytes.toString()
      else if (f.field === 3) data.push(decodeDatum(f.bytes))
      else if (f.field === 4) loss = f.bytes.toString()
      else if (f.field === 5) {
        let key = ''
        for (const e of protoFields(f.bytes)) {
          if ('bytes' in e) key = e.bytes.toString()
          else config[key] = e.value
        }
      }
    } else if (f.field === 2) seqId = f.value
    else if (f.field === 6) forwardOnly = f.value === 1
  }
  return { modelId, seqId, loss, forwardOnly, data, ...(Object.keys(config).length > 0 ? { config } : {}) }
}

const inner = (b: Uint8Array, field: number): Buffer => {
  for (const f of protoFields(b)) if (f.field === field && 'bytes' in f) return f.bytes
  return Buffer.alloc(0)
}

function decodeDatum(b: Uint8Array): WireDatum {
  const tokens: number[] = []
  const inputs: Record<string, Tensor> = {}
  for (const f of protoFields(b)) {
    if (!('bytes' in f)) continue
    if (f.field === 1) tokens.push(...readInt32(inner(inner(f.bytes, 1), 1)))
    else if (f.field === 2) {
      const name = inner(f.bytes, 1).toString()
      const t = inner(f.bytes, 2)
      let dtype = 1
      for (const e of protoFields(t)) if (e.field === 3 && 'value' in e) dtype = e.value
      const raw = inner(t, 1)
      inputs[name] = { dtype: dtype === 2 ? 'int64' : 'float32', data: dtype === 2 ? readInt64(raw) : readFloat32(raw) }
    }
  }
  return { tokens, inputs }
}

export function encodeForwardOutput(rows: readonly Readonly<Record<string, readonly number[]>>[]): Uint8Array {
  return new ProtoWriter()
    .string(1, 'scalar')
    .message(2, (r) => {
      for (const key of Object.keys(rows[0] ?? {})) {
        const offsets = [0]
        for (const row of rows) offsets.push(offsets[offsets.length - 1]! + row[key]!.length * 4)
        r.message(2, (e) =>
          e.string(1, key).message(2, (t) =>
            t
              .bytes(1, packFloat32(rows.flatMap((row) => row[key]!)))
              .bytes(2, packInt64(offsets))
              .int(3, 1),
          ),
        )
      }
      r.int(3, rows.length)
    })
    .finish()
}

export function encodeSampleOutput(o: {
  sequences: readonly { tokens: readonly number[]; logprobs: readonly number[]; stop_reason: 'stop' | 'length' }[]
  prompt_logprobs?: readonly (number | null)[]
}): Uint8Array {
  const w = new ProtoWriter()
  for (const s of o.sequences)
    w.message(1, (m) =>
      m
        .int(1, s.stop_reason === 'length' ? 1 : 0)
        .bytes(2, packInt32(s.tokens))
        .bytes(3, packFloat32(s.logprobs)),
    )
  if (o.prompt_logprobs) w.bytes(2, packFloat32(o.prompt_logprobs.map((v) => v ?? Number.NaN)))
  return w.finish()
}
