import type { Command } from 'commander'

/** One file a command; each adds itself to the program. */
export const commands: readonly ((program: Command) => void)[] = []
