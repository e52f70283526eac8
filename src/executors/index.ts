export * from './cached.ts'
export * from './executor.ts'
export * from './key.ts'
export * from './local.ts'
