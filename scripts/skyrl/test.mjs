#!/usr/bin/env node
/**
 * npm run test:skyrl: proof on a server that we did not write. Installs SkyRL, starts it, runs tests/skyrl against it and
 * stops it. 1.2 GB; four minutes on two busy cores where the registry is quick, most of it compilation.
 */
import { spawnSync } from 'node:child_process'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { modelDir, start } from './server.mjs'

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))))
const began = Date.now()
let server
try {
  server = await start()
  process.stderr.write(`skyrl: ready after ${((Date.now() - began) / 1000).toFixed(0)} s\n`)
  const r = spawnSync(
    process.execPath,
    [
      join(root, 'node_modules', 'vitest', 'vitest.mjs'),
      'run',
      '--config',
      join(root, 'tests', 'skyrl', 'vitest.config.ts'),
    ],
    { cwd: root, stdio: 'inherit', env: { ...process.env, WMRL_SKYRL_URL: server.url, WMRL_SKYRL_MODEL: modelDir } },
  )
  process.exitCode = r.status ?? 1
  process.stderr.write(`skyrl: ${((Date.now() - began) / 1000).toFixed(0)} s\n`)
} catch (e) {
  process.stderr.write(`skyrl: ${e instanceof Error ? e.message : e}\n`)
  process.exitCode = 3
} finally {
  await server?.stop()
}
