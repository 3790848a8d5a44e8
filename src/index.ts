// Entry point for Node: open a model, read tensors, run it within a memory budget, convert it.

export { type ConvertModelOptions, convert } from './api/convert.ts'
export {
  Model,
  type ModelEngineOptions,
  type OpenOptions,
  open,
  type ScaledAdapter,
} from './api/model.ts'
export { WIAModel, type WIATensor } from './api/wiamodel.ts'
export type { ArchOutput } from './arch/arch.ts'
export { formatBytes, parseBytes } from './base/bytes.ts'
export type { DType } from './base/dtype.ts'
export {
  BudgetError,
  ConversionError,
  ERROR_CODES,
  type ErrorCode,
  InferenceError,
  isSluiceError,
  ModelFormatError,
  SluiceError,
  SourceError,
  ValidationError,
} from './base/errors.ts'
export { CHANNELS, type ProgressEvent } from './base/events.ts'
export type { JsonObject, JsonValue } from './base/json.ts'
export type { ConversionReport, TensorReport } from './convert/convert.ts'
export { QUANTIZATIONS, type Quantization } from './convert/policy.ts'
export type { AttachedAdapter } from './engine/adapters.ts'
export type { EngineOptions } from './engine/create.ts'
export type { Engine, EngineReport, ForwardOptions, Precision, Sequence } from './engine/engine.ts'
export type { Forecast } from './engine/forecast.ts'
export type { ModelReader, PackagedAdapter, TensorEntry } from './format/reader.ts'
export { collect, type Generation } from './generate/collect.ts'
export type { FinishReason, GenerateEvent, TokenEvent, Usage } from './generate/generate.ts'
export type { GenerateRequest } from './generate/request.ts'
export type { Graph, ValueInfo } from './graph/graph.ts'
export type { MatchReport } from './lora/adapter.ts'
export type { AdapterOptions, LoadedAdapter } from './lora/load.ts'
export type { PagerPlan, PagerReport } from './pager/pager.ts'
export type { Encoding } from './quant/scheme.ts'
export type { SamplingOptions } from './sample/options.ts'
export type { ByteSource, IoMode } from './source/source.ts'
export type { TensorArray } from './tensor/array.ts'
export type { LazyTensor, TensorChunk } from './tensor/lazy.ts'
export type { Tokenizer } from './text/tokenizer.ts'
