/** Runs one untrusted program on this machine and says how it ended. See docs/architecture/sandbox.md. */

export { benchSandbox, type SandboxBench, type SandboxBenchRow } from './bench.ts'
export * from './contract.ts'
export { openSandbox } from './open.ts'
export { type FeatureCheck, probeRungs, promises, type RungReport } from './probe.ts'
