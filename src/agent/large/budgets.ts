/** The paper's budgets, in tokens unless named (method.md, section 1). */
export const PAPER_BUDGETS = {
  turns: 4,
  actionTokens: 4096,
  observationTokens: 1024,
  /** The world model's prompt and its prediction together. */
  worldContext: 12_288,
  predictionTokens: 1024,
} as const
