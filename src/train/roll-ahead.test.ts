import { expect, it } from 'vitest'
import { RollAhead } from './roll-ahead.ts'

it('runs at most so many steps ahead, each once, and says how old they are', async () => {
  const begun: number[] = []
  let running = 0
  let most = 0
  const ahead = new RollAhead(
    async (step) => {
      begun.push(step)
      most = Math.max(most, ++running)
      await new Promise((r) => setTimeout(r, 2))
      running--
      return step * 10
    },
    2,
    new AbortController().signal,
  )
  const ages: number[] = []
  for (let step = 1; step <= 6; step++) {
    const r = await ahead.take(step, 6)
    expect(r.value).toBe(step * 10)
    ages.push(r.staleness)
  }
  expect(begun).toEqual([1, 2, 3, 4, 5, 6])
  expect(ages).toEqual([0, 1, 2, 2, 2, 2])
  expect(most).toBeLessThanOrEqual(3)
})

it('a failure surfaces at its step’s turn, and idle waits for the rest', async () => {
  const abort = new AbortController()
  let ended = 0
  const ahead = new RollAhead(
    async (step, signal) => {
      if (step === 2) throw new Error('step 2 broke')
      if (step === 1) return 1
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
      ended++
      return step
    },
    2,
    abort.signal,
  )
  await ahead.take(1, 9)
  await expect(ahead.take(2, 9)).rejects.toThrow('step 2 broke')
  abort.abort()
  await ahead.idle()
  expect(ended).toBe(2)
})
