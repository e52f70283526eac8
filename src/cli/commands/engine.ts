import type { Command } from 'commander'
import { ConfigError, messageOf } from '../../core/index.ts'
import {
  checkRows,
  checkTable,
  isFailure,
  probeServer,
  requireServer,
  TinkerClient,
} from '../../engine/tinker/index.ts'
import { Failed, run } from '../command.ts'

/** Where the key of a server is read from; the name is the protocol's own. */
export const KEY_VARIABLE = 'TINKER_API_KEY'

export function engineCommand(program: Command): void {
  const engine = program
    .command('engine')
    .description('the servers that train')
    .addHelpText('after', '\nExample:\n  wmrl engine check http://127.0.0.1:8000')
  engine
    .command('check')
    .description('what a server of the Tinker protocol does: trains a throw-away model for a few steps and unloads it')
    .argument('<url>', `base URL, without /api/v1; the key is read from ${KEY_VARIABLE}`)
    .option('--model <name>', 'base model, where the server has several')
    .option('--rank <n>', 'rank of the throw-away adapter', '4')
    .option('--vocab <n>', 'the probes use ids below it', '256')
    .addHelpText('after', '\nExample:\n  wmrl engine check http://127.0.0.1:8000')
    .action(
      run(async ({ out, signal }, url: string, o: { model?: string; rank: string; vocab: string }) => {
        if (!/^https?:\/\/./.test(url))
          throw new ConfigError('<url>', `${url} is no http URL`, 'for example http://127.0.0.1:8000')
        const key = process.env[KEY_VARIABLE]
        const client = new TinkerClient({
          baseUrl: url,
          ...(key ? { apiKey: key } : {}),
          // A server that is not there is told at once, not after five minutes.
          ceilings: { submission: 60_000, outage: 60_000, future: 1_200_000 },
        })
        await client.health(signal).catch((e: unknown) => {
          if (isFailure(e, 'unreachable', 'timeout')) throw new Failed(`${url} does not answer: ${messageOf(e)}`)
          throw e
        })
        const models = await client.models(signal)
        const model = o.model === undefined ? models[0] : models.find((m) => m.name === o.model)
        if (!model)
          throw new ConfigError(
            '--model',
            o.model === undefined ? 'the server names no model' : `the server has no ${o.model}`,
            models.length > 0 ? `one of ${models.map((m) => m.name).join(', ')}` : undefined,
          )
        await using session = await client.createSession({ tags: ['wmrl-check'] }, signal)
        const started = Date.now()
        const report = await probeServer(
          session,
          {
            baseModel: model.name,
            context: model.context,
            rank: whole('--rank', o.rank, 0),
            vocab: whole('--vocab', o.vocab, 32),
            onProbe: (name) => out.progress(`probing: ${name} (${((Date.now() - started) / 1000).toFixed(0)} s)`),
          },
          signal,
        )
        const rows = checkRows(report)
        let usable = true
        let reason = 'a run can train on it'
        try {
          requireServer(report, {
            losses: ['importance_sampling'],
            frozenBase: false,
            kl: false,
            entropy: false,
            context: report.context ?? 1,
            longest: undefined,
            overlap: false,
          })
        } catch (e) {
          usable = false
          reason = messageOf(e)
        }
        out.result({ url, capabilities: report, rows, usable, reason, seconds: (Date.now() - started) / 1000 }, () =>
          [checkTable(rows), ...report.notes.map((n) => `note: ${n}`), usable ? reason : `not usable: ${reason}`].join(
            '\n',
          ),
        )
        if (!usable) throw new Failed('')
      }),
    )
}

function whole(flag: string, text: string, least: number): number {
  const n = Number(text)
  if (!Number.isInteger(n) || n < least) throw new ConfigError(flag, `${text} is not a whole number from ${least}`)
  return n
}
