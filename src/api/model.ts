// What a program opens: a model on disk as tensors, tokenizer and engine. No weight is read before it is asked for, and no code that
// runs models is loaded before one is run.
//
//   const model = await open('model.wia')
//   const norm = await model.tensor('model.norm.weight').astype('float32')
//   const engine = await model.engine({ memory: '2GiB' })
//   for await (const event of model.generate(engine, { prompt: 'Once upon a time', maxTokens: 100 })) …
//   await engine.close(); await model.close()

import type { ArchOutput } from '../arch/arch.ts'
import { parseBytes } from '../base/bytes.ts'
import { InferenceError, ValidationError } from '../base/errors.ts'
import { resolveArchitecture } from '../engine/architecture.ts'
import type { EngineOptions } from '../engine/create.ts'
import type { Engine } from '../engine/engine.ts'
import type { Forecast } from '../engine/forecast.ts'
import { openModel } from '../format/open.ts'
import type { ModelReader } from '../format/reader.ts'
import type { GenerateEvent } from '../generate/generate.ts'
import type { GenerateRequest } from '../generate/request.ts'
import type { AdapterOptions, LoadedAdapter } from '../lora/load.ts'
import type { IoMode } from '../source/source.ts'
import { type LazyTensor, openTensors } from '../tensor/lazy.ts'
import type { Tokenizer } from '../text/tokenizer.ts'

/** How a model is opened. */
export interface OpenOptions {
  /** How files are read by tensor access (default 'auto'). The engine has its own choice. */
  readonly ioMode?: 'auto' | IoMode
  /** eager: every page's SHA-256 now; lazy (default): on first touch; off: never. Packages only; other formats have no checksums. */
  readonly verify?: 'eager' | 'lazy' | 'off'
  /** Bulk reads forget the page cache they filled, which a memory cgroup charges to this process. Default false. */
  readonly dropBehind?: boolean
  /** Ends an eager check. */
  readonly signal?: AbortSignal
}

/** EngineOptions with amounts of memory as bytes or as people write them: 2147483648, '2GiB', '600MB'. */
export interface ModelEngineOptions extends Omit<EngineOptions, 'memory' | 'weightMemory'> {
  /** For the whole process, page cache included. Default: what the machine and its control group allow, less a reserve. */
  readonly memory?: number | string
  /** Cap on resident weight pages alone, for experiments. */
  readonly weightMemory?: number | string
}

/** An adapter that was read, matched with its model, and given a scale: what `engine({ adapters })` takes. */
export interface ScaledAdapter extends LoadedAdapter {
  /** Factor on top of the adapter's own alpha/r. */
  readonly scale: number
}

/** An open model. Made by `open`. */
export class Model {
  /** The index behind it all: tensors, configuration, metadata, sources. */
  readonly reader: ModelReader
  readonly #tensors: ReturnType<typeof openTensors>
  readonly #adapters: LoadedAdapter[] = []
  #architecture: ArchOutput | undefined
  #tokenizer: Promise<Tokenizer | undefined> | undefined

  constructor(reader: ModelReader, options: Pick<OpenOptions, 'verify'> = {}) {
    this.reader = reader
    this.#tensors = openTensors(reader, { verify: options.verify === 'off' ? 'off' : 'lazy' })
  }

  /** Names in storage order. */
  get tensorNames(): string[] {
    return [...this.reader.tensors.keys()]
  }

  /** A lazy tensor: shape and type now, bytes when asked for. Throws TENSOR_NOT_FOUND. */
  tensor(name: string): LazyTensor {
    return this.#tensors.get(name)
  }

  /**
   * The model's graph, the tensors its weights are stored in, and warnings a person should see.
   * Throws ARCH_UNSUPPORTED, CONFIG_INVALID, GRAPH_INVALID, OP_UNSUPPORTED, TENSOR_MISSING, TENSOR_UNEXPECTED, TENSOR_SHAPE.
   */
  architecture(): ArchOutput {
    this.#architecture ??= resolveArchitecture(this.reader)
    return this.#architecture
  }

  /** undefined when the model has none. Throws TOKENIZER_UNSUPPORTED, FORMAT_INVALID, JSON_INVALID. */
  tokenizer(): Promise<Tokenizer | undefined> {
    this.#tokenizer ??= import('../text/load.ts').then(({ loadTokenizer }) => loadTokenizer(this.reader))
    return this.#tokenizer
  }

