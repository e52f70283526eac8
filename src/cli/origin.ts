import { ConfigError } from '../core/index.ts'
import type { RunLedger } from '../ledger/index.ts'
import { hasBegun } from './run-record.ts'

/**
 * Which backbone a run's tokens and weights belong to. A checkpoint alone does not say: read with another tokenizer of the
 * same size, its weights still give programs, but nonsense.
 */
export interface Origin {
  /** Folder or address that it was read from; not compared. */
  readonly where: string
  /** Digest of tokenizer.json. */
  readonly tokenizer: string
  /** Digest of the chat template; only where text has one. */
  readonly template?: string
  /** Version of the frozen weights, which their shape is part of; a server does not say it. */
  readonly weights?: string
}

const KEY = 'backbone'
const PARTS = ['tokenizer', 'template', 'weights'] as const

/** Notes the backbone of a run that begins, and compares that of one that goes on. @throws ConfigError as `sameOrigin` */
export function keepOrigin(ledger: RunLedger, run: string, now: Origin, log: (line: string) => void): void {
  const begun = hasBegun(ledger)
  const certain = !begun || sameOrigin(ledger, run, now, log)
  // Where nothing tells whether they are the same, a note of the present one would pass for knowledge later.
  if (certain && (!begun || ledger.meta(KEY) === undefined)) {
    const { where: _where, ...digests } = now
    ledger.setMeta(KEY, JSON.stringify(digests))
  }
}

/**
 * Whether a run is known to belong to this backbone. Runs of earlier versions noted none, but who made their predictions;
 * one that made none neither is let through with a warning, as nothing speaks against it.
 * @throws ConfigError where it belongs to another one
 */
export function sameOrigin(ledger: RunLedger, run: string, now: Origin, log: (line: string) => void): boolean {
  const noted = ledger.meta(KEY)
  const was = (noted === undefined ? {} : JSON.parse(noted)) as Partial<Origin>
  const differ = PARTS.filter((p) => was[p] !== undefined && now[p] !== undefined && was[p] !== now[p])
  if (differ.length > 0) throw other(run, now, differ.map((p) => `${p} ${was[p]!.slice(0, 12)}`).join(', '), differ)
  if (noted !== undefined) return true
  const made = now.weights === undefined ? [] : ledger.worldModels()
  const foreign = made.find((m) => m !== now.weights)
  if (foreign !== undefined) throw other(run, now, `weights ${foreign.slice(0, 12)}`, ['weights'])
  if (made.length > 0) return true
  log(
    `engine.backbone: ${run} does not say which backbone it was trained from (an earlier version wrote it); unless it is that in ${now.where}, its results are worth nothing`,
  )
  return false
}

function other(run: string, now: Origin, was: string, parts: readonly (typeof PARTS)[number][]): ConfigError {
  const is = parts.map((p) => `${p} ${now[p]!.slice(0, 12)}`).join(', ')
  return new ConfigError(
    now.weights === undefined ? 'engine.tokenizer' : 'engine.backbone',
    `${run} was trained from another backbone (${was}) than that in ${now.where} (${is})`,
    `name the folder of the one that it was trained from in ${run}/config.yaml, or train anew`,
  )
}
