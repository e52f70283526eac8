#!/usr/bin/env node
import { report } from './command.ts'
import { wmrlProgram } from './program.ts'

try {
  await wmrlProgram().parseAsync()
} catch (e) {
  process.exitCode = report(e)
}
