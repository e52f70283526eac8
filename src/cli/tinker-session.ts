import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type AgentFormat, largeFormat, readPrediction, WORLD_SCHEMA, worldPrompt } from '../agent/index.ts'
import { ConfigError, messageOf, type TaskRef } from '../core/index.ts'
import {
  ChatDialogue,
  ChatEndpoint,
  type Completer,
  loadTokenizerDirectory,
  samplerCompleter,
  type TokenizerDirectory,
} from '../engine/text/index.ts'
import { openTinkerEngine, type RemoteSampler, type TinkerEngine } from '../engine/tinker/index.ts'
import type { Executor } from '../executors/index.ts'
import { ChatPredictor, LIMIT_PROFILES } from '../judge/index.ts'
import { usesPredictions } from '../method/index.ts'
import { overview } from '../tasks/index.ts'
import { methodOf, type RunConfig } from '../train/index.ts'
import type { Out } from './command.ts'
import { exportAdapter } from './export-adapter.ts'
import type { OpenEngine, TaskPool } from './session.ts'

/** Variable that holds the chat endpoint's key. */
const CHAT_KEY = 'WMRL_CHAT_KEY'

export interface TinkerOpen extends OpenEngine {
  readonly engine: TinkerEngine
  readonly frozen: RemoteSampler
  readonly dialogue: ChatDialogue
}

/** Opens a server of the Tinker protocol with the model's own text. @throws ConfigError before anything is paid for. */
export async function openTinker(
  out: Out,
  config: RunConfig,
  stateDir: string,
  signal: AbortSignal,
): Promise<TinkerOpen> {
  const { engine: e, train, prediction } = config
  const { url, tokenizerDir } = checkTinker(config)
  const directory = readText(tokenizerDir)
  const dialogue = new ChatDialogue(directory, { thinking: e.thinking })
  const keepText = sameText(stateDir, directory)
  const method = methodOf(config)
  const predicts = usesPredictions(method.mode) && prediction.control !== 'oracle'
  const engine = await openTinkerEngine(
    {
      url,
      ...(e.worldModelUrl ? { worldModelUrl: e.worldModelUrl } : {}),
      ...(e.model ? { model: e.model } : {}),
      ...(process.env.TINKER_API_KEY ? { apiKey: process.env.TINKER_API_KEY } : {}),
      rank: e.rank,
      seed: config.seed,
      ...((e.context ?? directory.context) === undefined ? {} : { context: e.context ?? directory.context! }),
      vocab: directory.vocab,
      ...(e.reduction ? { reduction: e.reduction } : {}),
      stateDir,
      concurrency: e.concurrency,
      needs: {
        losses: [method.mode === 'recommended' ? 'importance_sampling' : 'ppo'],
        frozenBase: train.kl > 0 || (predicts && prediction.by === 'engine'),
        kl: train.kl > 0,
        entropy: train.entropy > 0,
        longest: train.overviewTokens + train.actionTokens,
        overlap: train.maxStaleness > 0,
      },
      log: (line) => out.log(line),
      onProbe: (name) => out.progress(`probing the server: ${name}`),
    },
    signal,
  )
  const frozen = await engine.frozen(signal)
  keepText()
  const predictors: ChatPredictor[] = []
  return {
    engine,
    frozen,
    dialogue,
    // Not the weights: a server names its model by a path or a name, which may change while the model does not.
    origin: { where: tokenizerDir, tokenizer: directory.hash, template: directory.template.hash },
    format: (pool) => agentFormat(config, dialogue, pool),
    predictor(c, pool, checkSyntax) {
      const made = worldModel(c, dialogue, frozen, pool, checkSyntax)
      predictors.push(made)
      return made
    },
    exportTo: (dir, facts, s) =>
      exportAdapter(engine, dir, { ...facts, config, tokenizerDir, templateHash: directory.template.hash }, s),
    async [Symbol.asyncDispose]() {
      for (const { counts } of predictors) {
        if (counts.asked === 0) continue
        writeFileSync(join(stateDir, 'world-model.json'), `${JSON.stringify(counts)}\n`)
        out.log(
          `world model: ${counts.asked} answers asked for, ${counts.unreadable} without a verdict, ${counts.failed} failed`,
        )
      }
      await engine[Symbol.asyncDispose]()
    },
  }
}

