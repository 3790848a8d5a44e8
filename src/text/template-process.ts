// Renders one chat template and exits: a program of its own (see template.ts), because a template that runs out of memory takes down
// the whole process it runs in. Request on stdin, answer on stdout, both JSON.
import { Template } from '@huggingface/jinja'

interface Request {
  template: string
  variables: Record<string, unknown>
  /** Characters. */
  maxLength: number
}

// The time limit of the caller counts from here: starting Node is not the template's fault.
process.stdout.write('\n')

let input = ''
process.stdin.setEncoding('utf8')
process.stdin.on('data', (chunk: string) => {
  input += chunk
})
process.stdin.on('end', () => {
  process.stdout.write(JSON.stringify(render(JSON.parse(input) as Request)))
})

function render({ template, variables, maxLength }: Request): { text: string } | { error: string } {
  try {
    const text = new Template(template).render(variables)
    if (text.length > maxLength) return { error: `the text has ${text.length} characters, more than ${maxLength}` }
    return { text }
  } catch (error) {
    return { error: error instanceof Error ? error.message : String(error) }
  }
}
