// Makes the conformance vectors: packages, valid and broken, with verdicts. Plain JavaScript that shares nothing with src/: a second
// reading of docs/FORMAT.md. Run `node test/conformance/make.mjs` in the repository; the output is committed and does not change.
import { createHash } from 'node:crypto'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const HERE = import.meta.dirname
const verdicts = []

const sha = (bytes) => createHash('sha256').update(bytes).digest('hex')
const canonical = (v) =>
  Array.isArray(v)
    ? `[${v.map(canonical).join(',')}]`
    : v !== null && typeof v === 'object'
      ? `{${Object.keys(v).sort().map((k) => `${JSON.stringify(k)}:${canonical(v[k])}`).join(',')}}`
      : JSON.stringify(v)
const bytesOf = (seed, n) => Buffer.from(Array.from({ length: n }, (_, i) => (seed * 31 + i * 7 + ((i * i) >> 3)) & 255))

const SIZE = { float64: 8, float32: 4, float16: 2, bfloat16: 2, int64: 8, int32: 4, int16: 2, int8: 1, uint8: 1, bool: 1, complex64: 8, uint16: 2, uint32: 4, uint64: 8, float8_e4m3: 1, float8_e5m2: 1 }

/** A tensor to be placed: [name, fields, bytes]. */
const plain = (name, dtype, shape, extra = {}) => {
  const n = shape.reduce((a, b) => a * b, 1) * SIZE[dtype]
  const bytes = dtype === 'bool' ? Buffer.from(Array.from({ length: n }, (_, i) => i & 1)) : bytesOf(name.length + shape.length, n)
  return [name, { dtype, shape, ...extra }, bytes]
}

/** Places tensors one after the other in one shard, with pages (one a tensor) unless `pages` is false. */
function base(tensors = [plain('a', 'float32', [3, 4])], { pages = true } = {}) {
  const m = { format_version: '1.0.0', model_name: 'vector', version: '1.0.0', files: {}, shards: [], tensors: {} }
  const files = {}
  const parts = []
  const hashes = []
  let at = 0
  for (const [name, fields, bytes] of tensors) {
    const align = bytes.length >= 65536 ? 4096 : 64
    const pad = (align - (at % align)) % align
    parts.push(Buffer.alloc(pad), bytes)
    at += pad
    const rows = fields.shape.length === 0 ? 1 : fields.shape.slice(0, -1).reduce((a, b) => a * b, 1)
    const t = { ...fields, shard: 0, offset: at, length: bytes.length, checksum: `sha256:${sha(bytes)}` }
    if (pages) Object.assign(t, { page_first: hashes.length, page_rows: Math.ceil(rows / 16) * 16 })
    hashes.push(Buffer.from(sha(bytes), 'hex'))
    Object.defineProperty(m.tensors, name, { value: t, enumerable: true, writable: true, configurable: true })
    at += bytes.length
  }
  if (tensors.length > 0) {
    files['weights/model-00000.bin'] = Buffer.concat(parts)
    m.shards.push({ file: 'weights/model-00000.bin', bytes: at })
    if (pages) {
      const table = Buffer.concat(hashes)
      files['weights/pages.sha256'] = table
      m.pages = { file: 'weights/pages.sha256', count: hashes.length, sha256: sha(table) }
    }
  }
  return { m, files, a: m.tensors.a }
}

/** A side file that is listed. */
function side(p, path, content) {
  p.files[path] = Buffer.from(content)
  p.m.files[path] = { bytes: p.files[path].length, sha256: sha(p.files[path]) }
}

function emit(path, p) {
  const root = join(HERE, path)
  const all = { ...p.files }
  if (p.manifest !== undefined) all['manifest.json'] = p.manifest
  else if (p.m !== undefined) all['manifest.json'] = Buffer.from(canonical(p.m))
  for (const [file, bytes] of Object.entries(all)) {
    mkdirSync(dirname(join(root, file)), { recursive: true })
    writeFileSync(join(root, file), bytes)
  }
}

function accept(name, why, p, open = '') {
  emit(`valid/${name}`, p)
  verdicts.push({ path: `valid/${name}${open}`, verdict: 'accept', why, ...(p.values ? { values: p.values } : {}) })
}

/** `verify`: the mode in which it must be refused; every mode when not given. */
function refuse(name, code, why, make, { verify, open = '' } = {}) {
  const p = base()
  const made = make(p) ?? p
  emit(`invalid/${name}`, made)
  verdicts.push({ path: `invalid/${name}${open}`, verdict: 'refuse', code, why, ...(verify ? { verify } : {}) })
}

rmSync(join(HERE, 'valid'), { recursive: true, force: true })
rmSync(join(HERE, 'invalid'), { recursive: true, force: true })

