import { type AdvantageKind, GROUP_CONSTANTS, type GroupConstants } from './advantages.ts'
import type { FitOptions } from './calibration.ts'
import { RELIABILITY_BETA } from './reliability.ts'

export const METHOD_MODES = ['paper', 'recommended', 'anchors-only', 'predicted-only', 'executed-only'] as const
export type MethodMode = (typeof METHOD_MODES)[number]

/** Every constant of the correction. `defaultsOf(mode)` gives the values that the paper or method.md section 3 names. */
export interface MethodConfig extends GroupConstants {
  readonly mode: MethodMode
  readonly advantage: AdvantageKind
  readonly anchors: { readonly share: number }
  readonly calibration: {
    readonly kind: 'identity' | FitOptions['kind']
    readonly bins: number
    readonly binning: FitOptions['binning']
    readonly prior: number
    /** Pairs before the first fit. */
    readonly from: number
    /** New pairs before a refit. */
    readonly every: number
    /** Pairs kept. */
    readonly window: number
    /** A step's own pairs enter the map before (paper) or after (recommended) it is applied. */
    readonly order: 'push-first' | 'apply-first'
  }
  readonly weights: {
    readonly kind: 'none' | 'ivd' | 'release'
    readonly halfLife: number
    readonly warmup: number
    readonly max: number
  }
  /** Weight of the anchors' correction; 0 in the paper's mode, where anchors simply enter with their executed rewards. */
  readonly lambda: number
  readonly alarms: {
    readonly reliability: number
    readonly reliabilitySteps: number
    /** What the running sums behind the reliability keep of themselves an anchor group. */
    readonly reliabilityBeta: number
    readonly noAnchorSteps: number
    readonly tieShare: number
  }
}

const ALARMS = {
  reliability: 0.08,
  reliabilitySteps: 10,
  reliabilityBeta: RELIABILITY_BETA,
  noAnchorSteps: 5,
  tieShare: 0.3,
} as const
const NO_CALIBRATION = {
  kind: 'identity',
  bins: 10,
  binning: 'equal_mass',
  prior: 0,
  from: 1,
  every: 1,
  window: 5000,
  order: 'apply-first',
} as const
const NO_WEIGHTS = { kind: 'none', halfLife: 64, warmup: 32, max: 4 } as const

export function defaultsOf(mode: MethodMode): MethodConfig {
  switch (mode) {
    case 'paper':
      return {
        mode,
        ...GROUP_CONSTANTS,
        advantage: 'std',
        anchors: { share: 0.1 },
        calibration: {
          kind: 'isotonic',
          bins: 10,
          binning: 'equal_width',
          prior: 0,
          from: 200,
          every: 64,
          window: 5000,
          order: 'push-first',
        },
        weights: { kind: 'ivd', halfLife: 64, warmup: 32, max: 4 },
        lambda: 0,
        alarms: ALARMS,
      }
    case 'recommended':
      return {
        mode,
        ...GROUP_CONSTANTS,
        advantage: 'center',
        anchors: { share: 0.125 },
        calibration: {
          kind: 'isotonic',
          bins: 10,
          binning: 'equal_mass',
          prior: 4,
          from: 16,
          every: 32,
          window: 5000,
          order: 'apply-first',
        },
        weights: NO_WEIGHTS,
        lambda: 0.5,
        alarms: ALARMS,
      }
    case 'anchors-only':
      return {
        mode,
        ...GROUP_CONSTANTS,
        advantage: 'center',
        anchors: { share: 0.125 },
        calibration: NO_CALIBRATION,
        weights: NO_WEIGHTS,
        lambda: 1,
        alarms: ALARMS,
      }
    case 'predicted-only':
      return {
        mode,
        ...GROUP_CONSTANTS,
        advantage: 'center',
        anchors: { share: 0 },
        calibration: NO_CALIBRATION,
        weights: NO_WEIGHTS,
        lambda: 0,
        alarms: ALARMS,
      }
    case 'executed-only':
      return {
        mode,
        ...GROUP_CONSTANTS,
        advantage: 'center',
        anchors: { share: 1 },
        calibration: NO_CALIBRATION,
        weights: NO_WEIGHTS,
        lambda: 0,
        alarms: ALARMS,
      }
  }
}

/** Groups to execute among B, and whether the other groups are sampled at all. */
export function usesPredictions(mode: MethodMode): boolean {
  return mode === 'paper' || mode === 'recommended' || mode === 'predicted-only'
}