/** What a configuration lacks for a server. @throws ConfigError naming the key */
export function checkTinker(config: RunConfig): { url: string; tokenizerDir: string } {
  const { engine, prediction } = config
  if (!engine.url)
    throw new ConfigError(
      'engine.url',
      'is not set',
      'give the base URL of the server, for example http://127.0.0.1:8000',
    )
  const tokenizerDir = textDir(config)
  if (prediction.by === 'chat' && !(prediction.url && prediction.model))
    throw new ConfigError('prediction.url', 'a chat world model needs prediction.url and prediction.model')
  return { url: engine.url, tokenizerDir }
}

/** A server on this machine may be given its model by folder, which then holds the tokenizer too. */
function textDir(config: RunConfig): string {
  const { tokenizer, model } = config.engine
  const dir = tokenizer ?? (model && existsSync(model) ? model : undefined)
  if (dir === undefined)
    throw new ConfigError(
      'engine.tokenizer',
      'is not set',
      'give the folder with the model’s tokenizer.json, tokenizer_config.json and config.json',
    )
  if (!existsSync(dir))
    throw new ConfigError('engine.tokenizer', `${dir} does not exist`, 'give the folder of the model’s own tokenizer')
  return dir
}

function readText(dir: string): TokenizerDirectory {
  try {
    return loadTokenizerDirectory(dir)
  } catch (cause) {
    throw new ConfigError('engine.tokenizer', messageOf(cause), 'give the folder of the model’s own tokenizer', {
      cause,
    })
  }
}

/**
 * A run goes on with the text that it began with: another template would train on other prompts without a word. Returns how to
 * note it, once the engine is open: a run that could not start must not hold a later one to its text.
 */
function sameText(stateDir: string, d: TokenizerDirectory): () => void {
  const path = join(stateDir, 'text.json')
  const now = { template: d.template.hash, tokenizer: d.hash }
  if (!existsSync(path))
    return () => {
      mkdirSync(stateDir, { recursive: true })
      writeFileSync(path, `${JSON.stringify(now)}\n`)
    }
  const was = JSON.parse(readFileSync(path, 'utf8')) as typeof now
  if (was.template !== now.template || was.tokenizer !== now.tokenizer)
    throw new ConfigError(
      'engine.tokenizer',
      `${was.template !== now.template ? 'its chat template' : 'its tokenizer'} is not the one that this run began with`,
      'give the same folder, or start a new run',
    )
  return () => {}
}

const fullOverview =
  (pool: TaskPool, dialogue: ChatDialogue, budget: number) =>
  async (ref: TaskRef): Promise<string> => {
    const { card } = await pool.task(ref)
    return overview(card, { style: 'full', budget, count: (t) => dialogue.count(t) })
  }

function agentFormat(config: RunConfig, dialogue: ChatDialogue, pool: TaskPool): AgentFormat {
  const { train } = config
  return largeFormat({
    dialogue,
    overview: fullOverview(pool, dialogue, train.overviewTokens),
    turns: train.turns,
    cpuS: LIMIT_PROFILES[config.executor.limits].cpuS,
    actionTokens: train.actionTokens,
    observationTokens: train.observationTokens,
  })
}

function worldModel(
  config: RunConfig,
  dialogue: ChatDialogue,
  frozen: RemoteSampler,
  pool: TaskPool,
  checkSyntax: Executor['checkSyntax'],
): ChatPredictor {
  const { prediction: p, train } = config
  // Two programs (the judged one and the one before it), the instructions and the prediction go off the context.
  const room = p.context - p.maxTokens - 2 * train.actionTokens - 700
  const text = fullOverview(pool, dialogue, Math.min(train.overviewTokens, Math.max(512, room)))
  const completer: Completer =
    p.by === 'chat'
      ? new ChatEndpoint({
          url: p.url!,
          model: p.model!,
          concurrency: p.concurrency,
          ...(process.env[CHAT_KEY] ? { apiKey: process.env[CHAT_KEY] } : {}),
        })
      : samplerCompleter(frozen, dialogue, false)
  return new ChatPredictor({
    completer,
    async messages(a) {
      const messages = worldPrompt({
        overview: await text(a.task),
        program: a.action.code,
        history: a.history,
        cpuS: LIMIT_PROFILES[config.executor.limits].cpuS,
      })
      const tokens = messages.reduce((n, m) => n + dialogue.count(m.content), 0)
      // A program is never cut: one that does not fit is unscorable.
      if (tokens + p.maxTokens > p.context)
        throw new RangeError(`${tokens} tokens and a prediction do not fit prediction.context = ${p.context}`)
      return messages
    },
    read: readPrediction,
    schema: WORLD_SCHEMA,
    checkSyntax,
    maxTokens: p.maxTokens,
    draws: p.score === 'expected' || p.score === 'mean' ? p.draws : 1,
    greedy: p.score === 'greedy',
    seed: config.seed,
  })
}
