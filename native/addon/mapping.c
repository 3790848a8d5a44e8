// Mappings of files: map, unmap, views without a copy, copies that survive a fault, advice, residency.
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE  // process_vm_readv
#endif
#include "addon.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if SLUICE_POSIX
#include <sys/mman.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/uio.h>
#endif

// One mapping. The JavaScript object that wraps it owns it; array buffers are weak, so that they can be detached while they live.
struct mapping {
  uint8_t *address;  // NULL once unmapped
  size_t length;
  unsigned busy;  // copies running in the pool
  napi_ref *buffers;
  size_t buffer_count, buffer_room;
};

// Tells our objects from all others, so that a wrong one is a TypeError and not a wild pointer.
static const napi_type_tag mapping_tag = {0x8d1c94a5b3e64f02, 0x9c0e57d2f1a86b37};

static void release(struct mapping *m) {
#if SLUICE_POSIX
  if (m->address != NULL) munmap(m->address, m->length);
#endif
  m->address = NULL;
}

static void mapping_finalize(napi_env env, void *data, void *hint) {
  (void)hint;
  struct mapping *m = data;
  for (size_t i = 0; i < m->buffer_count; i++) napi_delete_reference(env, m->buffers[i]);
  release(m);
  free(m->buffers);
  free(m);
}

static bool mapping_of(napi_env env, napi_value value, struct mapping **m) {
  napi_valuetype type;
  bool ours = false;
  if (napi_typeof(env, value, &type) == napi_ok && type == napi_object &&
      napi_check_object_type_tag(env, value, &mapping_tag, &ours) == napi_ok && ours &&
      napi_unwrap(env, value, (void **)m) == napi_ok)
    return true;
  napi_throw_type_error(env, NULL, "not a mapping");
  return false;
}

// A mapping that is still mapped, and a range that lies inside it.
static bool range_of(napi_env env, struct mapping *m, uint64_t offset, uint64_t length) {
  if (m->address == NULL) {
    napi_throw_error(env, NULL, "the mapping is unmapped");
    return false;
  }
  if (offset <= m->length && length <= m->length - offset) return true;
  napi_throw_range_error(env, NULL, "the range is not inside the mapping");
  return false;
}

// map(fd, offset, length)
static napi_value mapping_map(napi_env env, napi_callback_info info) {
  napi_value args[3], object;
  int fd;
  uint64_t offset, length;
  if (!sluice_args(env, info, 3, args) || !sluice_fd(env, args[0], &fd) || !sluice_size(env, args[1], "offset", &offset) ||
      !sluice_size(env, args[2], "length", &length))
    return NULL;
#if SLUICE_POSIX
  if (length == 0 || length > SIZE_MAX) return sluice_fail(env, EINVAL, "mmap");
  struct mapping *m = calloc(1, sizeof *m);
  if (m == NULL) return sluice_fail(env, ENOMEM, "mmap");
  // Private and writable is copy on write: a stray write of JavaScript into a view neither kills the process nor reaches the file.
  // NORESERVE: the copies that nobody makes take no swap.
  int flags = MAP_PRIVATE | MAP_NORESERVE;
  void *address = mmap(NULL, (size_t)length, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);
  if (address == MAP_FAILED) {
    int error = errno;
    free(m);
    return sluice_fail(env, error, "mmap");
  }
  m->address = address;
  m->length = (size_t)length;
  if (napi_create_object(env, &object) == napi_ok && napi_type_tag_object(env, object, &mapping_tag) == napi_ok &&
      napi_wrap(env, object, m, mapping_finalize, NULL, NULL) == napi_ok)
    return object;
  release(m);
  free(m);
  return sluice_fail(env, ENOMEM, "mmap");
#else
  (void)object, (void)fd;
  return sluice_fail(env, ENOSYS, "mmap");
#endif
}

// unmap(mapping): true, or false while a copy runs in the pool.
static napi_value mapping_unmap(napi_env env, napi_callback_info info) {
  napi_value args[1], result;
  struct mapping *m;
  if (!sluice_args(env, info, 1, args) || !mapping_of(env, args[0], &m)) return NULL;
  bool free_to_go = m->busy == 0;
  for (size_t i = 0; free_to_go && i < m->buffer_count; i++) {
    napi_value buffer = NULL;
    if (napi_get_reference_value(env, m->buffers[i], &buffer) == napi_ok && buffer != NULL) {
      bool detached = false;
      if (napi_detach_arraybuffer(env, buffer) != napi_ok || napi_is_detached_arraybuffer(env, buffer, &detached) != napi_ok ||
          !detached)
        return sluice_fail(env, EBUSY, "unmap: a buffer cannot be detached");
    }
  }
  if (free_to_go) release(m);
  return napi_get_boolean(env, free_to_go, &result) == napi_ok ? result : NULL;
}

