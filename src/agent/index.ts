export * from './format.ts'
export * from './rollout.ts'
export * from './trajectory.ts'
