import type { Command } from 'commander'
import { expect, test } from 'vitest'
import { wmrlProgram } from './program.ts'

/** A command and all below it, by the words that call it. */
const all = (c: Command, words = c.name()): [string, Command][] => [
  [words, c],
  ...c.commands.flatMap((s) => all(s, `${words} ${s.name()}`)),
]

function helpOf(c: Command): string {
  let text = ''
  c.configureOutput({ writeOut: (t) => (text += t) }).outputHelp()
  return text
}

test.each(all(wmrlProgram()))('the help of %s ends with an example', (words, c) => {
  // The groups too: theirs is what a newcomer sees first.
  expect(helpOf(c)).toMatch(/\nExample:\n {2}(wmrl|npm) /)
  expect(words).toMatch(/^wmrl/)
})

test('examples call the command that they stand under', () => {
  for (const [words, c] of all(wmrlProgram())) {
    const example = helpOf(c).split('\nExample:\n')[1] ?? ''
    if (words !== 'wmrl' && !example.includes('npm run')) expect(example).toContain(`  ${words}`)
  }
})