// The mapping frees itself; a buffer frees nothing.
static void buffer_finalize(napi_env env, void *data, void *hint) { (void)env, (void)data, (void)hint; }

// buffer(mapping, offset, length): an ArrayBuffer over the mapped bytes.
static napi_value mapping_buffer(napi_env env, napi_callback_info info) {
  napi_value args[3], buffer;
  struct mapping *m;
  uint64_t offset, length;
  if (!sluice_args(env, info, 3, args) || !mapping_of(env, args[0], &m) || !sluice_size(env, args[1], "offset", &offset) ||
      !sluice_size(env, args[2], "length", &length) || !range_of(env, m, offset, length))
    return NULL;
  if (m->buffer_count == m->buffer_room) {
    size_t room = m->buffer_room == 0 ? 4 : 2 * m->buffer_room;
    napi_ref *grown = realloc(m->buffers, room * sizeof *grown);
    if (grown == NULL) return sluice_fail(env, ENOMEM, "buffer");
    m->buffers = grown;
    m->buffer_room = room;
  }
  if (napi_create_external_arraybuffer(env, m->address + offset, (size_t)length, buffer_finalize, NULL, &buffer) != napi_ok) {
    bool pending = false;
    napi_is_exception_pending(env, &pending);
    return pending ? NULL : sluice_fail(env, EOVERFLOW, "buffer");
  }
  if (napi_create_reference(env, buffer, 0, &m->buffers[m->buffer_count]) != napi_ok) {
    napi_detach_arraybuffer(env, buffer);  // one that could not be detached later must not live
    return sluice_fail(env, ENOMEM, "buffer");
  }
  m->buffer_count++;
  return buffer;
}

// Copies `length` bytes. The kernel does the copy, so a page that cannot be had (the file was cut, the disk failed) is an error code where a
// load instruction would be a SIGBUS. Bytes copied, or -errno.
static int64_t guarded_copy(const uint8_t *from, uint8_t *to, size_t length) {
#if defined(__linux__)
  size_t done = 0;
  while (done < length) {
    size_t step = length - done < (size_t)1 << 30 ? length - done : (size_t)1 << 30;
    struct iovec local = {to + done, step}, remote = {(void *)(from + done), step};
    ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -errno;
    if (got == 0) return -EFAULT;
    done += (size_t)got;
  }
  return (int64_t)done;
#else
  (void)from, (void)to, (void)length;
  return -ENOSYS;
#endif
}

// copy(mapping, offset, out)
static napi_value mapping_copy(napi_env env, napi_callback_info info) {
  napi_value args[3];
  struct mapping *m;
  uint64_t offset;
  uint8_t *out;
  size_t length;
  if (!sluice_args(env, info, 3, args) || !mapping_of(env, args[0], &m) || !sluice_size(env, args[1], "offset", &offset) ||
      !sluice_bytes(env, args[2], &out, &length) || !range_of(env, m, offset, length))
    return NULL;
  return sluice_number(env, guarded_copy(m->address + offset, out, length));
}

struct copy_job {
  struct mapping *mapping;
  const uint8_t *from;
  uint8_t *to;
  size_t length;
  int64_t result;
  napi_ref keep_mapping, keep_out;
  napi_deferred deferred;
  napi_async_work work;
};

static void copy_execute(napi_env env, void *data) {
  (void)env;
  struct copy_job *job = data;
  job->result = guarded_copy(job->from, job->to, job->length);
}

static void copy_complete(napi_env env, napi_status status, void *data) {
  struct copy_job *job = data;
  job->mapping->busy--;
  napi_resolve_deferred(env, job->deferred, sluice_number(env, status == napi_ok ? job->result : -ECANCELED));
  napi_delete_reference(env, job->keep_mapping);
  napi_delete_reference(env, job->keep_out);
  napi_delete_async_work(env, job->work);
  free(job);
}

