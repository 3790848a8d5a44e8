// The Node-API addon: mappings with 64-bit offsets, copies that survive a fault, advice to the page cache.
// Each file of the addon registers its functions on `exports`. Nothing is global, so it loads in any number of threads.
#ifndef SLUICE_ADDON_H
#define SLUICE_ADDON_H

#include <node_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Platforms with POSIX mappings. Elsewhere the functions exist and say ENOSYS: the callers then read by pread.
#if defined(__linux__) || defined(__APPLE__)
#define SLUICE_POSIX 1
#else
#define SLUICE_POSIX 0
#endif

// Arguments. Each of these throws a TypeError or RangeError of JavaScript and returns false when the value does not fit.
bool sluice_args(napi_env env, napi_callback_info info, size_t count, napi_value *args);
bool sluice_fd(napi_env env, napi_value value, int *fd);
// A Number or BigInt from 0 to 2^53.
bool sluice_size(napi_env env, napi_value value, const char *name, uint64_t *size);
// A Uint8Array over any memory, shared memory included.
bool sluice_bytes(napi_env env, napi_value value, uint8_t **data, size_t *length);

enum hint { HINT_SEQUENTIAL, HINT_RANDOM, HINT_WILLNEED, HINT_DONTNEED };
bool sluice_hint(napi_env env, napi_value value, enum hint *hint);

// Results.
napi_value sluice_number(napi_env env, int64_t value);
napi_value sluice_fail(napi_env env, int error, const char *what);  // throws an Error with `errno`

void sluice_define(napi_env env, napi_value exports, const char *name, napi_callback function);
size_t sluice_page_size(void);

void sluice_register_mapping(napi_env env, napi_value exports);
void sluice_register_files(napi_env env, napi_value exports);

#endif
