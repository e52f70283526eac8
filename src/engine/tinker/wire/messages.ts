import {
  type ProtoField,
  ProtoWriter,
  packFloat32,
  packInt32,
  packInt64,
  protoFields,
  readBfloat16,
  readFloat32,
  readInt32,
  readInt64,
} from './protobuf.ts'

/** A flat tensor of a loss. */
export interface Tensor {
  readonly data: readonly number[]
  readonly dtype: 'int64' | 'float32'
}

/**
 * One training sequence, already shifted: for a full sequence s of N+1 tokens `tokens` is s[0..N-1] and every tensor has
 * length N, entry i belonging to the prediction of s[i+1] (`target_tokens`).
 */
export interface WireDatum {
  readonly tokens: readonly number[]
  readonly inputs: Readonly<Record<string, Tensor>>
}

export interface ForwardRequest {
  readonly modelId: string
  readonly seqId: number
  readonly data: readonly WireDatum[]
  readonly loss: string
  readonly config?: Readonly<Record<string, number>>
  /** Loss and log-probabilities without a gradient. */
  readonly forwardOnly?: boolean
}

export interface ForwardOutput {
  readonly type: string
  /** One record a datum, in order; NaN where the server had no number. */
  readonly outputs: readonly Readonly<Record<string, readonly number[]>>[]
  readonly metrics: Readonly<Record<string, number>>
}

export interface WireSequence {
  readonly tokens: readonly number[]
  readonly logprobs: readonly number[] | null
  readonly stopReason: 'stop' | 'length'
}
export interface SampleOutput {
  readonly sequences: readonly WireSequence[]
  /** As the server sent them: N or N-1 entries for N prompt tokens; null where absent. */
  readonly promptLogprobs: readonly (number | null)[] | null
}

const DTYPE = { float32: 1, int64: 2 } as const

/** tinker_public.ForwardBackwardRequest. */
export function encodeForward(r: ForwardRequest): Uint8Array {
  const w = new ProtoWriter().string(1, r.modelId).int(2, r.seqId)
  for (const d of r.data) {
    w.message(3, (m) => {
      m.message(1, (chunk) => chunk.message(1, (text) => text.bytes(1, packInt32(d.tokens))))
      for (const [name, t] of Object.entries(d.inputs)) {
        m.message(2, (entry) =>
          entry.string(1, name).message(2, (x) =>
            x
              .bytes(1, t.dtype === 'int64' ? packInt64(t.data) : packFloat32(t.data))
              .int(3, DTYPE[t.dtype])
              // A packed list of one dimension.
              .bytes(4, new ProtoWriter().int(1, t.data.length).finish().subarray(1)),
          ),
        )
      }
    })
  }
  w.string(4, r.loss)
  for (const [k, v] of Object.entries(r.config ?? {})) w.message(5, (e) => e.string(1, k).double(2, v))
  return w.int(6, r.forwardOnly ? 1 : 0).finish()
}

/** The older JSON form of the same request. */
export function jsonForward(r: ForwardRequest): Record<string, unknown> {
  return {
    model_id: r.modelId,
    seq_id: r.seqId,
    [r.forwardOnly ? 'forward_input' : 'forward_backward_input']: {
      loss_fn: r.loss,
      ...(r.config ? { loss_fn_config: r.config } : {}),
      data: r.data.map((d) => ({
        model_input: { chunks: [{ type: 'encoded_text', tokens: d.tokens }] },
        loss_fn_inputs: Object.fromEntries(
          Object.entries(d.inputs).map(([k, t]) => [k, { ...t, shape: [t.data.length] }]),
        ),
      })),
    },
  }
}

const bytesOf = (f: ProtoField): Buffer => {
  if ('bytes' in f) return f.bytes
  throw new RangeError(`protobuf field ${f.field} is no byte string`)
}
const numberOf = (f: ProtoField): number => {
  if ('value' in f) return f.value
  throw new RangeError(`protobuf field ${f.field} is no number`)
}

