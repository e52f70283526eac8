/** Which answer rows a grade speaks of: `feedback` may be shown and trained on, `final` belongs to evaluation. */
export type Scope = 'feedback' | 'final'

export type InvalidCode =
  | 'missing'
  | 'unreadable'
  | 'empty'
  | 'columns'
  | 'row-count'
  | 'id-unknown'
  | 'id-missing'
  | 'id-duplicate'
  | 'not-finite'
  | 'out-of-range'
  | 'row-sum'
  | 'unknown-label'
  | 'too-large'
  | 'grader-refused'

/** `type` is the Python exception's class name, or OutputLimit, DiskLimit, ProcessLimit. `line` counts in the program. */
export interface ErrorSummary {
  readonly type: string
  readonly message: string
  readonly line?: number
}

/** How a real run of a program ended; a closed set. Trouble of ours is never one of these (see `Unscorable`). */
export type Outcome =
  | { readonly kind: 'graded'; readonly score: number; readonly percentile: number; readonly scope: Scope }
  | { readonly kind: 'invalid-submission'; readonly code: InvalidCode; readonly message: string }
  | { readonly kind: 'crashed' | 'syntax-error'; readonly error: ErrorSummary }
  | { readonly kind: 'timed-out'; readonly submissionPresent: boolean }
  | { readonly kind: 'out-of-memory' }
  | { readonly kind: 'malformed' }

export type OutcomeKind = Outcome['kind']

/** In the order of the belief's alternatives everywhere. */
export const OUTCOME_KINDS = [
  'graded',
  'invalid-submission',
  'crashed',
  'syntax-error',
  'timed-out',
  'out-of-memory',
  'malformed',
] as const satisfies readonly OutcomeKind[]

/** No verdict could be reached; never a score, never a text for the agent. */
export interface Unscorable {
  readonly cause: 'infra' | 'grader' | 'prediction' | 'cancelled'
  readonly detail: string
}

/** What a world model thinks of a program. `alternatives` sum to 1; `shown` indexes the keyed draw whose text is read. */
export interface Belief {
  readonly alternatives: readonly {
    readonly kind: OutcomeKind
    /** In [0,1]; only of `graded`. */
    readonly percentile?: number
    readonly p: number
    /** The world model's text for an error or refusal, when it wrote one. */
    readonly detail?: string
  }[]
  readonly shown: number
}
