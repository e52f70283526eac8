export * from './agent-prompt.ts'
export * from './format.ts'
export * from './world-prompt.ts'
