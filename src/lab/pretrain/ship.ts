import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Attempt, attemptId, type Verdict } from '../../core/index.ts'
import type { Sampler } from '../../engine/index.ts'
import type { NanoCodec } from '../../engine/text/index.ts'
import { NanoPredictor, PredictedJudge } from '../../judge/index.ts'
import { type Fidelity, fidelity } from '../../report/index.ts'
import type { Task, TaskCard } from '../../tasks/index.ts'
import type { CorpusRow } from '../corpus/collect.ts'
import { boardRank, brief } from '../corpus/examples.ts'
import { modalityOf } from '../grammar/sample.ts'
import { type RecipeDeps, samplePolicy, trainBackbone } from './recipe.ts'

/** Sharpenings that are tried on dev tasks; the first whose valid share is within .02 of the best is shipped. */
export const LOGIT_SCALES = [1, 1.2, 1.4, 1.6] as const

/** The model card: everything that its figures rest on; card.json, and README.md for people. */
export interface ModelCard {
  readonly command: string
  readonly recipe: object
  readonly parameters: object
  readonly data: string
  readonly licences: string
  readonly tokens: number
  readonly curve: readonly { step: number; tokens: number; loss: number }[]
  readonly validation: { readonly code: number; readonly outcome: number }
  readonly logitScale: number
  readonly sharpening: readonly {
    readonly scale: number
    readonly valid: number
    readonly reward: number
    readonly n: number
  }[]
  readonly executions: {
    readonly corpus: number
    readonly policy: number
    readonly dev: number
    readonly total: number
  }
  readonly coverage: readonly {
    readonly format: string
    readonly trainTasks: number
    readonly heldOut: readonly string[]
    readonly unseen: boolean
  }[]
  readonly fidelity: { readonly train: Fidelity; readonly dev: Fidelity; readonly policy: Fidelity }
}

/** Trains, chooses the sharpening on dev tasks, measures fidelity, writes the backbone's folder. */
export async function shipBackbone(d: RecipeDeps, out: string, signal: AbortSignal): Promise<ModelCard> {
  mkdirSync(out, { recursive: true })
  const t = await trainBackbone(d, signal)
  await using engine = t.engine
  const scales: { scale: number; valid: number; reward: number; n: number; rows: CorpusRow[] }[] = []
  for (const scale of LOGIT_SCALES) {
    const path = join(d.dir, `scaled-${scale}.safetensors`)
    await t.model.saveBackbone(path, { logitScale: scale }, signal)
    const rows = await withBackbone(
      path,
      d,
      (s) => samplePolicy(d, t.codec, s, 16, `dev-${scale}`, d.dev, signal),
      signal,
    )
    const rewards = rows.map((r) =>
      'score' in r.first.end
        ? 0.5 + 0.5 * rankOf(d, r, r.first.end.score)
        : r.first.end.text.startsWith('invalid')
          ? 0.2
          : r.first.end.text.startsWith('syntax')
            ? 0
            : 0.1,
    )
    const valid = rows.filter((r) => 'score' in r.first.end).length / Math.max(1, rows.length)
    scales.push({
      scale,
      valid,
      reward: rewards.reduce((a, b) => a + b, 0) / Math.max(1, rewards.length),
      n: rows.length,
      rows,
    })
    d.log(`sharpening ${scale}: valid ${valid.toFixed(3)} of ${rows.length} on dev tasks`)
  }
  const best = Math.max(...scales.map((s) => s.valid))
  const chosen = scales.find((s) => s.valid >= best - 0.02)!
  const model = join(out, 'model.safetensors')
  const { bytes } = await t.model.saveBackbone(
    model,
    { logitScale: chosen.scale, metadata: { tokenizer: 'tokenizer.json' } },
    signal,
  )
  copyFileSync(join(d.dir, 'tokenizer.json'), join(out, 'tokenizer.json'))
  const fid = await withBackbone(
    model,
    d,
    async (sampler) => ({
      train: await fidelityOn(
        d,
        t.codec,
        sampler,
        t.rows.corpus.filter((r) => r.suite === 'builtin').slice(0, 400),
        chosen.scale,
        signal,
      ),
      dev: await fidelityOn(
        d,
        t.codec,
        sampler,
        scales.flatMap((s) => s.rows),
        chosen.scale,
        signal,
      ),
      policy: await fidelityOn(
        d,
        t.codec,
        sampler,
        t.rows.policy.filter((r) => r.suite === 'builtin').slice(0, 500),
        chosen.scale,
        signal,
      ),
    }),
    signal,
  )
  const dev = scales.reduce((s, x) => s + x.rows.length, 0)
  const executions = {
    corpus: 2 * t.rows.corpus.length,
    policy: t.rows.policy.length,
    dev,
    total: 2 * t.rows.corpus.length + t.rows.policy.length + dev,
  }
  const card: ModelCard = {
    command: 'npm run pretrain',
    recipe: d.recipe,
    parameters: { file: bytes, ...engine.config },
    data: `programs of the project's grammar, really executed on ${d.small.length} tasks of suite small and ${d.builtin.length} train tasks of suite builtin; programs that the model itself wrote on them, executed`,
    licences:
      "weights and tokenizer Apache-2.0; made from programs' texts and outcomes only, no table, text or picture of a data set is in them",
    tokens: t.tokens,
    curve: t.curve,
    validation: t.validation,
    logitScale: chosen.scale,
    sharpening: scales.map(({ rows: _rows, ...s }) => s),
    executions,
    coverage: coverage(
      [...d.small, ...d.builtin].map((x) => x.card),
      d.heldout.map((x) => x.card),
    ),
    fidelity: fid,
  }
  writeFileSync(join(out, 'card.json'), `${JSON.stringify(card, null, 1)}\n`)
  writeFileSync(join(out, 'README.md'), cardText(card))
  return card
}

