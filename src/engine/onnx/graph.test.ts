import { afterAll, expect, it } from 'vitest'
import { Graph } from './graph.ts'
import { ProtoWriter } from './protobuf.ts'
import { floats, Sessions, tensor } from './sessions.ts'

const sessions = new Sessions(1)
afterAll(() => sessions.close())

it('writes the wire format as protobuf.dev shows it', () => {
  const hex = (w: ProtoWriter): string => Buffer.from(w.finish()).toString('hex')
  expect(hex(new ProtoWriter().varint(1, 150))).toBe('089601')
  expect(hex(new ProtoWriter().string(2, 'testing'))).toBe('120774657374696e67')
  expect(hex(new ProtoWriter().message(3, new ProtoWriter().varint(1, 150)))).toBe('1a03089601')
  expect(hex(new ProtoWriter().varint(1, -2))).toBe('08feffffffffffffffff01')
  expect(hex(new ProtoWriter().float(5, 1))).toBe('2d0000803f')
  expect(new ProtoWriter().bytes(1, new Uint8Array(100_000)).finish()).toHaveLength(100_004)
})

it('makes models that ONNX Runtime runs, with free dimensions and every kind of attribute', async () => {
  const model = (): Uint8Array => {
    const g = new Graph()
    const x = g.input('x', 'float32', ['n', 2])
    const scaled = g.op('Mul', [x, g.scalar(3)])
    const turned = g.op('Transpose', [scaled], { perm: [1, 0] })
    g.output('product', g.contrib('FusedMatMul', [turned, x], { alpha: { float: 0.5 } }), 'float32', [2, 2])
    const parts = g.ops('Split', [x], 2, { axis: 1, num_outputs: 2 })
    g.output('second', g.reshape(parts[1]!, -1), 'float32', ['m'])
    return g.model()
  }
  const out = await sessions.run('test', model, { x: tensor(Float32Array.of(1, 2, 3, 4, 5, 6), [3, 2]) })
  expect([...floats(out, 'product')]).toEqual([52.5, 66, 66, 84])
  expect([...floats(out, 'second')]).toEqual([2, 4, 6])
})

it('says which graph failed', async () => {
  const model = (): Uint8Array => {
    const g = new Graph()
    g.output('y', g.op('NoSuchOperator', [g.input('x', 'float32', [1])]), 'float32', [1])
    return g.model()
  }
  await expect(sessions.run('broken', model, { x: tensor(Float32Array.of(1), [1]) })).rejects.toThrow(
    'running the broken graph',
  )
})
