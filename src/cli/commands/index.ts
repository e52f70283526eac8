import type { Command } from 'commander'
import { benchCommand } from './bench.ts'
import { configCommand } from './config.ts'
import { demoCommand } from './demo.ts'
import { doctorCommand } from './doctor.ts'
import { engineCommand } from './engine.ts'
import { evalCommand } from './eval.ts'
import { execCommand } from './exec.ts'
import { fidelityCommand } from './fidelity.ts'
import { labCommand } from './lab.ts'
import { predictCommand } from './predict.ts'
import { replayCommand } from './replay.ts'
import { addTasks } from './tasks.ts'
import { trainCommand } from './train.ts'

/** One file a command; each adds itself to the program. */
export const commands: readonly ((program: Command) => void)[] = [
  demoCommand,
  doctorCommand,
  configCommand,
  addTasks,
  execCommand,
  predictCommand,
  trainCommand,
  evalCommand,
  fidelityCommand,
  replayCommand,
  benchCommand,
  engineCommand,
  labCommand,
]
