import { type Command, InvalidArgumentError } from 'commander'
import { benchEngine } from '../../engine/index.ts'
import { benchSandbox } from '../../sandbox/index.ts'
import { countOf, run } from '../command.ts'
import { sandboxState, solutionsPython } from '../paths.ts'

/** More than any machine has would only end in the library's own words. */
const MOST_THREADS = 1024

function threadsOf(value: string): number {
  const x = countOf(value)
  if (x <= MOST_THREADS) return x
  throw new InvalidArgumentError(`at most ${MOST_THREADS} are possible`)
}

export function benchCommand(program: Command): void {
  const bench = program
    .command('bench')
    .description('measures this machine, as ratios within one run')
    .addHelpText('after', '\nExample:\n  wmrl bench engine --json')
  bench
    .command('engine')
    .description('tokens a second and the share of a 512^3 float matrix product, same library, threads and run')
    .option('--threads <n>', 'threads', threadsOf, 2)
    .option('--seconds <n>', 'seconds to measure', countOf, 20)
    .addHelpText('after', '\nExample:\n  wmrl bench engine --json')
    .action(
      run(async ({ out, signal }, o: { threads: number; seconds: number }) => {
        const b = await benchEngine({ threads: o.threads, seconds: o.seconds, signal })
        const line = (name: string, w: typeof b.train): string =>
          `${name.padEnd(7)} ${w.tokensPerS.toFixed(0)} tokens/s, ${(w.flopsPerToken / 1e6).toFixed(1)} MFLOP a token, ${(100 * w.ratioToCeiling).toFixed(0)} % of the product's rate`
        out.result(b, () =>
          [
            `512^3 product ${b.ceilingGflops.toFixed(0)} GFLOP/s`,
            line('train', b.train),
            line('decode', b.decode),
          ].join('\n'),
        )
      }),
    )
  bench
    .command('sandbox')
    .description('CPU a solution: plain process, sandboxed process, fork server, same program and run')
    .addHelpText('after', '\nExample:\n  wmrl bench sandbox --json')
    .action(
      run(async ({ out, signal }) => {
        const b = await benchSandbox({ python: solutionsPython(), stateDir: sandboxState(), signal })
        out.result(b, () =>
          [
            ...b.rows.map(
              (r) => `${r.backend.padEnd(14)} ${r.cpuS.toFixed(3)} CPU s a solution, ${r.perS.toFixed(2)} a second`,
            ),
            `fork server / plain process: ${b.ratioToPlain.toFixed(3)} of the CPU`,
          ].join('\n'),
        )
      }),
    )
}