// ---- valid ----------------------------------------------------------------------------------------------------------------
accept('minimal', 'one tensor, one shard, pages', base())
accept('by-manifest', 'opened by its manifest.json', base(), '/manifest.json')
accept('no-pages', 'pages are optional', base(undefined, { pages: false }))
accept('no-tensors', 'an index may be empty', base([]))
const ten = ['float32', 'float16', 'bfloat16', 'int64', 'int32', 'int16', 'int8', 'uint8', 'bool', 'complex64']
accept('ten-dtypes', 'the ten element types of the standard', base(ten.map((d) => plain(d, d, [2, 3]))))
{
  const p = base(['float64', 'uint16', 'uint32', 'uint64', 'float8_e4m3', 'float8_e5m2'].map((d) => plain(d, d, [2, 3])))
  p.m.extensionsUsed = p.m.extensionsRequired = ['wia.extra_dtypes']
  accept('extra-dtypes', 'six more types under wia.extra_dtypes', p)
}
{
  const p = base()
  p.m.format_version = '1.7'
  p.m.invented_later = { any: 1 }
  accept('newer-minor', 'a higher minor version may have optional top-level keys', p)
}
{
  const p = base()
  p.m.extensionsUsed = ['com.example.unknown']
  p.m.extensions = { 'com.example.unknown': { a: [1] } }
  accept('unknown-optional-extension', 'an extension that is not required is ignored', p)
}
{
  const { m, files } = base()
  const { model_name: _, version: __, ...rest } = m
  accept('other-spellings', 'metadata keys of the other texts of the standard', {
    m: { ...rest, modelName: 'vector', modelVersion: '2.1.0-rc.1', frameworkVersion: '2', createdAt: '2026-01-02T03:04:05Z', inputShape: ['n', 3], licence: 'MIT' },
    files,
  })
}
{
  const p = base()
  p.manifest = Buffer.from(JSON.stringify(p.m, null, 2))
  accept('pretty-manifest', 'readers accept any form of JSON', p)
}
accept('proto-name', 'names of JavaScript are names', base([plain('__proto__', 'float32', [2]), plain('constructor', 'float32', [2])]))
accept('scalar', 'a scalar has shape []', base([plain('s', 'float32', [])]))
{
  const p = base()
  p.m.tensors.empty = { dtype: 'float32', shape: [0, 4], inline: '', checksum: `sha256:${sha('')}` }
  p.m.tensors.constant = { dtype: 'int32', shape: [2], inline: Buffer.from([1, 0, 0, 0, 255, 255, 255, 255]).toString('base64'), checksum: `sha256:${sha(Buffer.from([1, 0, 0, 0, 255, 255, 255, 255]))}` }
  accept('inline', 'constants in the index; a tensor without elements', p)
}
{
  const p = base()
  p.m.tensors.tied = { dtype: 'float32', shape: [3, 4], alias: 'a' }
  accept('alias', 'tied weights', p)
}
accept('strides', 'a transposed tensor and one with padded rows', base([
  plain('transposed', 'float32', [3, 4], { strides: [1, 3] }),
  ['padded', { dtype: 'int16', shape: [3, 4], strides: [6, 1] }, bytesOf(1, (1 + 2 * 6 + 3) * 2)],
]))
accept('layouts', 'channels-last, nd-hwc, packed-int8', base([
  plain('cl', 'float32', [1, 2, 3, 2], { layout: 'channels-last' }),
  plain('hwc', 'float32', [3, 2, 2], { layout: 'nd-hwc' }),
  plain('p8', 'int8', [4, 4], { layout: 'packed-int8' }),
  plain('rm', 'int8', [4, 4], { layout: 'row-major' }),
]))
const QUANTIZATION = { scheme: 'LINEAR', weightDtype: 'int8', activationDtype: 'float32', biasDtype: 'float32', perChannel: true, axis: 0, calibrationDataset: null, calibrationSamples: 0, outlierClipping: null }
{
  const p = base([
    plain('t', 'int8', [2, 3], { quant: { scheme: 'LINEAR', scale: 0.5, zero_point: -3 } }),
    plain('c', 'uint8', [2, 3], { quant: { scheme: 'LINEAR', scales: [0.5, 2], zero_points: [0, 255], channel_dim: 0 } }),
  ])
  p.m.quantization = QUANTIZATION
  accept('linear', 'the quantization of the standard, per tensor and per channel', p)
}
{
  const p = base()
  side(p, 'architecture.json', '{"nodes":[]}')
  side(p, 'config/model.json', '{"hidden_size":4}')
  side(p, 'metadata/license.txt', 'MIT')
  side(p, 'tokenizer/tokenizer.json', '{}')
  side(p, 'adapters/one/adapter_config.json', '{"r":4}')
  p.files['README.md'] = Buffer.from('not listed, ignored')
  p.m.shards[0].sha256 = sha(p.files['weights/model-00000.bin'])
  accept('side-files', 'files of every folder; one that is not listed', p)
}
{
  const rows = 40
  const bytes = bytesOf(5, rows * 8)
  const p = base([])
  const cut = [bytes.subarray(0, 16 * 8), bytes.subarray(16 * 8, 32 * 8), bytes.subarray(32 * 8)]
  p.m.shards = [
    { file: 'weights/a.bin', bytes: 4096 + 128 },
    { file: 'weights/b.bin', bytes: 128 },
  ]
  p.files['weights/a.bin'] = Buffer.concat([cut[0], Buffer.alloc(4096 - 128), cut[1]])
  p.files['weights/b.bin'] = Buffer.concat([cut[2], Buffer.alloc(64)])
  p.m.tensors.split = {
    dtype: 'float32', shape: [rows, 2], length: bytes.length, checksum: `sha256:${sha(bytes)}`, page_first: 0, page_rows: 16,
    segments: [
      { shard: 0, offset: 0, length: 128, rows: 16 },
      { shard: 0, offset: 4096, length: 128, rows: 16 },
      { shard: 1, offset: 0, length: 64, rows: 8 },
    ],
  }
  const table = Buffer.concat(cut.map((c) => Buffer.from(sha(c), 'hex')))
  p.files['weights/pages.sha256'] = table
  p.m.pages = { file: 'weights/pages.sha256', count: 3, sha256: sha(table) }
  accept('segments', 'a tensor over two shards, a page in each segment', p)
}

