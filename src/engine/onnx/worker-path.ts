import { createHash, randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { boundary, builtEntry, EngineError, packageRoot } from '../../core/index.ts'

/**
 * Where the worker's JavaScript is. The built package has it in `dist/`. From source (vitest) it is bundled once by
 * tsdown, which is installed wherever the source is run, and kept in node_modules/.cache under the digest of the
 * sources: Node 20 does not run TypeScript.
 */
export async function workerPath(): Promise<string> {
  const here = fileURLToPath(import.meta.url)
  return here.endsWith('.ts') ? await fromSource(dirname(here)) : builtEntry('engine/onnx/worker.js')
}

async function fromSource(here: string): Promise<string> {
  const root = packageRoot()
  const hash = createHash('sha256')
  for (const dir of [here, join(root, 'src', 'core'), dirname(here)]) {
    for (const name of (await readdir(dir)).sort()) {
      if (name.endsWith('.ts') && !name.endsWith('.test.ts')) hash.update(name).update(await readFile(join(dir, name)))
    }
  }
  const cache = join(root, 'node_modules', '.cache', 'wmrl')
  const out = join(cache, `onnx-worker-${hash.digest('hex').slice(0, 16)}`)
  const file = join(out, 'worker.js')
  if (existsSync(file)) return file
  return await boundary(EngineError, 'bundling the engine worker', async () => {
    const { build } = await import('tsdown')
    const temporary = `${out}.${randomUUID()}.tmp`
    await mkdir(cache, { recursive: true })
    await build({
      config: false,
      entry: { worker: join(here, 'worker.ts') },
      outDir: temporary,
      format: 'esm',
      platform: 'node',
      target: 'node20',
      outExtensions: () => ({ js: '.js' }),
      external: [/^[^./]/],
      dts: false,
      clean: false,
      logLevel: 'silent',
    })
    // Another process may have been quicker; its bundle is of the same sources.
    await rename(temporary, out).catch(() => rm(temporary, { recursive: true, force: true }))
    return file
  })
}
