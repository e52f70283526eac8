import { expect, test } from 'vitest'
import { LoopLag } from './loop-lag.ts'

const block = (ms: number): void => {
  const until = performance.now() + ms
  while (performance.now() < until);
}
const turn = (): Promise<void> => new Promise((r) => setTimeout(r, 60))

test('the longest block since the last look, also one that no timer has seen the end of', async () => {
  using lag = new LoopLag()
  await turn()
  lag.take()
  // Right after a look, then some of the loop's turns.
  block(400)
  await turn()
  block(150)
  await turn()
  const seen = lag.take()
  expect(seen).toBeGreaterThanOrEqual(370)
  block(300)
  expect(lag.take()).toBeGreaterThanOrEqual(270)
  // What was told is told once: nothing blocked since.
  expect(lag.take()).toBe(0)
})