// Block quantization, encoded by hand: 3 rows × 40 columns, block 32, so there are missing rows and columns.
const NF4 = [-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1]
const fp8 = (code, mantissa, bias) => {
  const e = (code & 127) >> mantissa
  const f = (code & ((1 << mantissa) - 1)) / (1 << mantissa)
  return (code & 128 ? -1 : 1) * (e === 0 ? f * 2 ** (1 - bias) : (1 + f) * 2 ** (e - bias))
}
const SCHEMES = {
  int8: { bits: 8, zero: 0, code: (c) => (c > 127 ? c - 256 : c), pick: (i) => [0, 1, 127, 129, 255, 64][i % 6] },
  int4: { bits: 4, zero: 8, code: (c) => c - 8, pick: (i) => (i * 5) % 16 },
  int4m: { bits: 4, zero: 0, min: true, code: (c) => c, pick: (i) => (i * 7) % 16 },
  nf4: { bits: 4, zero: 7, code: (c) => NF4[c], pick: (i) => (i * 3) % 16 },
  fp8_e4m3: { bits: 8, zero: 0, code: (c) => fp8(c, 3, 7), pick: (i) => [0x38, 0x7e, 0xfe, 0x01, 0x80, 0x47][i % 6] },
  fp8_e5m2: { bits: 8, zero: 0, code: (c) => fp8(c, 2, 15), pick: (i) => [0x3c, 0x7b, 0xfb, 0x01, 0x80, 0x45][i % 6] },
}
const F16 = { 0: 0x0000, 0.5: 0x3800, 1: 0x3c00, 1.5: 0x3e00, '-1': 0xbc00, '-2': 0xc000, 0.25: 0x3400 }
function panel(name, scheme, scale, exponent) {
  const { bits, zero, min, code, pick } = SCHEMES[scheme]
  const [rows, cols, block] = [3, 40, 32]
  const out = []
  const values = []
  const scales = [0.5, 1.5, 0.25]
  const minima = [-1, 0.5, -2]
  const number = (x) => {
    const b = Buffer.alloc(scale === 'f16' ? 2 : 4)
    if (scale === 'f16') b.writeUInt16LE(F16[x])
    else b.writeFloatLE(x)
    return b
  }
  for (let first = 0; first < cols; first += block) {
    // Stored code of (row, column); missing rows and columns are zero codes (int4m: with minimum 0 in rows that are missing).
    const stored = (r, c) => (r >= rows || first + c >= cols ? zero : pick(r * cols + first + c))
    const per = bits === 8 ? 4 : 8
    for (let chunk = 0; chunk < block / per; chunk++)
      for (let r = 0; r < 16; r++)
        for (let j = 0; j < 4; j++)
          out.push(Buffer.from([bits === 8 ? stored(r, chunk * 4 + j) : stored(r, chunk * 8 + j) | (stored(r, chunk * 8 + 4 + j) << 4)]))
    for (let r = 0; r < 16; r++) out.push(number(r < rows ? scales[r] : 0))
    if (min) for (let r = 0; r < 16; r++) out.push(number(r < rows ? minima[r] : 0))
  }
  for (let r = 0; r < rows; r++)
    for (let c = 0; c < cols; c++) {
      const s = Math.fround(scales[r] * 2 ** exponent)
      const product = Math.fround(Math.fround(code(pick(r * cols + c))) * s)
      values.push(min ? Math.fround(product + Math.fround(minima[r] * 2 ** exponent)) : product)
    }
  const quant = { scheme, block, scale, ...(exponent === 0 ? {} : { exponent }) }
  return { tensor: [name, { dtype: 'float32', shape: [rows, cols], quant }, Buffer.concat(out)], values }
}
const FP8 = { fp8_e4m3: [-448, 448], fp8_e5m2: [-57344, 57344] }
for (const [scheme, scale, exponent] of [['int8', 'f16', 0], ['int4', 'f16', -4], ['int4m', 'f32', 2], ['nf4', 'f16', 0], ['fp8_e4m3', 'f32', -1], ['fp8_e5m2', 'f16', 0]]) {
  const { tensor, values } = panel('w', scheme, scale, exponent)
  const p = base([tensor])
  p.m.extensionsUsed = p.m.extensionsRequired = ['wia.block_quant']
  p.m.quantization = { ...QUANTIZATION, scheme, weightDtype: scheme, perChannel: false, axis: null, ...(scheme in FP8 ? { range: { [scheme]: FP8[scheme] } } : {}) }
  p.values = { w: values.map((v) => (Object.is(v, -0) ? 0 : v)) }
  accept(`panel-${scheme}`, 'row panels with missing rows and columns; `values` is what they decode to (0 for -0)', p)
}

