// The standard's names (WIA-AI-014, "API") over Model: a thin face. What is not here yet throws NOT_IMPLEMENTED by name.

import { ValidationError } from '../base/errors.ts'
import type { JsonObject } from '../base/json.ts'
import type { Engine } from '../engine/engine.ts'
import type { ValueInfo } from '../graph/graph.ts'
import { type Model, type ModelEngineOptions, type OpenOptions, open } from './model.ts'

/** A tensor as the standard names its parts. */
export interface WIATensor {
  readonly name: string
  /** Slowest axis first. */
  readonly shape: readonly number[]
  readonly dtype: 'float32'
  readonly data: Float32Array
}

/** Model of the standard: load, save, run, getMetadata, getInputs, getOutputs. */
export class WIAModel {
  /** The model behind this face. */
  readonly model: Model
  #engine: Promise<Engine> | undefined

  private constructor(model: Model) {
    this.model = model
  }

  /** Opens a model; see `open` for what it throws. */
  static async load(path: string, options: OpenOptions = {}): Promise<WIAModel> {
    return new WIAModel(await open(path, options))
  }

  /** Model metadata: model_name, version, license and what else the format has. */
  getMetadata(): JsonObject {
    return this.model.reader.metadata
  }

  /** Inputs of the graph: name, dtype and shape, symbolic dimensions by name. Throws as Model.architecture. */
  getInputs(): readonly ValueInfo[] {
    return this.model.architecture().graph.inputs
  }

  /** Outputs of the graph. Throws as Model.architecture. */
  getOutputs(): readonly ValueInfo[] {
    return this.model.architecture().graph.outputs
  }

  /**
   * One text through the model: token ids in, the logits of every token out, float32 [tokens, vocabulary]. The engine starts with the
   * first call, in `exact` precision, and `options` count then. Throws REQUEST_INVALID, BUDGET_TOO_SMALL and what `Model.engine` throws.
   */
  async run(
    inputs: { readonly input_ids: ArrayLike<number> },
    options: ModelEngineOptions & { readonly signal?: AbortSignal } = {},
  ): Promise<{ logits: WIATensor }> {
    const unknown = Object.keys(inputs).find((name) => name !== 'input_ids')
    if (unknown !== undefined || inputs.input_ids === undefined)
      throw new ValidationError('REQUEST_INVALID', {
        what: 'inputs are not those of the model',
        expected: 'input_ids (positions follow from them)',
        got: Object.keys(inputs),
      })
    const { signal, ...engineOptions } = options
    this.#engine ??= this.model.engine({ precision: 'exact', ...engineOptions })
    const engine = await this.#engine.catch((err: unknown) => {
      this.#engine = undefined // a larger budget may be tried
      throw err
    })
    const ids = Array.from(inputs.input_ids)
    const sequence = engine.createSequence()
    try {
      const data = await sequence.forward(ids, { logits: 'all', ...(signal && { signal }) })
      return { logits: { name: 'logits', shape: [ids.length, engine.vocabulary], dtype: 'float32', data } }
    } finally {
      sequence.release()
    }
  }

  /** Writes the model as a package to `path`, every number as it is. Throws as `convert`. */
  async save(path: string, options: { readonly force?: boolean } = {}): Promise<void> {
    const { convertToWia } = await import('../convert/convert.ts')
    await convertToWia(this.model.reader, this.model.architecture(), path, options)
  }

  /** Ends the engine and closes the files. */
  async dispose(): Promise<void> {
    const engine = await this.#engine?.catch(() => undefined)
    await engine?.close()
    await this.model.close()
  }
}
