/** Entry of the process that tests start as an ordinary user: runs the suite that argv[2] describes, prints JSON. */
import { runHostileSuite } from './suite.ts'

const report = await runHostileSuite(JSON.parse(process.argv[2] ?? '{}'))
process.stdout.write(`\n${JSON.stringify(report)}\n`)