  /**
   * Reads a LoRA adapter and matches it with the model: a PEFT directory, or the name of one packaged with the model. It stays open until
   * the model is closed. Throws ADAPTER_INVALID, ADAPTER_UNSUPPORTED, ADAPTER_NO_MATCH, ADAPTER_PARTIAL, SOURCE_IO, FORMAT_*.
   */
  async adapter(path: string, options: AdapterOptions & { readonly scale?: number } = {}): Promise<ScaledAdapter> {
    const { scale = 1, ...rest } = options
    const packaged = this.reader.adapters.find((a) => a.name === path)
    await packaged?.check?.() // an adapter is read whole anyway; later reads have no checksums of their own
    const { loadAdapter } = await import('../lora/load.ts')
    const adapter = await loadAdapter(packaged?.path ?? path, this.architecture().graph, {
      packaged: this.reader.adapters.map((a) => a.name),
      ...rest,
    })
    this.#adapters.push(adapter)
    return { ...adapter, scale }
  }

  /** What a budget would mean, computed as `engine` does and reading no weight. Throws BUDGET_TOO_SMALL with the smallest that works, REQUEST_INVALID. */
  async plan(options: ModelEngineOptions = {}): Promise<Forecast> {
    const { forecast } = await import('../engine/forecast.ts')
    return forecast(this.reader, this.architecture(), inBytes(options))
  }

  /**
   * Starts an engine within a memory budget. Close it before the model.
   * Throws BUDGET_TOO_SMALL, ARCH_UNSUPPORTED, TENSOR_*, QUANT_UNSUPPORTED, SOURCE_MODE, KERNEL_UNAVAILABLE, REQUEST_INVALID.
   */
  async engine(options: ModelEngineOptions = {}): Promise<Engine> {
    const { createEngine } = await import('../engine/create.ts')
    return createEngine(this.reader, this.architecture(), inBytes(options))
  }

  /**
   * Text or ids in, events out: a `token` each, then `usage`, then `end`; the text is the `text` of all events joined. One sequence of
   * the engine is used and released, also when the loop is left early.
   * Throws REQUEST_INVALID, TOKENIZER_MISSING, CONTEXT_FULL, LOGITS_INVALID, ABORTED, SOURCE_*, CHECKSUM_MISMATCH.
   */
  async *generate(engine: Engine, request: GenerateRequest): AsyncGenerator<GenerateEvent, void, undefined> {
    const tokenizer = await this.tokenizer()
    if (tokenizer === undefined && request.prompt !== undefined)
      throw new InferenceError('TOKENIZER_MISSING', {
        what: 'model has no tokenizer',
        where: this.reader.path,
        remedy: 'Give token ids instead of text.',
      })
    const { generate } = await import('../generate/generate.ts')
    const sequence = engine.createSequence()
    try {
      yield* generate(sequence, tokenizer, { contextLength: engine.contextLength, ...request })
    } finally {
      sequence.release()
    }
  }

  /** Closes the files. Tensors and adapters end with it. Safe to call twice. */
  async close(): Promise<void> {
    await Promise.all(this.#adapters.splice(0).map((a) => a.reader.close()))
    await this.reader.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

function inBytes(options: ModelEngineOptions): EngineOptions {
  const { memory, weightMemory, ...rest } = options
  return {
    ...rest,
    ...(memory === undefined ? {} : { memory: parseBytes(memory, 'memory') }),
    ...(weightMemory === undefined ? {} : { weightMemory: parseBytes(weightMemory, 'weightMemory') }),
  }
}

/**
 * Opens a package, a safetensors file or directory, or a GGUF: reads its index and nothing else (with `verify: 'eager'`, every page).
 * Throws FORMAT_*, JSON_INVALID, PATH_FORBIDDEN, SOURCE_*, CHECKSUM_MISMATCH (eager), ABORTED.
 */
export async function open(path: string, options: OpenOptions = {}): Promise<Model> {
  if (typeof path !== 'string' || path === '')
    throw new ValidationError('REQUEST_INVALID', {
      what: 'a model is opened by its path',
      expected: 'a text',
      got: typeof path,
    })
  const { ioMode = 'auto', verify = 'lazy', dropBehind = false, signal } = options
  const reader = await openModel(path, { mode: ioMode, verify, dropBehind, ...(signal && { signal }) })
  return new Model(reader, { verify })
}
