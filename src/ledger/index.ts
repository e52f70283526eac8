export * from './execution-cache.ts'
export * from './sqlite.ts'
