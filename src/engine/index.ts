export * from './contract.ts'
export * from './onnx/index.ts'
export * from './reduction.ts'
