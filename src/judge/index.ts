export * from './executed.ts'
export * from './judge.ts'
export * from './limits.ts'
