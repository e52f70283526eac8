export * from './core/index.ts'
export * from './judge/index.ts'
export * from './method/index.ts'
export * from './train/index.ts'
