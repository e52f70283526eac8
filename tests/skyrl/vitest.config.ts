import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['tests/skyrl/*.skyrl.ts'],
    pool: 'forks',
    maxWorkers: 1,
    fileParallelism: false,
    // Every new shape compiles for seconds, on a busy machine for a minute.
    testTimeout: 1_800_000,
    hookTimeout: 600_000,
  },
})
