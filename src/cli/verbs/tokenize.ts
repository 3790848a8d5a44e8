// sluice tokenize: text to ids and back.
import type { Command } from 'commander'
import { InferenceError, ValidationError } from '../../base/errors.ts'
import { withModel } from '../model.ts'
import { idList, jsonOption } from '../options.ts'

interface TokenizeFlags {
  decode?: number[]
  special: boolean
  json?: boolean
}

async function tokenize(path: string, text: string | undefined, flags: TokenizeFlags): Promise<void> {
  if ((text === undefined) === (flags.decode === undefined))
    throw new ValidationError('USAGE', {
      what: 'give a text or --decode, one of the two',
      remedy: 'Example: sluice tokenize model.gguf "Once upon a time"',
    })
  await withModel(path, {}, async (model) => {
    const tokenizer = await model.tokenizer()
    if (tokenizer === undefined)
      throw new InferenceError('TOKENIZER_MISSING', { what: 'model has no tokenizer', where: path })
    if (flags.decode !== undefined) {
      const decoded = tokenizer.decode(flags.decode)
      console.log(flags.json ? JSON.stringify({ ids: flags.decode, text: decoded }) : decoded)
      return
    }
    const ids = tokenizer.encode(text!, { addSpecial: flags.special })
    if (flags.json) console.log(JSON.stringify({ text, ids, tokens: ids.map((id) => tokenizer.idToToken(id)) }))
    else console.log(ids.join(','))
  })
}

export function register(program: Command): void {
  program
    .command('tokenize')
    .description('turn text into token ids, or ids into text')
    .argument('<model>', 'package, safetensors directory, or GGUF')
    .argument('[text]', 'text to encode')
    .option('--decode <ids>', 'ids to decode', idList)
    .option('--no-special', 'add no BOS or EOS')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      '\nExamples:\n  sluice tokenize model.gguf "Once upon a time"\n  sluice tokenize model.gguf --decode 1,403,407',
    )
    .action(tokenize)
}