/** tinker_public.ForwardBackwardOutput; fields may come in any order. @throws RangeError */
export function decodeForwardOutput(message: Uint8Array): ForwardOutput {
  let type = ''
  const outputs: Record<string, number[]>[] = []
  const metrics: Record<string, number> = {}
  for (const f of protoFields(message)) {
    if (f.field === 1) type = bytesOf(f).toString('utf8')
    else if (f.field === 2) outputs.push(...decodeRecords(bytesOf(f)))
    else if (f.field === 3) {
      let key = ''
      let value = 0
      for (const e of protoFields(bytesOf(f))) {
        if (e.field === 1) key = bytesOf(e).toString('utf8')
        else if (e.field === 2) value = numberOf(e)
      }
      metrics[key] = value
    }
  }
  return { type, outputs, metrics }
}

/** ArrayRecord: named tensors, each the concatenation of one slice a datum. */
function decodeRecords(message: Uint8Array): Record<string, number[]>[] {
  let count = 0
  const fields: [string, Buffer][] = []
  for (const f of protoFields(message)) {
    if (f.field === 3) count = numberOf(f)
    else if (f.field === 2) {
      let key = ''
      let tensor = Buffer.alloc(0)
      for (const e of protoFields(bytesOf(f))) {
        if (e.field === 1) key = bytesOf(e).toString('utf8')
        else if (e.field === 2) tensor = bytesOf(e) as typeof tensor
      }
      fields.push([key, tensor])
    }
  }
  if (!Number.isSafeInteger(count) || count < 0 || count > 1e7) throw new RangeError(`${count} data in a result`)
  const records = Array.from({ length: count }, (): Record<string, number[]> => ({}))
  for (const [key, tensor] of fields) {
    decodeBatched(tensor, count).forEach((row, i) => {
      records[i]![key] = row
    })
  }
  return records
}

function decodeBatched(message: Uint8Array, count: number): number[][] {
  let data = Buffer.alloc(0)
  let offsets: number[] | undefined
  let dtype = 1
  for (const f of protoFields(message)) {
    if (f.field === 1) data = bytesOf(f) as typeof data
    else if (f.field === 2) offsets = readInt64(bytesOf(f))
    else if (f.field === 3) dtype = numberOf(f)
  }
  const read = dtype === 2 ? readInt64 : dtype === 3 ? readInt32 : dtype === 4 ? readBfloat16 : readFloat32
  if (!offsets || offsets.length === 0) {
    // Without offsets all data have the same size.
    const width = count === 0 ? 0 : data.length / count
    offsets = Array.from({ length: count + 1 }, (_, i) => i * width)
  }
  if (offsets.length !== count + 1) throw new RangeError(`${offsets.length} offsets for ${count} data`)
  return Array.from({ length: count }, (_, i) => {
    const from = offsets[i]!
    const to = offsets[i + 1]!
    if (!Number.isInteger(from) || from < 0 || to < from || to > data.length)
      throw new RangeError(`offsets ${from} to ${to} in ${data.length} bytes`)
    return read(data.subarray(from, to))
  })
}

/** tinker_public.SampleResponse. @throws RangeError */
export function decodeSampleOutput(message: Uint8Array): SampleOutput {
  const sequences: WireSequence[] = []
  let promptLogprobs: (number | null)[] | null = null
  for (const f of protoFields(message)) {
    if (f.field === 1) {
      let stop = 0
      let tokens: number[] = []
      let logprobs: number[] | null = null
      for (const e of protoFields(bytesOf(f))) {
        if (e.field === 1) stop = numberOf(e)
        else if (e.field === 2) tokens = readInt32(bytesOf(e))
        else if (e.field === 3) logprobs = readFloat32(bytesOf(e))
      }
      sequences.push({ tokens, logprobs, stopReason: stop === 1 ? 'length' : 'stop' })
    } else if (f.field === 2) promptLogprobs = readFloat32(bytesOf(f)).map((v) => (Number.isNaN(v) ? null : v))
  }
  return { sequences, promptLogprobs }
}
