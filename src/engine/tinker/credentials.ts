/** How a key becomes what X-API-Key carries. */
export interface Credentials {
  /** The value to send now. */
  current(signal: AbortSignal): Promise<string | undefined>
}

export const plainKey = (key: string | undefined): Credentials => ({ current: async () => key })

/** End of a JWT in milliseconds of the epoch; undefined where it says none. */
export function jwtExpiry(jwt: string): number | undefined {
  try {
    const { exp } = JSON.parse(Buffer.from(jwt.split('.')[1] ?? '', 'base64url').toString('utf8')) as { exp?: unknown }
    return typeof exp === 'number' ? exp * 1000 : undefined
  } catch {
    return undefined
  }
}

/**
 * A service that exchanges the key for a short-lived token: renewed five minutes before its end, waited for when less than
 * one minute is left.
 */
export function exchangedKey(
  ask: (signal: AbortSignal) => Promise<string>,
  wallMs: () => number,
  onNew: (jwt: string) => void,
): Credentials {
  let jwt: string | undefined
  let asking: Promise<string> | undefined
  const renew = (signal: AbortSignal): Promise<string> => {
    asking ??= ask(signal)
      .then((t) => {
        jwt = t
        onNew(t)
        return t
      })
      .finally(() => {
        asking = undefined
      })
    return asking
  }
  return {
    async current(signal) {
      const left = jwt === undefined ? 0 : (jwtExpiry(jwt) ?? Number.POSITIVE_INFINITY) - wallMs()
      if (jwt === undefined || left < 60_000) return renew(signal)
      if (left < 300_000) renew(signal).catch(() => undefined)
      return jwt
    },
  }
}
