// Caps on numbers that come from files. Each says what it stops and how far above real models it lies.

/** A manifest, index or config: 100,000 tensors take about 30 MB. safetensors caps its header at 100 MB too. */
export const MAX_JSON_BYTES = 128 * 1024 * 1024
/** Nesting: real configs stay under 10; recursive walkers overflow near 10,000. */
export const MAX_JSON_DEPTH = 64
/** Tensors in one model: the largest mixture-of-experts checkpoints have under 100,000. */
export const MAX_TENSORS = 2_000_000
/** Dimensions of one tensor: frameworks stop at 8 (ggml at 4). */
export const MAX_RANK = 16
/** Tensor names, metadata keys: real names stay under 200 characters. */
export const MAX_NAME_LENGTH = 4096
/** Shard files of one model: 1,000 shards of 1 GiB is a terabyte. */
export const MAX_SHARDS = 100_000
/** One read(2) transfers less than 2 GiB on Linux; reads go in steps of this. */
export const MAX_READ_BYTES = 1024 ** 3