// ---- refused: version, JSON, metadata, extensions --------------------------------------------------------------------------
const set = (key, value) => (p) => {
  p.m[key] = value
}
const manifest = (edit) => (p) => {
  p.manifest = Buffer.from(edit(canonical(p.m)))
}
refuse('major-2', 'FORMAT_UNSUPPORTED', 'a higher major version', set('format_version', '2.0.0'))
refuse('major-0', 'FORMAT_UNSUPPORTED', 'a lower major version', set('format_version', '0.9'))
refuse('version-text', 'FORMAT_INVALID', 'format_version is not MAJOR.MINOR', set('format_version', 'one'))
refuse('version-number', 'FORMAT_INVALID', 'format_version is a string', set('format_version', 1))
refuse('json-duplicate-key', 'JSON_INVALID', 'a key twice', manifest((t) => t.replace('{', '{"version":"1.0.0",')))
refuse('json-unsafe-integer', 'JSON_INVALID', 'an integer beyond 2^53', manifest((t) => t.replace('"offset":0', '"offset":9007199254740993')))
refuse('json-bom', 'JSON_INVALID', 'a byte order mark', manifest((t) => `\ufeff${t}`))
refuse('json-cut', 'JSON_INVALID', 'a truncated manifest', manifest((t) => t.slice(0, -1)))
refuse('json-array', 'JSON_INVALID', 'a manifest is an object', manifest((t) => `[${t}]`))
refuse('json-deep', 'FORMAT_LIMIT', 'more than 64 levels', set('metadata', JSON.parse(`${'{"a":'.repeat(70)}1${'}'.repeat(70)}`)))
refuse('no-model-name', 'FORMAT_INVALID', 'model_name is required', (p) => { delete p.m.model_name })
refuse('model-version', 'FORMAT_INVALID', 'version is semantic', set('version', 'v1'))
refuse('created-date', 'FORMAT_INVALID', 'created_date is RFC 3339', set('created_date', '02/01/2026'))
refuse('two-spellings', 'FORMAT_INVALID', 'a metadata key in two spellings', set('modelName', 'other'))
refuse('input-shape', 'FORMAT_INVALID', 'no dimension is -1', set('input_shape', [-1, 3]))
refuse('unknown-key', 'FORMAT_UNSUPPORTED', 'an unknown top-level key', set('surprise', 1))
refuse('extension-required', 'FORMAT_UNSUPPORTED', 'an unknown required extension', (p) => { p.m.extensionsUsed = p.m.extensionsRequired = ['com.example.unknown'] })
refuse('extension-not-used', 'FORMAT_INVALID', 'required ones are in extensionsUsed', set('extensionsRequired', ['wia.block_quant']))
refuse('extension-data', 'FORMAT_INVALID', 'data of an extension that is not used', set('extensions', { 'com.example.unknown': 1 }))
refuse('no-tensors-key', 'FORMAT_INVALID', 'tensors is required', (p) => { delete p.m.tensors })
refuse('no-files-key', 'FORMAT_INVALID', 'files is required', (p) => { delete p.m.files })
refuse('no-manifest', 'FORMAT_INVALID', 'a directory without manifest.json', (p) => { delete p.m })
refuse('container', 'NOT_IMPLEMENTED', 'the single file', () => ({ files: { 'model.wia': Buffer.from('WIA1\x01\x00\x00\x00') } }), { open: '/model.wia' })
refuse('container-swapped', 'NOT_IMPLEMENTED', 'the single file with its magic swapped', () => ({ files: { 'model.wia': Buffer.from('1AIW\x01\x00\x00\x00') } }), { open: '/model.wia' })
refuse('other-file', 'FORMAT_INVALID', 'a file that is no package', () => ({ files: { 'model.wia': Buffer.from('GGUF') } }), { open: '/model.wia' })

