import { defineConfig } from 'tsdown'

export default defineConfig({
  entry: {
    index: 'src/index.ts',
    'method/index': 'src/method/index.ts',
    'engine/index': 'src/engine/index.ts',
    'engine/tinker/index': 'src/engine/tinker/index.ts',
    'cli/main': 'src/cli/main.ts',
    'engine/onnx/worker': 'src/engine/onnx/worker.ts',
    'grading/worker': 'src/grading/worker.ts',
  },
  format: 'esm',
  platform: 'node',
  target: 'node20',
  outExtensions: () => ({ js: '.js', dts: '.d.ts' }),
  dts: true,
  clean: true,
  // Dependencies stay dependencies: native parts (libsql, onnxruntime-node) cannot be bundled.
  external: [/^[^./]/],
})
