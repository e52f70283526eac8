export * from './bpe-train.ts'
export * from './nano-codec.ts'
export * from './nano-tokens.ts'
export * from './slots.ts'
