import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { keyed, keyedSeed } from '../../core/index.ts'
import { type OnnxEngine, type OnnxModel, openOnnxEngine, type Sampler } from '../../engine/index.ts'
import { NanoCodec } from '../../engine/text/index.ts'
import type { ScoresFile } from '../../grading/index.ts'
import type { Task } from '../../tasks/index.ts'
import { type CollectOptions, type CorpusRow, collectPairs, ended } from '../corpus/collect.ts'
import { boardRank, brief, type Example, example, OUTCOME_WEIGHT } from '../corpus/examples.ts'
import { type ProgramScorer, pool } from '../score-program.ts'
import { makeTokenizer } from './tokenizer.ts'
import { type PretrainOptions, pretrain, validationLoss } from './train.ts'

/** Everything that the recipe's result depends on; printed in the model card. */
export interface Recipe {
  readonly seed: number
  readonly pairsSmall: number
  readonly pairsBuiltin: number
  readonly plainPairsBuiltin: number
  readonly policySamples: number
  /** Logit scale at which the model writes them: near the one that ships, since those programs are what it will judge. */
  readonly policySharpening: number
  readonly stepsA: number
  readonly stepsB: number
  readonly batchTokens: number
  readonly layers: number
  readonly dModel: number
  readonly heads: number
  readonly context: number
}

export const RECIPE: Recipe = {
  seed: 0,
  pairsSmall: 13,
  pairsBuiltin: 16,
  plainPairsBuiltin: 40,
  policySamples: 4,
  policySharpening: 1.4,
  stepsA: 850,
  stepsB: 600,
  batchTokens: 3000,
  layers: 4,
  dModel: 192,
  heads: 3,
  context: 256,
}

export interface RecipeDeps {
  readonly recipe: Recipe
  readonly dir: string
  readonly small: readonly Task[]
  /** Built-in tasks of the train split that are trained on. */
  readonly builtin: readonly Task[]
  /** For the choice of the sharpening and the fidelity table. */
  readonly dev: readonly Task[]
  /** Cards alone, for the coverage table: their programs are never executed here. */
  readonly heldout: readonly Task[]
  readonly scorer: ProgramScorer
  /** Shipped feedback boards of the built-in tasks. */
  readonly board: (task: Task) => readonly number[]
  /** Keeps the boards of the little tasks, that training may take them too. */
  readonly writeSmallBoards: (f: ScoresFile) => void
  readonly threads: number
  readonly width: number
  readonly log: (line: string) => void
  readonly progress: (line: string) => void
}

export const readRows = (path: string): CorpusRow[] =>
  existsSync(path)
    ? readFileSync(path, 'utf8')
        .split('\n')
        .filter((l) => l.endsWith('}'))
        .map((l) => JSON.parse(l) as CorpusRow)
    : []

/** Executes the corpus; goes on where it stopped. */
export async function collectCorpus(d: RecipeDeps, signal: AbortSignal): Promise<CorpusRow[]> {
  mkdirSync(d.dir, { recursive: true })
  const path = join(d.dir, 'corpus.jsonl')
  const known = readRows(path)
  const tasks = [...d.small, ...d.builtin]
  const builtin = new Set(d.builtin)
  let n = known.length
  const o: CollectOptions = {
    seed: d.recipe.seed,
    pairs: (t) => (builtin.has(t) ? d.recipe.pairsBuiltin : d.recipe.pairsSmall),
    plainPairs: (t) => (builtin.has(t) ? d.recipe.plainPairsBuiltin : 0),
    bug: 0.25,
    width: d.width,
    known: new Set(known.map((r) => r.key)),
    onRow: (row) => {
      appendFileSync(path, `${JSON.stringify(row)}\n`)
      known.push(row)
      n++
      d.progress(`corpus: ${n} pairs of programs executed`)
    },
    onUnscorable: (detail) => d.log(`corpus: a pair was unscorable (${detail})`),
  }
  await collectPairs(tasks, d.scorer, o, signal)
  const rows = known.sort((a, b) => (a.key < b.key ? -1 : 1))
  d.writeSmallBoards(smallBoards(d, rows))
  return rows
}

/** Distinct scores a little task needs, so that its percentiles say something. */
const LEAST_ENTRIES = 8

