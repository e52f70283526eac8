import type { Command } from 'commander'
import { addTasks } from './tasks.ts'

/** One file a command; each adds itself to the program. */
export const commands: readonly ((program: Command) => void)[] = [addTasks]