// ---- refused: shards, files, pages ------------------------------------------------------------------------------------------
const shard = (edit) => (p) => edit(p.m.shards[0], p)
refuse('shard-cut', 'FORMAT_INVALID', 'a truncated shard', (p) => { p.files['weights/model-00000.bin'] = p.files['weights/model-00000.bin'].subarray(0, 47) })
refuse('shard-longer', 'FORMAT_INVALID', 'a shard with bytes after its end', (p) => { p.files['weights/model-00000.bin'] = Buffer.concat([p.files['weights/model-00000.bin'], Buffer.alloc(1)]) })
refuse('shard-missing', 'FORMAT_INVALID', 'a listed shard does not exist', (p) => { delete p.files['weights/model-00000.bin'] })
refuse('shard-unlisted', 'FORMAT_INVALID', 'a weights/*.bin that is not listed', (p) => { p.files['weights/model-00001.bin'] = Buffer.alloc(1) })
refuse('shard-twice', 'FORMAT_INVALID', 'a shard listed twice', (p) => { p.m.shards.push({ ...p.m.shards[0] }) })
refuse('shard-field', 'FORMAT_UNSUPPORTED', 'an unknown field of a shard', shard((s) => { s.compression = 'zstd' }))
refuse('shard-bytes', 'FORMAT_INVALID', 'bytes is a count', shard((s) => { s.bytes = 48.5 }))
refuse('shard-hash', 'CHECKSUM_MISMATCH', 'another SHA-256 than stated', shard((s) => { s.sha256 = '0'.repeat(64) }), { verify: 'eager' })
const paths = { dotdot: 'weights/../model.bin', absolute: '/etc/passwd', url: 'https://example.com/m.bin', backslash: 'weights\\m.bin', drive: 'C:/weights/m.bin', nul: 'weights/\u0000.bin', dot: 'weights/./m.bin', empty: '', elsewhere: 'config/m.bin', deep: 'weights/a/m.bin' }
for (const [name, file] of Object.entries(paths)) refuse(`path-${name}`, 'PATH_FORBIDDEN', 'a shard path that leaves its place', shard((s) => { s.file = file }))
refuse('file-missing', 'FORMAT_INVALID', 'a listed file does not exist', (p) => { side(p, 'config/model.json', '{}'); delete p.files['config/model.json'] })
refuse('file-size', 'FORMAT_INVALID', 'a listed file has another size', (p) => { side(p, 'tokenizer/t.json', '{}'); p.files['tokenizer/t.json'] = Buffer.from('{ }') })
refuse('file-dotdot', 'PATH_FORBIDDEN', 'a file outside', (p) => { p.m.files['config/../../x'] = { bytes: 1, sha256: '0'.repeat(64) } })
refuse('file-folder', 'PATH_FORBIDDEN', 'a file in another folder', (p) => { side(p, 'scripts/run.sh', 'true') })
refuse('file-architecture-hash', 'CHECKSUM_MISMATCH', 'architecture.json was changed', (p) => { side(p, 'architecture.json', '{"a":1}'); p.files['architecture.json'] = Buffer.from('{"a":2}') }, { verify: 'lazy' })
refuse('file-tokenizer-hash', 'CHECKSUM_MISMATCH', 'a tokenizer file was changed', (p) => { side(p, 'tokenizer/t.json', '{"a":1}'); p.files['tokenizer/t.json'] = Buffer.from('{"a":2}') }, { verify: 'eager' })
refuse('pages-size', 'FORMAT_INVALID', 'the page table has another size', (p) => { p.files['weights/pages.sha256'] = Buffer.alloc(64) })
refuse('pages-missing', 'FORMAT_INVALID', 'the page table does not exist', (p) => { delete p.files['weights/pages.sha256'] })
refuse('pages-root', 'CHECKSUM_MISMATCH', 'the page table was changed', (p) => { p.files['weights/pages.sha256'] = Buffer.alloc(32) }, { verify: 'eager' })
refuse('pages-name', 'PATH_FORBIDDEN', 'the page table has its one name', (p) => { p.m.pages.file = 'weights/model-00000.bin' })
refuse('page-hash', 'CHECKSUM_MISMATCH', 'a page does not have its hash', (p) => { const t = Buffer.alloc(32); p.files['weights/pages.sha256'] = t; p.m.pages.sha256 = sha(t) }, { verify: 'eager' })
refuse('page-count', 'FORMAT_INVALID', 'count is the total of all pages', (p) => { p.m.pages.count = 2; p.files['weights/pages.sha256'] = Buffer.alloc(64) })
refuse('page-first', 'FORMAT_INVALID', 'page numbers follow storage order', (p) => { p.a.page_first = 1 })
refuse('page-rows', 'FORMAT_INVALID', 'page_rows is a multiple of 16', (p) => { p.a.page_rows = 8 })
refuse('page-rows-zero', 'FORMAT_INVALID', 'page_rows is not 0', (p) => { p.a.page_rows = 0 })
refuse('page-none', 'FORMAT_INVALID', 'all tensors have pages or none', (p) => { delete p.a.page_first; delete p.a.page_rows })
refuse('page-without-table', 'FORMAT_INVALID', 'pages need the table', (p) => { delete p.m.pages; delete p.files['weights/pages.sha256'] })
refuse('tensor-changed', 'CHECKSUM_MISMATCH', 'a bit of a tensor was changed', () => { const q = base(undefined, { pages: false }); q.files['weights/model-00000.bin'][5] ^= 1; return q }, { verify: 'eager' })

