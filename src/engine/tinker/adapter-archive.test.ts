import { gzipSync } from 'node:zlib'
import { expect, it } from 'vitest'
import { adapterFiles } from './adapter-archive.ts'

function tar(files: readonly [string, string, string?][]): Uint8Array {
  const parts: Buffer[] = []
  for (const [name, text, kind] of files) {
    const head = Buffer.alloc(512)
    head.write(name, 0)
    head.write(text.length.toString(8).padStart(11, '0'), 124)
    head.write(kind ?? '0', 156)
    parts.push(head, Buffer.concat([Buffer.from(text), Buffer.alloc((512 - (text.length % 512)) % 512)]))
  }
  return gzipSync(Buffer.concat([...parts, Buffer.alloc(1024)]))
}

it('takes files by their base names and nothing else', () => {
  const f = adapterFiles(
    tar([
      ['a/adapter_config.json', '{}'],
      ['../../evil', 'x'],
      ['d/', '', '5'],
      ['link', '', '2'],
    ]),
  )
  expect([...f].map(([k, v]) => [k, Buffer.from(v).toString()])).toEqual([
    ['adapter_config.json', '{}'],
    ['evil', 'x'],
  ])
})

it('refuses what is no archive', () => {
  expect(() => adapterFiles(Buffer.from('nonsense'))).toThrow('no tar.gz')
  expect(() => adapterFiles(gzipSync(Buffer.from(`name${'\0'.repeat(120)}77777777777`.padEnd(512, '\0'))))).toThrow(
    'cut',
  )
})
