import type { Command } from 'commander'
import { attemptId, type Belief, weightsVersion } from '../../core/index.ts'
import { PredictedJudge } from '../../judge/index.ts'
import { RunLedger } from '../../ledger/index.ts'
import { replay } from '../../report/index.ts'
import { methodOf, type RunConfig } from '../../train/index.ts'
import { Failed, run } from '../command.ts'
import { configToReplay } from '../run-config.ts'
import { needRun } from '../runtime.ts'

export function replayCommand(program: Command): void {
  program
    .command('replay')
    .description('recomputes scores, corrected scores, advantages and coefficients of a run from its ledger')
    .argument('<run>', 'run directory')
    .addHelpText('after', '\nExample:\n  wmrl replay runs/first')
    .action(
      run(async ({ out, signal }, dir: string) => {
        const db = needRun(dir)
        const ledger = RunLedger.openReadOnly(db)
        try {
          const config = configToReplay(dir, ledger)
          const r = await replay(ledger, methodOf(config), {
            predictedScore: scorer(config, signal),
            seed: config.seed,
          })
          out.result(r, () => `${r.steps} steps, ${r.compared} numbers compared, ${r.differences} differences`)
          if (r.differences > 0) throw new Failed(r.first)
        } finally {
          ledger.close()
        }
      }),
    )
}

/** Scores a recorded belief by the judge that made it: draws of `prediction.score` are keyed by the attempt. */
function scorer(config: RunConfig, signal: AbortSignal) {
  return async (belief: Belief, attempt: string): Promise<number | undefined> => {
    const judge = new PredictedJudge({
      predictor: { predict: () => [Promise.resolve({ belief, tokens: 0, cpuS: 0 })] },
      model: weightsVersion('recorded'),
      score: config.prediction.score,
      draws: config.prediction.draws,
      seed: config.seed,
    })
    const task = { suite: 'builtin', id: '', modality: 'tabular', split: 'train' } as const
    const v = await judge.judge(
      [{ id: attemptId(attempt), task, action: { code: undefined }, history: [], scope: 'feedback' }],
      signal,
    )[0]!
    return 'unscorable' in v ? undefined : v.score
  }
}