// ---- refused: tensors --------------------------------------------------------------------------------------------------------
const tensor = (edit) => (p) => edit(p.a, p)
refuse('dtype-unknown', 'FORMAT_UNSUPPORTED', 'an unknown dtype', tensor((t) => { t.dtype = 'float128' }))
refuse('dtype-code', 'FORMAT_INVALID', 'a dtype by number', tensor((t) => { t.dtype = 1 }))
refuse('dtype-extra', 'FORMAT_UNSUPPORTED', 'float64 without wia.extra_dtypes', tensor((t) => { t.dtype = 'float64'; t.shape = [6] }))
refuse('layout-unknown', 'FORMAT_UNSUPPORTED', 'an unknown layout', tensor((t) => { t.layout = 'column-major' }))
refuse('layout-rank', 'FORMAT_INVALID', 'channels-last needs three dimensions', tensor((t) => { t.layout = 'channels-last' }))
refuse('layout-packed', 'FORMAT_INVALID', 'packed-int8 of another type', tensor((t) => { t.layout = 'packed-int8' }))
refuse('field-unknown', 'FORMAT_UNSUPPORTED', 'an unknown field of a tensor', tensor((t) => { t.compressed = true }))
refuse('field-unknown-newer', 'FORMAT_UNSUPPORTED', 'a higher minor version adds no fields to tensors', (p) => { p.m.format_version = '1.9'; p.a.compressed = true })
refuse('checksum-missing', 'FORMAT_INVALID', 'checksum is required', tensor((t) => { delete t.checksum }))
refuse('checksum-form', 'FORMAT_INVALID', 'checksum is sha256:<hex>', tensor((t) => { t.checksum = t.checksum.slice(7) }))
refuse('name-empty', 'FORMAT_INVALID', 'an empty name', (p) => { p.m.tensors[''] = p.a; delete p.m.tensors.a })
refuse('name-control', 'FORMAT_INVALID', 'a name with a line feed', (p) => { p.m.tensors['a\nb'] = p.a; delete p.m.tensors.a })
refuse('name-long', 'FORMAT_LIMIT', 'a name of 4097 characters', (p) => { p.m.tensors['n'.repeat(4097)] = p.a; delete p.m.tensors.a })
refuse('shape-negative', 'FORMAT_INVALID', 'a negative dimension', tensor((t) => { t.shape = [-3, -4] }))
refuse('shape-overflow', 'FORMAT_INVALID', 'a product past 2^53', tensor((t) => { t.shape = [2 ** 40, 2 ** 40] }))
refuse('shape-rank', 'FORMAT_LIMIT', 'more than 16 dimensions', tensor((t) => { t.shape = Array(17).fill(1) }))
refuse('shape-missing', 'FORMAT_INVALID', 'shape is required', tensor((t) => { delete t.shape }))
refuse('length-wrong', 'FORMAT_INVALID', 'length is not what dtype and shape take', tensor((t) => { t.length = 44 }))
refuse('range-past-end', 'FORMAT_INVALID', 'a range past the end of the shard', tensor((t) => { t.offset = 64 }))
refuse('range-far', 'FORMAT_INVALID', 'an offset near 2^53', tensor((t) => { t.offset = 2 ** 53 - 64 }))
refuse('range-shard', 'FORMAT_INVALID', 'a shard that is not listed', tensor((t) => { t.shard = 1 }))
refuse('offset-unaligned', 'FORMAT_INVALID', 'an offset that is no multiple of 64', (p) => { p.a.offset = 32; p.m.shards[0].bytes = 96; p.files['weights/model-00000.bin'] = Buffer.alloc(96) })
refuse('offset-fraction', 'FORMAT_INVALID', 'an offset of 0.5', tensor((t) => { t.offset = 0.5 }))
refuse('overlap', 'FORMAT_INVALID', 'two tensors over the same bytes', (p) => { p.m.tensors.b = { ...p.a, page_first: 1 }; p.m.pages.count = 2; p.files['weights/pages.sha256'] = Buffer.alloc(64) })
refuse('empty-in-shard', 'FORMAT_INVALID', 'a tensor without elements is inline', tensor((t) => { t.shape = [0, 4]; t.length = 0 }))
refuse('strides-length', 'FORMAT_INVALID', 'strides that reach past length', tensor((t) => { t.strides = [8, 1] }))
refuse('strides-rank', 'FORMAT_INVALID', 'one stride a dimension', tensor((t) => { t.strides = [1] }))
refuse('strides-zero', 'FORMAT_INVALID', 'a stride of 0 repeats elements', tensor((t) => { t.strides = [0, 1]; t.length = 16 }))
refuse('strides-shared', 'FORMAT_INVALID', 'strides that make elements share bytes', tensor((t) => { t.strides = [2, 1]; t.length = (1 + 2 * 2 + 3) * 4 }))
refuse('strides-negative', 'FORMAT_INVALID', 'a negative stride', tensor((t) => { t.strides = [4, -1] }))
const inline = (fields) => (p) => { p.m.tensors.i = { dtype: 'uint8', shape: [3], inline: 'AAAA', checksum: `sha256:${sha(Buffer.alloc(3))}`, ...fields } }
refuse('inline-length', 'FORMAT_INVALID', 'inline data of another length', inline({ shape: [4] }))
refuse('inline-base64', 'FORMAT_INVALID', 'not base64', inline({ inline: 'A*AA' }))
refuse('inline-bits', 'FORMAT_INVALID', 'base64 with bits after the end', inline({ shape: [2], inline: 'AAB=' }))
refuse('inline-large', 'FORMAT_LIMIT', 'more than 1 MiB inline', inline({ shape: [1048577] }))
refuse('inline-checksum', 'CHECKSUM_MISMATCH', 'inline data with another checksum', inline({ inline: 'AAAB' }), { verify: 'lazy' })
refuse('inline-offset', 'FORMAT_INVALID', 'an inline tensor with an offset', inline({ offset: 0 }))
const alias = (fields, more = () => {}) => (p) => { p.m.tensors.t = { dtype: 'float32', shape: [3, 4], alias: 'a', ...fields }; more(p) }
refuse('alias-unknown', 'FORMAT_INVALID', 'an alias of nothing', alias({ alias: 'b' }))
refuse('alias-self', 'FORMAT_INVALID', 'an alias of itself', alias({ alias: 't' }))
refuse('alias-chain', 'FORMAT_INVALID', 'an alias of an alias', alias({}, (p) => { p.m.tensors.u = { dtype: 'float32', shape: [3, 4], alias: 't' } }))
refuse('alias-shape', 'FORMAT_INVALID', 'an alias of another shape', alias({ shape: [4, 3] }))
refuse('alias-dtype', 'FORMAT_INVALID', 'an alias of another dtype', alias({ dtype: 'int32' }))
refuse('alias-field', 'FORMAT_INVALID', 'an alias with a range of its own', alias({ offset: 0 }))
const split = (edit) => () => {
  const bytes = bytesOf(5, 40 * 8)
  const p = base([])
  p.m.shards = [{ file: 'weights/a.bin', bytes: 8192 }]
  p.files['weights/a.bin'] = Buffer.alloc(8192)
  const t = { dtype: 'float32', shape: [40, 2], length: 320, checksum: `sha256:${sha(bytes)}`, segments: [{ shard: 0, offset: 0, length: 128, rows: 16 }, { shard: 0, offset: 4096, length: 192, rows: 24 }] }
  p.m.tensors.split = t
  edit(t, p)
  return p
}
refuse('segments-one', 'FORMAT_INVALID', 'one segment', split((t) => { t.segments = [{ shard: 0, offset: 0, length: 320, rows: 40 }] }))
refuse('segments-rows', 'FORMAT_INVALID', 'a segment that cuts a panel', split((t) => { t.segments = [{ shard: 0, offset: 0, length: 160, rows: 20 }, { shard: 0, offset: 4096, length: 160, rows: 20 }] }))
refuse('segments-sum', 'FORMAT_INVALID', 'segments that leave rows out', split((t) => { t.segments[1] = { shard: 0, offset: 4096, length: 128, rows: 16 } }))
refuse('segments-length', 'FORMAT_INVALID', 'a segment of another length than its rows', split((t) => { t.segments[0].length = 129 }))
refuse('segments-order', 'FORMAT_INVALID', 'segments that do not rise', split((t) => { t.segments[0].offset = 4096; t.segments[1].offset = 0 }))
refuse('segments-unaligned', 'FORMAT_INVALID', 'a segment that is not at a multiple of 4096', split((t) => { t.segments[1].offset = 4032 }))
refuse('segments-field', 'FORMAT_UNSUPPORTED', 'an unknown field of a segment', split((t) => { t.segments[0].note = 1 }))
refuse('segments-strides', 'FORMAT_INVALID', 'segments of a strided tensor', split((t) => { t.strides = [2, 1] }))
refuse('segments-page', 'FORMAT_INVALID', 'a page over two segments', split((t, p) => {
  Object.assign(t, { page_first: 0, page_rows: 32 })
  p.files['weights/pages.sha256'] = Buffer.alloc(64)
  p.m.pages = { file: 'weights/pages.sha256', count: 2, sha256: sha(Buffer.alloc(64)) }
}))

