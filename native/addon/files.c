// pread and fadvise on open files.
#include "addon.h"

#include <errno.h>
#if SLUICE_POSIX
#include <fcntl.h>
#include <unistd.h>
#endif

// pread(fd, offset, out): bytes read, fewer only at the end of the file, or -errno.
static napi_value file_pread(napi_env env, napi_callback_info info) {
  napi_value args[3];
  int fd;
  uint64_t offset;
  uint8_t *out;
  size_t length;
  if (!sluice_args(env, info, 3, args) || !sluice_fd(env, args[0], &fd) || !sluice_size(env, args[1], "offset", &offset) ||
      !sluice_bytes(env, args[2], &out, &length))
    return NULL;
#if SLUICE_POSIX
  size_t done = 0;
  while (done < length) {
    size_t step = length - done < (size_t)1 << 30 ? length - done : (size_t)1 << 30;  // one call moves less than 2 GiB
    ssize_t got = pread(fd, out + done, step, (off_t)(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return sluice_number(env, -errno);
    if (got == 0) break;
    done += (size_t)got;
  }
  return sluice_number(env, (int64_t)done);
#else
  (void)fd, (void)out, (void)length;
  return sluice_number(env, -ENOSYS);
#endif
}

// fadvise(fd, offset, length, hint): 0 or -errno.
static napi_value file_fadvise(napi_env env, napi_callback_info info) {
  napi_value args[4];
  int fd;
  uint64_t offset, length;
  enum hint hint;
  if (!sluice_args(env, info, 4, args) || !sluice_fd(env, args[0], &fd) || !sluice_size(env, args[1], "offset", &offset) ||
      !sluice_size(env, args[2], "length", &length) || !sluice_hint(env, args[3], &hint))
    return NULL;
#if defined(__linux__)
  static const int advice[] = {POSIX_FADV_SEQUENTIAL, POSIX_FADV_RANDOM, POSIX_FADV_WILLNEED, POSIX_FADV_DONTNEED};
  if (length == 0) return sluice_number(env, 0);  // to the system 0 means "to the end"
  return sluice_number(env, -posix_fadvise(fd, (off_t)offset, (off_t)length, advice[hint]));
#else
  (void)fd;
  return sluice_number(env, -ENOSYS);
#endif
}

void sluice_register_files(napi_env env, napi_value exports) {
  sluice_define(env, exports, "pread", file_pread);
  sluice_define(env, exports, "fadvise", file_fadvise);
}
