import { SLOTS, slotToken } from './slots.ts'

/** Bins of the percentile that one token stands for. */
export const NANO_BINS = 20
export const NANO_MARKS = {
  task: '<|task|>',
  code: '<|code|>',
  obs: '<|obs|>',
  end: '<|end|>',
  pad: '<|pad|>',
} as const

/** Ends of a program other than a graded submission, with the words that the renderer begins them with. */
export const NANO_ENDS = [
  ['crashed', 'error'],
  ['invalid-submission', 'invalid submission'],
  ['timed-out', 'timed out'],
  ['out-of-memory', 'out of memory'],
  ['syntax-error', 'syntax error'],
  ['malformed', 'no program found'],
] as const

export const binToken = (bin: number): string => `<|valid:${bin}|>`
export const endToken = (kind: string): string => `<|${kind}|>`

/** All special tokens in id order. */
export const NANO_SPECIALS: readonly string[] = [
  NANO_MARKS.pad,
  NANO_MARKS.task,
  NANO_MARKS.code,
  NANO_MARKS.obs,
  NANO_MARKS.end,
  ...Array.from({ length: NANO_BINS }, (_, b) => binToken(b)),
  ...NANO_ENDS.map(([k]) => endToken(k)),
  ...Array.from({ length: SLOTS }, (_, k) => slotToken(k)),
]