async function withBackbone<T>(
  path: string,
  d: RecipeDeps,
  f: (s: Sampler) => Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  const { openOnnxEngine } = await import('../../engine/index.ts')
  await using engine = await openOnnxEngine({
    backbone: path,
    checkpointDir: join(d.dir, 'checkpoints'),
    threads: d.threads,
  })
  return await f(await engine.frozen(signal))
}

function rankOf(d: RecipeDeps, r: CorpusRow, score: number): number {
  const task = [...d.builtin, ...d.dev].find((x) => x.ref.id === r.task)!
  return boardRank(score, d.board(task), task.card.metric.higherIsBetter)
}

/** The world model's beliefs on executed programs, as the judge would give them. */
async function fidelityOn(
  d: RecipeDeps,
  codec: NanoCodec,
  sampler: Sampler,
  rows: readonly CorpusRow[],
  sharpening: number,
  signal: AbortSignal,
): Promise<Fidelity> {
  const tasks = new Map([...d.builtin, ...d.dev].map((t) => [t.ref.id, t]))
  const known = rows.filter((r) => tasks.has(r.task))
  const predictor = new NanoPredictor({
    sampler,
    codec,
    brief: async (ref) => brief(tasks.get(ref.id)!.card),
    // Outcomes are known here; syntax is the parser's business and is left out of the comparison.
    checkSyntax: async () => undefined,
    seed: 0,
    sharpening,
    details: false,
  })
  const judge = new PredictedJudge({ predictor, model: sampler.version, score: 'expected', draws: 1, seed: 0 })
  const usable = known.filter((r) => !('text' in r.first.end && r.first.end.text.startsWith('syntax')))
  const attempts = usable.map(
    (r, i): Attempt => ({
      id: attemptId(`fidelity/${i}`),
      task: tasks.get(r.task)!.ref,
      action: { code: r.first.code },
      history: [],
      scope: 'feedback',
    }),
  )
  const predicted = await Promise.all(judge.judge(attempts, signal))
  return fidelity(
    usable.map((r, i) => ({
      task: `${r.suite}/${r.task}`,
      step: 1,
      predicted: predicted[i]!,
      executed: executedVerdict(d, tasks.get(r.task)!, r),
    })),
  )
}

