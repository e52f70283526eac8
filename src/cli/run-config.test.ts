import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { stringify } from 'yaml'
import { RunLedger } from '../ledger/index.ts'
import { methodOf, type RunConfig, runConfig } from '../train/index.ts'
import { configFile, configOfRun, configToReplay, keepConfig } from './run-config.ts'

let dir: string
let ledger: RunLedger
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-config-'))
  ledger = RunLedger.open(join(dir, 'run.db'))
})
afterEach(() => {
  ledger.close()
  rmSync(dir, { recursive: true, force: true })
})

const config = (lambda: number): RunConfig => {
  const c = runConfig.parse({ seed: 7, method: { lambda } })
  return { ...c, method: methodOf(c) }
}
const saved = (c: RunConfig | undefined) =>
  ledger.commitCheckpoint({
    step: 5,
    weights: 'w',
    location: 'w.safetensors',
    state: { run: {}, name: 'step-5', config: c },
  })

test('a replay recomputes with what the ledger holds, whatever config.yaml says now', () => {
  keepConfig(ledger, config(0.25))
  writeFileSync(configFile(dir), stringify(config(0.9)))
  // No step was saved yet: the process was killed, say.
  expect(configToReplay(dir, ledger).method.lambda).toBe(0.25)
  saved(config(0.5))
  expect(configToReplay(dir, ledger).method.lambda).toBe(0.5)
  // An evaluation reads the file, in which a backbone may have been given its new place.
  expect(configOfRun(dir).method.lambda).toBe(0.9)
  rmSync(configFile(dir))
  expect(configOfRun(dir)).toEqual(config(0.5))
})

test('a ledger of an earlier version holds none: config.yaml, or one line with the fix', () => {
  saved(undefined)
  expect(() => configToReplay(dir, ledger)).toThrow(
    /^run: .* has no config\.yaml.*; put its config\.yaml back, or train/,
  )
  writeFileSync(configFile(dir), stringify(config(0.9)))
  expect(configToReplay(dir, ledger).method.lambda).toBe(0.9)
})
