import { expect, it } from 'vitest'
import { benchEngine } from './bench.ts'

/** The figures themselves are `wmrl bench engine`'s business: a test machine is seldom free. */
it('measures training and decoding against the ceiling', async () => {
  const bench = await benchEngine({ threads: 2, seconds: 0 })
  expect(bench.parameters).toBe(4 * 12 * 256 * 256 + 1024 * 256)
  expect(bench.train.flopsPerToken).toBe(6 * bench.parameters + 12 * 4 * 256 * 256)
  expect(bench.ceilingGflops).toBeGreaterThan(1)
  for (const work of [bench.train, bench.decode]) {
    expect(work.runs).toBeGreaterThan(0)
    expect(work.ratioToCeiling).toBeGreaterThan(0)
    expect(work.ratioBeside).toBeGreaterThan(0)
    expect(work.tokensPerS).toBeGreaterThanOrEqual(work.medianTokensPerS)
  }
})