/** Boards of the little tasks: the distinct scores that the corpus's own programs reached. */
export function smallBoards(d: Pick<RecipeDeps, 'small'>, rows: readonly CorpusRow[]): ScoresFile {
  const own = new Map<string, Set<number>>()
  for (const r of rows) {
    if (r.suite !== 'small') continue
    const seen = own.get(r.task) ?? new Set()
    for (const e of [r.first.end, r.second?.end]) if (e && 'score' in e) seen.add(Number(e.score.toPrecision(9)))
    own.set(r.task, seen)
  }
  const tasks: ScoresFile['tasks'] = {}
  for (const t of [...d.small].sort((a, b) => (a.ref.id < b.ref.id ? -1 : 1))) {
    const seen = [...(own.get(t.ref.id) ?? [])].sort((a, b) => a - b)
    if (seen.length >= LEAST_ENTRIES) tasks[t.ref.id] = { higherIsBetter: t.card.metric.higherIsBetter, feedback: seen }
  }
  return { schema: 'wmrl-scores/1', suite: 'small', tasks }
}

/** Percentile of a raw score: on the shipped board, or among the corpus's own scores of a small task; undefined without. */
export function percentiles(
  d: Pick<RecipeDeps, 'builtin' | 'small' | 'board'>,
  rows: readonly CorpusRow[],
): (row: CorpusRow) => ((score: number) => number) | undefined {
  const own = smallBoards(d, rows).tasks
  const tasks = new Map([...d.builtin, ...d.small].map((t) => [`${t.ref.suite}/${t.ref.id}`, t]))
  return (row) => {
    const task = tasks.get(`${row.suite}/${row.task}`)!
    const board = row.suite === 'small' ? own[row.task]?.feedback : d.board(task)
    return board && ((s) => boardRank(s, board, task.card.metric.higherIsBetter))
  }
}

export function toExamples(
  codec: NanoCodec,
  d: Pick<RecipeDeps, 'builtin' | 'small' | 'board' | 'recipe'>,
  rows: readonly CorpusRow[],
  boardRows = rows,
): Example[] {
  const tasks = new Map([...d.builtin, ...d.small].map((t) => [`${t.ref.suite}/${t.ref.id}`, t]))
  const rank = percentiles(d, boardRows)
  return rows.flatMap((r) => {
    const task = tasks.get(`${r.suite}/${r.task}`)
    const percentile = task && rank(r)
    if (!percentile) return []
    const e = example(codec, task.card, r, percentile, d.recipe.seed)
    return e.tokens.length <= d.recipe.context ? [e] : []
  })
}

/** Programs that the model itself writes, executed: what the world model will be asked about. */
export async function samplePolicy(
  d: RecipeDeps,
  codec: NanoCodec,
  sampler: Sampler,
  per: number,
  tag: string,
  tasks: readonly Task[],
  signal: AbortSignal,
): Promise<CorpusRow[]> {
  const path = join(d.dir, 'policy.jsonl')
  const rows = readRows(path).filter((r) => r.key.startsWith(`${tag}/`))
  const known = new Set(rows.map((r) => r.key))
  const requests = tasks.map((t) => {
    const { text, names } = brief(t.card)
    return { task: t, names, prompt: codec.prompt(text, names) }
  })
  const samples = sampler.sample(
    requests.map((r) => ({
      prompt: r.prompt,
      count: per,
      maxTokens: 100,
      stop: [codec.ids.end],
      seeds: Array.from({ length: per }, (_, k) => keyedSeed(d.recipe.seed, tag, r.task.ref.suite, r.task.ref.id, k)),
    })),
    signal,
  )
  const jobs: (() => Promise<void>)[] = []
  for (const [i, r] of requests.entries()) {
    const { sequences } = await samples[i]!
    sequences.forEach((s, k) => {
      const key = `${tag}/${r.task.ref.suite}/${r.task.ref.id}/${k}`
      if (known.has(key) || s.stopReason !== 'stop') return
      const code = codec.decodeProgram(s.tokens, r.names)
      jobs.push(async () => {
        const result = await d.scorer.score(r.task, code, ['feedback'], signal)
        if (result.kind === 'unscorable') return
        const row: CorpusRow = {
          suite: r.task.ref.suite,
          task: r.task.ref.id,
          key,
          first: { code, end: ended(result) },
        }
        appendFileSync(path, `${JSON.stringify(row)}\n`)
        rows.push(row)
        d.progress(`policy samples ${tag}: ${rows.length} executed`)
      })
    })
  }
  await pool(keyed('policy order', tag).shuffle(jobs), d.width)
  return rows.sort((a, b) => (a.key < b.key ? -1 : 1))
}

export interface LossPoint {
  readonly step: number
  readonly tokens: number
  readonly loss: number
}

export interface Trained {
  readonly codec: NanoCodec
  readonly engine: OnnxEngine
  readonly model: OnnxModel
  readonly curve: LossPoint[]
  readonly validation: { readonly code: number; readonly outcome: number }
  readonly tokens: number
  readonly rows: { readonly corpus: CorpusRow[]; readonly policy: CorpusRow[] }
}

