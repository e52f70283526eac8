import { basename } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { EngineError, messageOf } from '../../core/index.ts'

/**
 * Files of an adapter's tar.gz by base name: an archive's own folders are not followed, so that none is written outside the
 * place that the caller chose. @throws EngineError where it is no such archive.
 */
export function adapterFiles(archive: Uint8Array): Map<string, Uint8Array> {
  let tar: Buffer
  try {
    tar = gunzipSync(archive)
  } catch (cause) {
    throw new EngineError(`the adapter is no tar.gz (${messageOf(cause)})`, { cause })
  }
  const files = new Map<string, Uint8Array>()
  const text = (from: number, n: number): string => tar.toString('utf8', from, from + n).replace(/\0.*$/s, '')
  for (let at = 0; at + 512 <= tar.length; ) {
    const name = text(at, 100)
    if (name === '') break
    const size = Number.parseInt(text(at + 124, 12).trim(), 8)
    if (!Number.isSafeInteger(size) || at + 512 + size > tar.length)
      throw new EngineError('the adapter’s archive is cut')
    const kind = text(at + 156, 1)
    const base = basename(name)
    if ((kind === '' || kind === '0') && base !== '' && base !== '.' && base !== '..')
      files.set(base, tar.subarray(at + 512, at + 512 + size))
    at += 512 + Math.ceil(size / 512) * 512
  }
  return files
}
