// Entry of the addon, and what it says of itself.
#include "addon.h"

#if SLUICE_POSIX
#include <unistd.h>
size_t sluice_page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }
#else
size_t sluice_page_size(void) { return 65536; }  // allocation granularity of Windows
#endif

// Raised when a function changes what it takes or gives; src/source/addon.ts refuses another number.
#define SLUICE_API 1

NAPI_MODULE_INIT() {
  napi_value version;
  if (napi_create_string_utf8(env, SLUICE_SOURCES, NAPI_AUTO_LENGTH, &version) != napi_ok) return NULL;
  napi_set_named_property(env, exports, "version", version);
  napi_set_named_property(env, exports, "api", sluice_number(env, SLUICE_API));
  napi_set_named_property(env, exports, "pageSize", sluice_number(env, (int64_t)sluice_page_size()));
  sluice_register_mapping(env, exports);
  sluice_register_files(env, exports);
  return exports;
}
