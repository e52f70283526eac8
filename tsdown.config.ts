import { defineConfig, type UserConfig } from 'tsdown'

const common: UserConfig = {
  format: 'esm',
  platform: 'node',
  target: 'node20',
  outExtensions: () => ({ js: '.js', dts: '.d.ts' }),
  // Dependencies stay dependencies: native parts (libsql, onnxruntime-node) cannot be bundled. Helpers of the compiler
  // (@oxc-project, for `await using`) are no dependency and go in.
  external: [/^(?!\0|@oxc-project\/)[^./]/],
}

/** What package.json exports. */
const api = {
  index: 'src/index.ts',
  'method/index': 'src/method/index.ts',
  'engine/index': 'src/engine/index.ts',
  'engine/tinker/index': 'src/engine/tinker/index.ts',
}

export default defineConfig([
  {
    ...common,
    entry: {
      ...api,
      'cli/main': 'src/cli/main.ts',
      // Threads and processes of their own, found by name (core/package-root.ts).
      'engine/onnx/worker': 'src/engine/onnx/worker.ts',
      'grading/worker': 'src/grading/worker.ts',
    },
    dts: false,
    clean: true,
  },
  // Declarations one by one: in one bundle those of the same base name would land in one place.
  { ...common, entry: api, dts: { emitDtsOnly: true }, unbundle: true, clean: false },
])
