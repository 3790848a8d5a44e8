// What a program opens: a model on disk as tensors, tokenizer and engine. No weight is read before it is asked for.
//
//   const model = await open('model.wia')
//   const norm = await model.tensor('model.norm.weight').astype('float32')
//   const engine = await model.engine({ memory: 2 * 1024 ** 3 })
//   for await (const event of model.generate(engine, { prompt: 'Once upon a time', maxTokens: 100 })) …
//   await engine.close(); await model.close()

import type { ArchOutput } from '../arch/arch.ts'
import { InferenceError } from '../base/errors.ts'
import { resolveArchitecture } from '../engine/architecture.ts'
import { createEngine, type EngineOptions } from '../engine/create.ts'
import type { Engine } from '../engine/engine.ts'
import { type Forecast, forecast } from '../engine/forecast.ts'
import { openModel } from '../format/open.ts'
import type { ModelReader } from '../format/reader.ts'
import { type GenerateEvent, generate } from '../generate/generate.ts'
import type { GenerateRequest } from '../generate/request.ts'
import { type AdapterOptions, type LoadedAdapter, loadAdapter } from '../lora/load.ts'
import type { IoMode } from '../source/source.ts'
import { type LazyTensor, openTensors } from '../tensor/lazy.ts'
import { loadTokenizer } from '../text/load.ts'
import type { Tokenizer } from '../text/tokenizer.ts'

export interface OpenOptions {
  /** How files are read by tensor access (default 'auto'). The engine has its own choice. */
  readonly ioMode?: 'auto' | IoMode
  /** eager: every page's SHA-256 now; lazy: on first touch; off: never. Packages only. */
  readonly verify?: 'eager' | 'lazy' | 'off'
  /** Bulk reads forget the page cache they filled, which a memory cgroup charges to this process. Default false. */
  readonly dropBehind?: boolean
}

export class Model {
  readonly reader: ModelReader
  readonly #tensors: ReturnType<typeof openTensors>
  readonly #adapters: LoadedAdapter[] = []
  #architecture: ArchOutput | undefined
  #tokenizer: Promise<Tokenizer | undefined> | undefined

  constructor(reader: ModelReader, options: OpenOptions) {
    this.reader = reader
    this.#tensors = openTensors(reader, { verify: options.verify === 'off' ? 'off' : 'lazy' })
  }

  /** Names in storage order. */
  get tensorNames(): string[] {
    return [...this.reader.tensors.keys()]
  }

  /** A lazy tensor. Throws TENSOR_NOT_FOUND. */
  tensor(name: string): LazyTensor {
    return this.#tensors.get(name)
  }

  /** The model's graph and the tensors its weights are stored in. Throws when the model cannot be run. */
  architecture(): ArchOutput {
    this.#architecture ??= resolveArchitecture(this.reader)
    return this.#architecture
  }

  /** undefined when the model has none. */
  tokenizer(): Promise<Tokenizer | undefined> {
    const loading = this.#tokenizer ?? loadTokenizer(this.reader)
    this.#tokenizer = loading
    return loading
  }

  /** Reads and matches an adapter: a PEFT directory, or the name of one packaged with the model. Its file is closed with the model. */
  async adapter(path: string, options: AdapterOptions = {}): Promise<LoadedAdapter> {
    const packaged = this.reader.adapters.find((a) => a.name === path)
    await packaged?.check?.() // an adapter is read whole anyway; later reads have no checksums of their own
    const adapter = await loadAdapter(packaged?.path ?? path, this.architecture().graph, options)
    this.#adapters.push(adapter)
    return adapter
  }

  /** What a budget would mean, without reading a weight. Throws BUDGET_TOO_SMALL. */
  plan(options: EngineOptions = {}): Forecast {
    return forecast(this.reader, this.architecture(), options)
  }

  /** Starts an engine within a memory budget. Close it when done. */
  engine(options: EngineOptions = {}): Promise<Engine> {
    return createEngine(this.reader, this.architecture(), options)
  }

  /** Text or ids in, events out. One sequence of the engine is used and released. */
  async *generate(engine: Engine, request: GenerateRequest): AsyncGenerator<GenerateEvent> {
    const tokenizer = await this.tokenizer()
    if (tokenizer === undefined && request.prompt !== undefined)
      throw new InferenceError('TOKENIZER_MISSING', {
        what: 'model has no tokenizer',
        where: this.reader.path,
        remedy: 'Give token ids instead of text.',
      })
    const sequence = engine.createSequence()
    try {
      yield* generate(sequence, tokenizer, { contextLength: engine.contextLength, ...request })
    } finally {
      sequence.release()
    }
  }

  async close(): Promise<void> {
    await Promise.all(this.#adapters.splice(0).map((a) => a.reader.close()))
    await this.reader.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/**
 * Opens a package, a safetensors file or directory, or a GGUF: reads its index and nothing else.
 * Throws FORMAT_*, JSON_INVALID, PATH_FORBIDDEN, SOURCE_*, CHECKSUM_MISMATCH (eager).
 */
export async function open(path: string, options: OpenOptions = {}): Promise<Model> {
  const { ioMode = 'auto', verify = 'lazy', dropBehind = false } = options
  return new Model(await openModel(path, { mode: ioMode, verify, dropBehind }), options)
}
