import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { ConfigError } from '../core/index.ts'
import { RunLedger } from '../ledger/index.ts'
import type { RunConfig } from '../train/index.ts'
import { loadConfig } from './config-file.ts'
import { savedConfig } from './run-record.ts'
import { needRun } from './runtime.ts'

const KEY = 'config'

export const configFile = (dir: string): string => join(dir, 'config.yaml')

/** Notes the configuration that a run's steps are about to be computed with, before any of them is: it may be killed before it saves. */
export const keepConfig = (ledger: RunLedger, config: RunConfig): void => ledger.setMeta(KEY, JSON.stringify(config))

/** The configuration that a run's numbers were computed with, from its ledger; undefined in ledgers of earlier versions. */
export function recordedConfig(ledger: RunLedger): RunConfig | undefined {
  const noted = ledger.meta(KEY)
  const saved = savedConfig(ledger) ?? (noted === undefined ? undefined : (JSON.parse(noted) as RunConfig))
  // Keys of later versions get their defaults.
  return saved && loadConfig({ base: { ...saved } })
}

/**
 * What a replay recomputes with: the ledger's, which no edit of config.yaml changes. The file is read for runs of earlier
 * versions alone, whose ledger holds none.
 * @throws ConfigError where neither is there
 */
export function configToReplay(dir: string, ledger: RunLedger): RunConfig {
  const recorded = recordedConfig(ledger)
  if (recorded) return recorded
  if (existsSync(configFile(dir))) return configOf(dir)
  throw new ConfigError(
    'run',
    `${dir} has no config.yaml, and its ledger holds no configuration (an earlier version wrote it, or no step was saved)`,
    'put its config.yaml back, or train anew',
  )
}

/**
 * What a run is evaluated or gone on with: its config.yaml, in which a backbone or a server may have been given another place
 * since, else the ledger's.
 */
export function configOfRun(dir: string): RunConfig {
  const db = needRun(dir)
  if (existsSync(configFile(dir))) return configOf(dir)
  const ledger = RunLedger.openReadOnly(db)
  try {
    return configToReplay(dir, ledger)
  } finally {
    ledger.close()
  }
}

/** Resolved configuration in a run directory's file. */
export const configOf = (dir: string): RunConfig => loadConfig({ file: configFile(dir) })
