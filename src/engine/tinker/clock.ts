import { setTimeout as wait } from 'node:timers/promises'
import type { Clock } from '../../core/index.ts'

/** The machine's own monotone time. An aborted sleep rejects with the signal's reason. */
export const systemClock: Clock = {
  now: () => performance.now(),
  async sleep(ms, signal) {
    signal?.throwIfAborted()
    try {
      await wait(Math.max(0, ms), undefined, signal ? { signal } : {})
    } catch (e) {
      throw signal?.aborted ? signal.reason : e
    }
  },
}
