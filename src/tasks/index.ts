export * from './card.ts'
export * from './overview.ts'
export * from './source.ts'
