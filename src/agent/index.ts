export * from './format.ts'
export * from './large/index.ts'
export * from './rollout.ts'
export * from './trajectory.ts'