// ---- refused: quantization ----------------------------------------------------------------------------------------------------
const quantized = (edit) => () => {
  const p = base([panel('w', 'int4', 'f16', 0).tensor])
  p.m.extensionsUsed = p.m.extensionsRequired = ['wia.block_quant']
  p.m.quantization = { ...QUANTIZATION, scheme: 'int4', weightDtype: 'int4', perChannel: false, axis: null }
  edit(p.m.tensors.w, p)
  return p
}
refuse('quant-no-extension', 'FORMAT_INVALID', 'block quantization without its extension', quantized((_, p) => { p.m.extensionsRequired = [] }))
refuse('quant-scheme', 'QUANT_UNSUPPORTED', 'an unknown scheme', quantized((t) => { t.quant.scheme = 'int3' }))
refuse('quant-scheme-proto', 'QUANT_UNSUPPORTED', 'a scheme named like a property of objects', quantized((t) => { t.quant.scheme = 'toString' }))
refuse('quant-block', 'QUANT_UNSUPPORTED', 'an unknown block size', quantized((t) => { t.quant.block = 48 }))
refuse('quant-scale', 'QUANT_UNSUPPORTED', 'an unknown scale type', quantized((t) => { t.quant.scale = 'dq8' }))
refuse('quant-field', 'QUANT_UNSUPPORTED', 'an unknown field', quantized((t) => { t.quant.double_quant = true }))
refuse('quant-exponent', 'FORMAT_INVALID', 'an exponent out of range', quantized((t) => { t.quant.exponent = 128 }))
refuse('quant-dtype', 'FORMAT_INVALID', 'block-quantized is float32', quantized((t) => { t.dtype = 'float16' }))
refuse('quant-length', 'FORMAT_INVALID', 'another length than whole panels', quantized((t) => { t.length -= 64 }))
refuse('quant-strides', 'FORMAT_INVALID', 'block-quantized with strides', quantized((t) => { t.strides = [40, 1] }))
refuse('quant-no-manifest', 'FORMAT_INVALID', 'a quantized model needs its quantization manifest', quantized((_, p) => { delete p.m.quantization }))
refuse('quant-manifest-alone', 'FORMAT_INVALID', 'a quantization manifest without quantized tensors', set('quantization', QUANTIZATION))
refuse('quant-manifest-field', 'FORMAT_INVALID', 'a field of the quantization manifest is missing', quantized((_, p) => { delete p.m.quantization.calibrationSamples }))
refuse('quant-fp8-range', 'FORMAT_INVALID', 'FP8 needs range', () => {
  const p = base([panel('w', 'fp8_e4m3', 'f16', 0).tensor])
  p.m.extensionsUsed = p.m.extensionsRequired = ['wia.block_quant']
  p.m.quantization = { ...QUANTIZATION, scheme: 'fp8_e4m3' }
  return p
})
const linear = (quant, dtype = 'int8') => () => {
  const p = base([plain('q', dtype, [2, 3], { quant: { scheme: 'LINEAR', ...quant } })])
  p.m.quantization = QUANTIZATION
  return p
}
refuse('linear-logarithmic', 'QUANT_UNSUPPORTED', 'LOGARITHMIC has no formula', linear({ scheme: 'LOGARITHMIC', scale: 1, zero_point: 0 }))
refuse('linear-scale', 'FORMAT_INVALID', 'a scale of 0', linear({ scale: 0, zero_point: 0 }))
refuse('linear-zero-point', 'FORMAT_INVALID', 'a zero point out of the range of its type', linear({ scale: 1, zero_point: 128 }))
refuse('linear-dtype', 'FORMAT_INVALID', 'LINEAR of a floating-point type', linear({ scale: 1, zero_point: 0 }, 'float32'))
refuse('linear-channels', 'FORMAT_INVALID', 'not one scale a channel', linear({ scales: [1], zero_points: [0], channel_dim: 0 }))
refuse('linear-channel-dim', 'FORMAT_INVALID', 'channel_dim is a dimension', linear({ scales: [1, 1], zero_points: [0, 0], channel_dim: 2 }))
refuse('linear-both', 'FORMAT_INVALID', 'scale and scales', linear({ scale: 1, scales: [1, 1], zero_points: [0, 0], channel_dim: 0 }))

writeFileSync(join(HERE, 'verdicts.json'), `${JSON.stringify(verdicts, null, 1)}\n`)
console.log(`${verdicts.length} vectors`)
