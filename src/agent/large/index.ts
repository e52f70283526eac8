export * from './agent-prompt.ts'
export * from './budgets.ts'
export * from './format.ts'
export * from './world-prompt.ts'