// copyAsync(mapping, offset, out): a promise of what copy gives.
static napi_value mapping_copy_async(napi_env env, napi_callback_info info) {
  napi_value args[3], promise, name;
  struct mapping *m;
  uint64_t offset;
  uint8_t *out;
  size_t length;
  if (!sluice_args(env, info, 3, args) || !mapping_of(env, args[0], &m) || !sluice_size(env, args[1], "offset", &offset) ||
      !sluice_bytes(env, args[2], &out, &length) || !range_of(env, m, offset, length))
    return NULL;
  struct copy_job *job = calloc(1, sizeof *job);
  if (job == NULL) return sluice_fail(env, ENOMEM, "copyAsync");
  job->mapping = m;
  job->from = m->address + offset;
  job->to = out;
  job->length = length;
  if (napi_create_reference(env, args[0], 1, &job->keep_mapping) == napi_ok &&
      napi_create_reference(env, args[2], 1, &job->keep_out) == napi_ok &&
      napi_create_string_utf8(env, "sluice.copy", NAPI_AUTO_LENGTH, &name) == napi_ok &&
      napi_create_async_work(env, NULL, name, copy_execute, copy_complete, job, &job->work) == napi_ok &&
      napi_create_promise(env, &job->deferred, &promise) == napi_ok && napi_queue_async_work(env, job->work) == napi_ok) {
    m->busy++;
    return promise;
  }
  if (job->work != NULL) napi_delete_async_work(env, job->work);
  if (job->keep_out != NULL) napi_delete_reference(env, job->keep_out);
  if (job->keep_mapping != NULL) napi_delete_reference(env, job->keep_mapping);
  free(job);
  return sluice_fail(env, ENOMEM, "copyAsync");
}

// madvise(mapping, offset, length, hint): 0 or -errno. A range that reaches outside is cut to the mapping.
static napi_value mapping_madvise(napi_env env, napi_callback_info info) {
  napi_value args[4];
  struct mapping *m;
  uint64_t offset, length;
  enum hint hint;
  if (!sluice_args(env, info, 4, args) || !mapping_of(env, args[0], &m) || !sluice_size(env, args[1], "offset", &offset) ||
      !sluice_size(env, args[2], "length", &length) || !sluice_hint(env, args[3], &hint) || !range_of(env, m, 0, 0))
    return NULL;
#if SLUICE_POSIX
  static const int advice[] = {MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED};
  if (offset >= m->length) return sluice_number(env, 0);
  if (length > m->length - offset) length = m->length - offset;
  uint64_t start = offset - offset % sluice_page_size();
  return sluice_number(env, madvise(m->address + start, (size_t)(offset + length - start), advice[hint]) == 0 ? 0 : -errno);
#else
  return sluice_number(env, -ENOSYS);
#endif
}

// resident(mapping, offset, length): bytes in memory, in whole pages, or -errno.
static napi_value mapping_resident(napi_env env, napi_callback_info info) {
  napi_value args[3];
  struct mapping *m;
  uint64_t offset, length;
  if (!sluice_args(env, info, 3, args) || !mapping_of(env, args[0], &m) || !sluice_size(env, args[1], "offset", &offset) ||
      !sluice_size(env, args[2], "length", &length) || !range_of(env, m, offset, length))
    return NULL;
#if SLUICE_POSIX
  const size_t page = sluice_page_size();
  unsigned char flags[4096];
  uint64_t at = offset - offset % page, end = offset + length, pages = 0;
  while (at < end) {
    uint64_t count = (end - at + page - 1) / page;
    if (count > sizeof flags) count = sizeof flags;
    if (mincore(m->address + at, (size_t)(count * page), (void *)flags) != 0) return sluice_number(env, -errno);
    for (uint64_t i = 0; i < count; i++) pages += flags[i] & 1;
    at += count * page;
  }
  return sluice_number(env, (int64_t)(pages * page));
#else
  return sluice_number(env, -ENOSYS);
#endif
}

void sluice_register_mapping(napi_env env, napi_value exports) {
  sluice_define(env, exports, "map", mapping_map);
  sluice_define(env, exports, "unmap", mapping_unmap);
  sluice_define(env, exports, "buffer", mapping_buffer);
  sluice_define(env, exports, "copy", mapping_copy);
  sluice_define(env, exports, "copyAsync", mapping_copy_async);
  sluice_define(env, exports, "madvise", mapping_madvise);
  sluice_define(env, exports, "resident", mapping_resident);
}
