/** A figure of a table; `-` where there is none. */
export const num = (v: number | null, digits = 3): string => (v === null ? '-' : v.toFixed(digits))
