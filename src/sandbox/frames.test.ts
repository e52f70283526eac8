import { describe, expect, it } from 'vitest'
import { FrameReader, frame } from './frames.ts'

describe('FrameReader', () => {
  it('finds the same frames however the stream is cut', () => {
    const stream = Buffer.concat([frame('S'), frame('O', Buffer.from('hello')), frame('R', Buffer.alloc(300, 7))])
    for (const size of [1, 2, 3, 7, 64, stream.length]) {
      const reader = new FrameReader(1000)
      const found = []
      for (let i = 0; i < stream.length; i += size) found.push(...reader.push(stream.subarray(i, i + size)))
      expect(found.map((f) => f.kind)).toEqual(['S', 'O', 'R'])
      expect(found[1]?.payload.toString()).toBe('hello')
      expect(found[2]?.payload).toEqual(Buffer.alloc(300, 7))
    }
  })

  it('refuses a frame over the limit', () => {
    expect(() => new FrameReader(10).push(frame('O', Buffer.alloc(11)))).toThrow(RangeError)
  })
})
