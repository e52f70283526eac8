export * from './execution-cache.ts'
export * from './run-ledger.ts'
export * from './sqlite.ts'
