import type { Command } from 'commander'
import { run } from '../command.ts'
import { configReference, configSchema } from '../config-file.ts'

export function configCommand(program: Command): void {
  program
    .command('config')
    .description('the configuration reference, generated from the schema')
    .option('--schema', 'the JSON schema instead')
    .addHelpText('after', '\nExample:\n  wmrl config --schema > wmrl.schema.json')
    .action(
      run(async ({ out }, opts: { schema?: boolean }) => {
        const rows = configReference()
        if (opts.schema) {
          process.stdout.write(`${JSON.stringify(configSchema(), null, 1)}\n`)
          return
        }
        out.result(configSchema(), () =>
          rows
            .map(
              (r) =>
                `${r.key.padEnd(34)} ${r.type.padEnd(10)} ${r.default === undefined ? '' : `= ${JSON.stringify(r.default)}`}${r.description ? `   ${r.description}` : ''}`,
            )
            .join('\n'),
        )
      }),
    )
}
