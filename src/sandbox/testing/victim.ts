/** Entry of a supervisor that a test kills: two sandboxes, a running program in each, a daemon beside it. */
import { openSandbox } from '../open.ts'
import { PROBE_LIMITS } from './hostile.ts'

const o = JSON.parse(process.argv[2] ?? '{}') as { python: string; stateDir: string; publicDir: string; mark: string }
const code = `import os, subprocess
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: os.execvp('sleep', ['sleep', '${o.mark}'])
    os._exit(0)
subprocess.run(['sleep', '${o.mark}'])`
for (const forkServer of [true, false]) {
  const sandbox = await openSandbox({ python: o.python, stateDir: o.stateDir, workers: 1, forkServer })
  const limits = { ...PROBE_LIMITS, wallS: 600 }
  void sandbox.run({ code, publicDir: o.publicDir, limits, seed: 1 }, AbortSignal.timeout(600_000))
}
