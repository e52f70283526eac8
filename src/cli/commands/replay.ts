import type { Command } from 'commander'
import { RunLedger } from '../../ledger/index.ts'
import { replay } from '../../report/index.ts'
import { methodOf } from '../../train/index.ts'
import { Failed, run } from '../command.ts'
import { needRun } from '../runtime.ts'
import { configOf } from './train.ts'

export function replayCommand(program: Command): void {
  program
    .command('replay')
    .description('recomputes scores, corrected scores, advantages and coefficients of a run from its ledger')
    .argument('<run>', 'run directory')
    .addHelpText('after', '\nExample:\n  wmrl replay runs/first')
    .action(
      run(async ({ out }, dir: string) => {
        const db = needRun(dir)
        const config = configOf(dir)
        const ledger = RunLedger.openReadOnly(db)
        try {
          const r = replay(ledger, methodOf(config), { expectedScores: config.prediction.score === 'expected' })
          out.result(r, () => `${r.steps} steps, ${r.compared} numbers compared, ${r.differences} differences`)
          if (r.differences > 0) throw new Failed(r.first)
        } finally {
          ledger.close()
        }
      }),
    )
}
