export * from './evaluation.ts'
export * from './fidelity.ts'
export * from './replay.ts'
export * from './stats.ts'
