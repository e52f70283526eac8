import { expect, it } from 'vitest'
import { probeOnnx } from './index.ts'

it('proves that the library computes here', async () => {
  expect(await probeOnnx()).toMatch(/^onnxruntime-node \d+\.\d+\.\d+, provider cpu$/)
})
