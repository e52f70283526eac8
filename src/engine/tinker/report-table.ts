import type { ServerReport } from './probes.ts'

export interface CheckRow {
  readonly name: string
  readonly value: string
  /** `weak`: a run works around it; `missing`: a run cannot. */
  readonly status: 'ok' | 'weak' | 'missing'
  readonly detail: string
}

/** The report as rows for people: what it means for a run. */
export function checkRows(r: ServerReport): CheckRow[] {
  const row = (name: string, value: string, status: CheckRow['status'], detail = ''): CheckRow => ({
    name,
    value,
    status,
    detail,
  })
  const good = (b: boolean, otherwise: CheckRow['status'] = 'weak'): CheckRow['status'] => (b ? 'ok' : otherwise)
  return [
    row('base model', r.model, 'ok'),
    row('wire form', r.wire, 'ok'),
    row(
      'de-duplication',
      r.deduplicates ? 'yes' : 'no',
      good(r.deduplicates),
      r.deduplicates ? '' : 'a lost reply to a training request ends the run; it resumes from its checkpoint',
    ),
    row(
      'reduction',
      r.reduction,
      good(r.reduction !== 'unknown', 'missing'),
      r.reduction === 'sequence-mean' ? 'undone by scaling the advantages' : '',
    ),
    row('training', r.training, 'ok'),
    row(
      'sampler isolation',
      r.samplerIsolation,
      good(r.samplerIsolation === 'snapshot'),
      r.samplerIsolation === 'none' ? 'no sampling while training, no old sampler: kept strictly in turn' : '',
    ),
    row('sampling rolls training back', r.samplingRollsBack ? 'yes' : 'no', good(!r.samplingRollsBack)),
    row(
      'losses',
      Object.entries(r.losses)
        .filter(([, ok]) => ok)
        .map(([l]) => l)
        .join(', '),
      good(r.losses.importance_sampling === true, 'missing'),
      Object.entries(r.losses)
        .filter(([, ok]) => !ok)
        .map(([l]) => `no ${l}`)
        .join(', '),
    ),
    row('action mask', r.maskInput ?? 'none', 'ok', 'name under which the ratio losses take it'),
    row(
      'seeds honoured',
      r.seedsHonoured ? 'yes' : 'no',
      good(r.seedsHonoured),
      r.seedStride ? 'sample i has seed + i' : '',
    ),
    row(
      'sample log-probabilities',
      r.zeroLogprobs ? 'all zero' : r.sampleLogprobs,
      good(!r.zeroLogprobs && r.sampleLogprobs !== 'unknown', 'missing'),
      r.sampleLogprobs === 'processed' ? 'right at temperature 1 alone' : '',
    ),
    row('echoes log-probabilities', r.echoesLogprobs ? 'yes' : 'no', good(!r.echoesLogprobs, 'missing')),
    row(
      'sampler against trainer',
      Number.isNaN(r.samplerTrainerGap) ? '-' : r.samplerTrainerGap.toExponential(1),
      good(r.samplerTrainerGap < 0.02, r.samplerTrainerGap <= 0.05 ? 'weak' : 'missing'),
      'largest difference in nats a token',
    ),
    row('prompt log-probabilities', r.promptLogprobs, good(r.promptLogprobs !== 'none'), 'entries for n tokens'),
    row(
      'frozen base',
      r.frozenBase ? (r.frozenBaseUntouched ? 'yes' : 'changes with training') : 'no',
      good(r.frozenBase && r.frozenBaseUntouched),
      '',
    ),
    row('gradient norm', r.gradNorm ? 'reported' : 'not reported', good(r.gradNorm)),
    row(
      'context',
      r.context === undefined ? 'not said' : String(r.context),
      good(r.context !== undefined),
      r.context === undefined ? 'give engine.context' : '',
    ),
  ]
}

export function checkTable(rows: readonly CheckRow[]): string {
  const a = Math.max(...rows.map((r) => r.name.length))
  const b = Math.max(...rows.map((r) => r.value.length))
  return rows
    .map((r) => `${r.name.padEnd(a)}  ${r.value.padEnd(b)}  ${r.status.padEnd(7)}  ${r.detail}`.trimEnd())
    .join('\n')
}
