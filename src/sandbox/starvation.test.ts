import { describe, expect, it } from 'vitest'
import type { TaskSample } from './proc.ts'
import { Starvation } from './starvation.ts'

const MS = 1e6
/** Ten samples, 200 ms apart; `waits` gives every task's waiting by then, in ms. */
function watch(cpus: number, tasks: (i: number) => readonly { waitMs: number; runnable: boolean }[]): Starvation {
  const s = new Starvation(cpus)
  for (let i = 0; i <= 10; i++) {
    s.sample(tasks(i).map((t, n): TaskSample => ({ id: `${n}`, runnable: t.runnable, waitNs: t.waitMs * MS })))
  }
  return s
}

describe('Starvation', () => {
  it('blames the machine when one task waited half the time', () => {
    const s = watch(1, (i) => [{ waitMs: 150 * i, runnable: true }])
    expect(s.waitS).toBeCloseTo(1.5)
    expect(s.starved(2, 0)).toBe(true)
    expect(s.starved(3.1, 0)).toBe(false)
  })

  it('leaves a sleeper to its own fault', () => {
    expect(watch(1, () => [{ waitMs: 1, runnable: false }]).starved(2, 0)).toBe(false)
  })

  it('does not count waiting from before the program began', () => {
    const s = watch(1, () => [{ waitMs: 5000, runnable: true }])
    expect(s.starved(2, 0)).toBe(false)
  })

  it('does not count what the own quota held back', () => {
    const s = watch(1, (i) => [{ waitMs: 150 * i, runnable: true }])
    expect(s.starved(2, 1)).toBe(false)
  })

  it('sees a crowd by its states', () => {
    const two = watch(1, (i) => [
      { waitMs: 190 * i, runnable: true },
      { waitMs: 0, runnable: true },
    ])
    expect(two.starved(2, 0)).toBe(false)
    const enough = watch(2, (i) => [
      { waitMs: 190 * i, runnable: true },
      { waitMs: 0, runnable: true },
    ])
    expect(enough.starved(2, 0)).toBe(true)
  })

  it('sees a crowd whose members are never caught running: a fork bomb waits for itself', () => {
    const s = watch(1, (i) => Array.from({ length: 64 }, () => ({ waitMs: 5 * i, runnable: false })))
    expect(s.waitS).toBeGreaterThan(2)
    expect(s.starved(2, 0)).toBe(false)
  })
})
