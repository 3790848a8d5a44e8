// Arguments from JavaScript, checked; results to JavaScript.
#include "addon.h"

#include <stdio.h>
#include <string.h>

bool sluice_args(napi_env env, napi_callback_info info, size_t count, napi_value *args) {
  size_t given = count;
  if (napi_get_cb_info(env, info, &given, args, NULL, NULL) != napi_ok) return false;
  if (given >= count) return true;
  napi_throw_type_error(env, NULL, "too few arguments");
  return false;
}

bool sluice_fd(napi_env env, napi_value value, int *fd) {
  int32_t number = -1;
  if (napi_get_value_int32(env, value, &number) == napi_ok && number >= 0) {
    *fd = number;
    return true;
  }
  napi_throw_type_error(env, NULL, "fd is not a file descriptor");
  return false;
}

bool sluice_size(napi_env env, napi_value value, const char *name, uint64_t *size) {
  const uint64_t most = UINT64_C(1) << 53;
  napi_valuetype type;
  if (napi_typeof(env, value, &type) == napi_ok) {
    double number;
    bool lossless;
    if (type == napi_number && napi_get_value_double(env, value, &number) == napi_ok) {
      // The comparison comes first: converting NaN or 1e300 to an integer is undefined.
      if (number >= 0 && number <= (double)most && (double)(uint64_t)number == number) {
        *size = (uint64_t)number;
        return true;
      }
    } else if (type == napi_bigint && napi_get_value_bigint_uint64(env, value, size, &lossless) == napi_ok) {
      if (lossless && *size <= most) return true;
    }
  }
  char message[96];
  snprintf(message, sizeof message, "%s is not a count of bytes from 0 to 2^53", name);
  napi_throw_range_error(env, NULL, message);
  return false;
}

bool sluice_bytes(napi_env env, napi_value value, uint8_t **data, size_t *length) {
  bool is_view = false;
  napi_typedarray_type type;
  size_t count, offset;
  void *bytes;
  if (napi_is_typedarray(env, value, &is_view) == napi_ok && is_view &&
      napi_get_typedarray_info(env, value, &type, &count, &bytes, NULL, &offset) == napi_ok && type == napi_uint8_array) {
    *data = bytes;
    *length = count;
    return true;
  }
  napi_throw_type_error(env, NULL, "not a Uint8Array");
  return false;
}

bool sluice_hint(napi_env env, napi_value value, enum hint *hint) {
  static const char *const names[] = {"sequential", "random", "willneed", "dontneed"};
  char text[16];
  size_t length;
  if (napi_get_value_string_utf8(env, value, text, sizeof text, &length) == napi_ok) {
    for (int i = 0; i < 4; i++) {
      if (strcmp(text, names[i]) == 0) {
        *hint = (enum hint)i;
        return true;
      }
    }
  }
  napi_throw_type_error(env, NULL, "hint is not sequential, random, willneed or dontneed");
  return false;
}

napi_value sluice_number(napi_env env, int64_t value) {
  napi_value result = NULL;
  napi_create_int64(env, value, &result);
  return result;
}

napi_value sluice_fail(napi_env env, int error, const char *what) {
  char text[128];
  snprintf(text, sizeof text, "%s: %s", what, strerror(error));
  napi_value message, failure;
  if (napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &message) == napi_ok &&
      napi_create_error(env, NULL, message, &failure) == napi_ok) {
    napi_set_named_property(env, failure, "errno", sluice_number(env, error));
    napi_throw(env, failure);
  }
  return NULL;
}

void sluice_define(napi_env env, napi_value exports, const char *name, napi_callback function) {
  napi_value value;
  if (napi_create_function(env, name, NAPI_AUTO_LENGTH, function, NULL, &value) == napi_ok)
    napi_set_named_property(env, exports, name, value);
}