/** Tokenizer, first training on pairs, the model's own programs executed, second training on both. */
export async function trainBackbone(d: RecipeDeps, signal: AbortSignal): Promise<Trained> {
  const { recipe } = d
  const corpus = await collectCorpus(d, signal)
  const tokenizerPath = join(d.dir, 'tokenizer.json')
  if (!existsSync(tokenizerPath)) {
    d.log('tokenizer: training')
    const errors = corpus
      .flatMap((r) => [r.first.end, r.second?.end])
      .flatMap((e) => (e && 'text' in e ? [e.text.replace(/^[a-z ]+(: )?/, '').slice(0, 40)] : []))
    writeFileSync(
      tokenizerPath,
      JSON.stringify(
        makeTokenizer(
          [...d.small, ...d.builtin].map((t) => t.card),
          errors,
          recipe.seed,
        ),
      ),
    )
  }
  const codec = NanoCodec.load(tokenizerPath)
  const all = toExamples(codec, d, corpus)
  const order = keyed('validation', recipe.seed).shuffle(all)
  const held = order.slice(0, 120)
  const examples = order.slice(120)
  const config = {
    layers: recipe.layers,
    dModel: recipe.dModel,
    heads: recipe.heads,
    vocab: codec.vocab,
    context: recipe.context,
    logitScale: 1,
  }
  const engine = await openOnnxEngine({
    backbone: { config, seed: recipe.seed },
    checkpointDir: join(d.dir, 'checkpoints'),
    threads: d.threads,
  })
  const curve: LossPoint[] = []
  const note =
    (stage: string, offset: number): NonNullable<PretrainOptions['onStep']> =>
    (s) => {
      d.progress(`pre-training ${stage}: step ${s.step}, loss ${s.loss.toFixed(3)}`)
      if (s.step % 25 === 0)
        curve.push({ step: offset + s.step, tokens: tokens + s.tokens, loss: Number(s.loss.toFixed(4)) })
    }
  const common = { batchTokens: recipe.batchTokens, warmup: 40, weightDecay: 0.1 }
  const marker = join(d.dir, 'stage-a.json')
  let model: OnnxModel
  let tokens = 0
  if (existsSync(marker)) {
    const saved = JSON.parse(readFileSync(marker, 'utf8')) as {
      checkpoint: Parameters<OnnxEngine['open']>[0]
      curve: LossPoint[]
      tokens: number
    }
    model = await engine.open(saved.checkpoint, signal)
    curve.push(...saved.curve)
    tokens = saved.tokens
  } else {
    model = await engine.open('frozen', signal)
    tokens = await pretrain(
      model,
      examples,
      { ...common, steps: recipe.stepsA, peak: 3e-3, floor: 6e-4, seed: recipe.seed, onStep: note('A', 0) },
      signal,
    )
    writeFileSync(marker, JSON.stringify({ checkpoint: await model.save('stage-a', signal), curve, tokens }))
  }
  let policy: CorpusRow[]
  {
    await using sampler = await model.snapshot(signal)
    const v = await validationLoss(sampler, held, OUTCOME_WEIGHT, signal)
    d.log(`after A: validation loss code ${v.code.toFixed(3)}, outcome ${v.outcome.toFixed(3)}`)
  }
  {
    const path = join(d.dir, 'writer.safetensors')
    await model.saveBackbone(path, { logitScale: recipe.policySharpening }, signal)
    await using writer = await openOnnxEngine({
      backbone: path,
      checkpointDir: join(d.dir, 'checkpoints'),
      threads: d.threads,
    })
    const sampler = await writer.frozen(signal)
    policy = await samplePolicy(d, codec, sampler, recipe.policySamples, 'A', [...d.small, ...d.builtin], signal)
    policy.push(...(await samplePolicy(d, codec, sampler, recipe.policySamples * 4, 'B', d.builtin, signal)))
  }
  const both = [...examples, ...toExamples(codec, d, policy, corpus)]
  tokens += await pretrain(
    model,
    both,
    {
      ...common,
      steps: recipe.stepsB,
      peak: 1.5e-3,
      floor: 5e-5,
      seed: recipe.seed + 1,
      onStep: note('B', recipe.stepsA),
    },
    signal,
  )
  await using last = await model.snapshot(signal)
  const validation = await validationLoss(last, held, OUTCOME_WEIGHT, signal)
  d.log(`after B: validation loss code ${validation.code.toFixed(3)}, outcome ${validation.outcome.toFixed(3)}`)
  return { codec, engine, model, curve, validation, tokens, rows: { corpus, policy } }
}
