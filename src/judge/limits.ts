import type { Limits } from '../sandbox/index.ts'

/**
 * Profiles of limits. They count CPU seconds; the wall clock behind them is generous, so that a busy machine makes no
 * time-outs. `demo` is what the shipped backbone was trained for, `board` what leaderboard recipes may use.
 */
export const LIMIT_PROFILES = {
  demo: limits(4),
  board: limits(20),
  paper: { ...limits(600), memoryMb: 65536, cpus: 6, diskMb: 4096 },
} as const satisfies Record<string, Limits>
export type LimitProfile = keyof typeof LIMIT_PROFILES

function limits(cpuS: number): Limits {
  return {
    cpuS,
    wallS: Math.max(60, cpuS * 15),
    memoryMb: 2048,
    outputBytes: 256 * 1024,
    submissionBytes: 16 * 1024 * 1024,
    diskMb: 64,
    processes: 64,
    cpus: 1,
  }
}
