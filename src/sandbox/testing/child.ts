/** Entry of the process that tests start as an ordinary user: runs the suite that argv[2] describes, prints JSON. */
import { runAttackSuite, runHostileSuite } from './suite.ts'

const options = JSON.parse(process.argv[2] ?? '{}')
const report = await (options.suite === 'attacks' ? runAttackSuite(options) : runHostileSuite(options))
process.stdout.write(`\n${JSON.stringify(report)}\n`)
