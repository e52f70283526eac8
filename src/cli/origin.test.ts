import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { NO_COST, score, type Verdict } from '../core/index.ts'
import { openOnnxEngine } from '../engine/index.ts'
import { trainBpe } from '../engine/text/index.ts'
import { RunLedger } from '../ledger/index.ts'
import { INITIAL_STATE } from '../method/index.ts'
import { runConfig, type Totals } from '../train/index.ts'
import { withAgent } from './commands/eval.ts'
import { fidelityOf } from './commands/fidelity.ts'
import { keepOrigin } from './origin.ts'
import { checkpointDir, runRecord } from './run-record.ts'
import { makeRunDir } from './runtime.ts'
import { type NanoEngine, openNano } from './session.ts'

const signal = new AbortController().signal
let dir: string
let open: Record<'own' | 'retokenized' | 'retrained', NanoEngine>

/** Three backbones of one shape: a run's own, the same weights with another tokenizer, other weights with the same one. */
beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'wmrl-origin-'))
  const bpe = (text: string) => JSON.stringify(trainBpe([text], { vocab: 320, maxLength: 20, minFrequency: 1 }))
  const tokenizer = bpe('import x\ny = 1\n')
  const vocab = Object.keys((JSON.parse(tokenizer) as { model: { vocab: object } }).model.vocab).length
  const make = async (name: string, seed: number): Promise<void> => {
    mkdirSync(join(dir, name))
    await using engine = await openOnnxEngine({
      backbone: { config: { layers: 1, dModel: 16, heads: 2, vocab, context: 64, logitScale: 1 }, seed },
      checkpointDir: dir,
      threads: 1,
    })
    await using model = await engine.open('frozen', signal)
    await model.saveBackbone(join(dir, name, 'model.safetensors'), {}, signal)
    writeFileSync(join(dir, name, 'tokenizer.json'), tokenizer)
  }
  await make('own', 1)
  await make('retrained', 2)
  cpSync(join(dir, 'own'), join(dir, 'retokenized'), { recursive: true })
  writeFileSync(join(dir, 'retokenized', 'tokenizer.json'), bpe('for y in z:\n print(y)\n'))
  const nano = (name: string) => openNano({ backbone: join(dir, name), threads: 1, checkpointDir: dir }, signal)
  open = { own: await nano('own'), retokenized: await nano('retokenized'), retrained: await nano('retrained') }
}, 120_000)
afterAll(async () => {
  for (const nano of Object.values(open ?? {})) await nano[Symbol.asyncDispose]()
  rmSync(dir, { recursive: true, force: true })
})

/** A run of one step with its checkpoint, whose predictions were made by `models`. */
async function runOf(name: string, o: { noted: boolean; models?: readonly string[] }): Promise<string> {
  const run = makeRunDir(join(dir, name))
  const ledger = RunLedger.open(join(run, 'run.db'))
  try {
    if (o.noted) keepOrigin(ledger, run, open.own.origin, () => expect.unreachable())
    await using model = await open.own.engine.open('frozen', signal)
    const checkpoint = await model.save('step-1', signal)
    cpSync(checkpoint.location, join(checkpointDir(run), checkpoint.location.split('/').pop()!))
    const verdict: Verdict = {
      source: 'executed',
      outcome: { kind: 'malformed' },
      score: score(0),
      observation: { text: '' },
      cost: NO_COST,
    }
    const shadow = (model: string): Verdict => ({
      source: 'predicted',
      belief: { alternatives: [{ kind: 'malformed', p: 1 }], shown: 0 },
      score: score(0),
      spread: 0,
      observation: { text: '' },
      cost: NO_COST,
      model: model as never,
    })
    ledger.commitStep(
      { step: 1, record: {} },
      [],
      [],
      (o.models ?? []).map((m, turn) => ({
        step: 1,
        group: 0,
        trajectory: 0,
        turn,
        code: 'x',
        verdict,
        shadow: shadow(m),
      })),
    )
    runRecord(ledger, run, runConfig.parse({})).commitCheckpoint(checkpoint, {
      step: 1,
      method: INITIAL_STATE,
      totals: {} as Totals,
      anchorHistory: [],
    })
  } finally {
    ledger.close()
  }
  return run
}
const evaluated = (run: string, nano: NanoEngine, log: string[] = []): Promise<string> =>
  withAgent(
    nano,
    run,
    signal,
    async (s) => s.version,
    (line) => log.push(line),
  )
const resumed = (run: string, nano: NanoEngine): string[] => {
  const lines: string[] = []
  const ledger = RunLedger.open(join(run, 'run.db'))
  try {
    keepOrigin(ledger, run, nano.origin, (line) => lines.push(line))
  } finally {
    ledger.close()
  }
  return lines
}

describe('a run whose backbone is noted', () => {
  it('is evaluated and gone on with from that one, and no other: the part, both digests, the fix', async () => {
    const run = await runOf('noted', { noted: true })
    const log: string[] = []
    expect(await evaluated(run, open.own, log)).toBe(open.own.frozen.version)
    expect([...resumed(run, open.own), ...log]).toEqual([])
    for (const [nano, part] of [
      [open.retokenized, 'tokenizer'],
      [open.retrained, 'weights'],
    ] as const) {
      const said = new RegExp(
        `^engine\\.backbone: .*noted was trained from another backbone \\(${part} ${open.own.origin[part]!.slice(0, 12)}\\) than that in ${nano.origin.where} \\(${part} ${nano.origin[part]!.slice(0, 12)}\\); name the folder .* in .*noted/config\\.yaml, or train anew$`,
      )
      await expect(evaluated(run, nano)).rejects.toThrow(said)
      expect(() => resumed(run, nano)).toThrow(said)
    }
  })
})

describe('a run of an earlier version, which noted none', () => {
  it('is told by who made its predictions', async () => {
    const run = await runOf('predicted', { noted: false, models: [open.own.frozen.version] })
    const log: string[] = []
    await evaluated(run, open.own, log)
    await expect(evaluated(run, open.retrained)).rejects.toThrow(
      /another backbone \(weights .*than that in .*retrained/,
    )
    expect(log).toEqual([])
    // Gone on with, it is noted.
    resumed(run, open.own)
    expect(() => resumed(run, open.retokenized)).toThrow(/another backbone \(tokenizer/)
  })
  it('and without any is let through with one line of warning, each time', async () => {
    const run = await runOf('silent', { noted: false })
    const log: string[] = []
    await evaluated(run, open.retrained, log)
    log.push(...resumed(run, open.own), ...resumed(run, open.retrained))
    expect(log).toHaveLength(3)
    for (const line of log) expect(line).toMatch(/^engine\.backbone: .*silent does not say which backbone/)
  })
})

it('fidelity over two world models is refused', async () => {
  const mixed = await runOf('mixed', { noted: false, models: ['aaaa', 'bbbb'] })
  expect(() => fidelityOf(mixed)).toThrow(/mixed holds predictions of 2 backbones \(aaaa, bbbb\); .*train anew/)
  expect(fidelityOf(await runOf('pure', { noted: true, models: ['aaaa'] })).n).toBe(1)
})

it('the tokenizer’s digest is of its bytes', () => {
  expect(open.retokenized.origin.tokenizer).not.toBe(open.own.origin.tokenizer)
  expect(open.retrained.origin.tokenizer).toBe(open.own.origin.tokenizer)
})
