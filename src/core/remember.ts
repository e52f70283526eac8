/** The promise kept under `key`, made the first time. One that rejects is forgotten: the next call tries again. */
export function remember<K, V>(kept: Map<K, Promise<V>>, key: K, make: () => Promise<V>): Promise<V> {
  const known = kept.get(key)
  if (known) return known
  const made = make()
  kept.set(key, made)
  made.catch(() => {
    if (kept.get(key) === made) kept.delete(key)
  })
  return made
}