function executedVerdict(d: RecipeDeps, task: Task, r: CorpusRow): Verdict {
  const end = r.first.end
  const cost = { sandboxCpuS: 0, sandboxWallS: 0, executions: 0, predictedTokens: 0 }
  if ('score' in end) {
    const percentile = boardRank(end.score, d.board(task), task.card.metric.higherIsBetter)
    return {
      source: 'executed',
      outcome: { kind: 'graded', score: end.score, percentile, scope: 'feedback' },
      score: (0.5 + 0.5 * percentile) as never,
      observation: { text: '' },
      cost,
    }
  }
  const kind = end.text.startsWith('invalid')
    ? 'invalid-submission'
    : end.text.startsWith('timed')
      ? 'timed-out'
      : end.text.startsWith('out of')
        ? 'out-of-memory'
        : 'crashed'
  const outcome =
    kind === 'invalid-submission'
      ? ({ kind, code: 'unreadable', message: '' } as const)
      : kind === 'timed-out'
        ? ({ kind, submissionPresent: false } as const)
        : kind === 'out-of-memory'
          ? ({ kind } as const)
          : ({ kind, error: { type: 'Error', message: '' } } as const)
  return {
    source: 'executed',
    outcome,
    score: (kind === 'invalid-submission' ? 0.2 : 0.1) as never,
    observation: { text: '' },
    cost,
  }
}

/** Modality, file format (with dates, and with how many texts) and submission kind: what a program's form depends on. */
function format(c: TaskCard): string {
  const texts = c.columns.filter((x) => x.type === 'text').length
  const form = c.pixels ? 'pixels' : (c.images ?? modalityOf(c))
  const more = `${texts > 1 ? ` in ${texts} columns` : ''}${c.columns.some((x) => x.type === 'date') ? ' with a date' : ''}`
  return `${c.modality} / ${form}${more} / ${c.submission.kind}`
}

/** The format of each held-out task, with the train tasks that have it. */
function coverage(train: readonly TaskCard[], heldOut: readonly TaskCard[]): ModelCard['coverage'] {
  const formats = [...new Set(heldOut.map(format))].sort()
  return formats.map((f) => {
    const n = train.filter((c) => format(c) === f).length
    return { format: f, trainTasks: n, heldOut: heldOut.filter((c) => format(c) === f).map((c) => c.id), unseen: n < 2 }
  })
}

function cardText(c: ModelCard): string {
  const f = (x: Fidelity): string =>
    `n ${x.n}, outcome accuracy ${num(x.outcomeAccuracy)} (majority ${num(x.majority)}), rank correlation within a task ${num(x.spearmanWithinTask)}, among valid ${num(x.spearmanAmongValid)}, error ${num(x.mae)}, bias ${num(x.bias)}`
  return [
    '# Backbone of the embedded engine',
    '',
    `One small transformer that is agent and world model. Made by \`${c.command}\`; weights in half precision.`,
    '',
    `- Data: ${c.data}.`,
    `- Licences: ${c.licences}.`,
    `- Executions spent: ${c.executions.total} (corpus ${c.executions.corpus}, the model's own programs ${c.executions.policy}, dev tasks for the sharpening ${c.executions.dev}).`,
    `- Training: ${c.tokens} tokens; validation loss a token: code ${c.validation.code.toFixed(3)}, outcome ${c.validation.outcome.toFixed(3)} nats. Loss curve: card.json.`,
    `- Sharpening: logit scale ${c.logitScale}, chosen on dev tasks (${c.sharpening.map((s) => `${s.scale}: valid ${s.valid.toFixed(2)}`).join(', ')}).`,
    '',
    '## Fidelity (predicted against executed)',
    '',
    `- Grammar's programs on train tasks (rows it was trained on, so an upper bound): ${f(c.fidelity.train)}`,
    `- The model's own programs on train tasks (rows it was trained on, so an upper bound): ${f(c.fidelity.policy)}`,
    `- The model's own programs on dev tasks (never trained on): ${f(c.fidelity.dev)}`,
    '',
    '## Coverage of the held-out tasks',
    '',
    '| modality / file format / submission | train tasks | held-out tasks | |',
    '|---|---|---|---|',
    ...c.coverage.map(
      (r) => `| ${r.format} | ${r.trainTasks} | ${r.heldOut.join(', ')} | ${r.unseen ? 'unseen format' : ''} |`,
    ),
    '',
    'What it cannot do: read prose, use the meaning of names (copy slots hide them), invent column logic, improve on its grammar.',
    '',
  ].join('\n')
}

const num = (v: number | null): string => (v === null ? '-' : v.toFixed(3))
