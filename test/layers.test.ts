// Imports point down the written list of layers (scripts/layers.json).
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { expect, test } from 'vitest'

const root = resolve(import.meta.dirname, '..')
const layers = JSON.parse(readFileSync(join(root, 'scripts/layers.json'), 'utf8')) as Record<string, string[]>
const src = join(root, 'src')

const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((f) => f.endsWith('.ts'))

test('every folder of src is a layer and every layer names known layers', () => {
  const folders = new Set(files.filter((f) => f.includes('/')).map((f) => f.split('/')[0]))
  for (const f of folders) expect(layers, `folder src/${f}`).toHaveProperty(f!)
  for (const [name, below] of Object.entries(layers))
    for (const b of below) expect(layers, `${name} → ${b}`).toHaveProperty(b)
})

test('no import points up', () => {
  const upward: string[] = []
  for (const file of files) {
    if (!file.includes('/')) continue // entry points may import everything
    const from = file.split('/')[0]!
    const text = readFileSync(join(src, file), 'utf8')
    for (const m of text.matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)) {
      const target = relative(src, resolve(dirname(join(src, file)), m[1]!))
      const to = target.split('/')[0]!
      if (to !== from && !layers[from]!.includes(to)) upward.push(`${file} → ${target}`)
    }
  }
  expect(upward).toEqual([])
})

test('hand-written files stay under 400 lines', () => {
  const long = files.filter((f) => readFileSync(join(src, f), 'utf8').split('\n').length > 400)
  expect(long).toEqual([])
})
