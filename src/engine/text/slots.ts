/**
 * Copy slots: each name that the prompt quotes is one token in prompt, program and error text, and is restored on
 * decoding. Without them a nano model invents column names. Reversible for programs that quote names with " or '.
 */
export const SLOTS = 12
export const slotToken = (k: number): string => `<n${k}>`

// Empty quotes count as a pair: else every name after `fillna("")` on a line would stand between, not inside, quotes.
const QUOTED = /(["'])([^"'\n]*)\1/g

/** Replaces quoted names by their slots; other quoted text stays. */
export function toSlots(text: string, names: readonly string[]): string {
  const at = new Map(names.slice(0, SLOTS).map((n, k) => [n, k]))
  return text.replace(QUOTED, (whole, q: string, name: string) => {
    const k = at.get(name)
    return k === undefined ? whole : `${q}${slotToken(k)}${q}`
  })
}

/** Restores names; a slot that this task does not have becomes a name that no table has, so that the program fails honestly. */
export function fromSlots(text: string, names: readonly string[]): string {
  return text.replace(/<n(\d+)>/g, (_, d: string) => names[Number(d)] ?? `column_${d}`)
}
