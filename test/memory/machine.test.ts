// What machine and control groups allow, from the literal text of their files, and once from the real ones.
import { totalmem } from 'node:os'
import { expect, test } from 'vitest'
import { cgroupFolders, type ReadText } from '#sluice/memory/cgroup.js'
import {
  addressSpaceLimit,
  cgroupMemory,
  countCpuList,
  cpuCount,
  machineMemory,
  peakResident,
  procBytes,
  processResident,
} from '#sluice/memory/machine.js'

const G = 1024 ** 3
const M = 1024 ** 2
const files =
  (f: Record<string, string>): ReadText =>
  (path) =>
    f[path]
const machine = { totalBytes: 99 * G, freeBytes: 98 * G, constrainedBytes: undefined }

const meminfo = `MemTotal:       32768000 kB
MemFree:         1024000 kB
MemAvailable:   16384000 kB
Buffers:          204800 kB
`
const AVAILABLE = 16384000 * 1024

// Taken from a host with cgroup v2 and systemd.
const v2mounts = `24 30 0:22 / /proc rw,nosuid - proc proc rw
31 24 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`
const v2stat = `anon 104857600
file 524288000
file_mapped 20971520
file_dirty 10485760
file_writeback 0
inactive_file 314572800
active_file 209715200
slab_reclaimable 1048576
`

// Taken from a host with cgroup v1.
const v1mounts = `30 24 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
35 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
36 30 0:31 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:14 - cgroup cgroup rw,memory
37 30 0:32 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
`
const v1groups = '9:name=systemd:/\n4:memory:/job/step\n2:cpu,cpuacct:/job\n0::/\n'

test('no groups: the machine, file cache counted as free', () => {
  expect(machineMemory(files({ '/proc/meminfo': meminfo }), machine)).toEqual({
    limitBytes: 32768000 * 1024,
    availableBytes: AVAILABLE,
    source: 'machine',
  })
  // Not Linux: what Node says.
  expect(machineMemory(files({}), machine)).toEqual({ limitBytes: 99 * G, availableBytes: 98 * G, source: 'machine' })
})

test('v2: the limit less what is used, clean file cache counted as free', () => {
  const group = '/sys/fs/cgroup/user.slice/run.scope'
  const read = files({
    '/proc/meminfo': meminfo,
    '/proc/self/cgroup': '0::/user.slice/run.scope\n',
    '/proc/self/mountinfo': v2mounts,
    [`${group}/memory.max`]: `${2 * G}\n`,
    [`${group}/memory.high`]: 'max\n',
    [`${group}/memory.current`]: `${700 * M}\n`,
    [`${group}/memory.peak`]: `${900 * M}\n`,
    [`${group}/memory.stat`]: v2stat,
    '/sys/fs/cgroup/user.slice/memory.max': 'max\n',
    '/sys/fs/cgroup/user.slice/memory.current': `${20 * G}\n`,
  })
  // clean cache: 300 + 200 MiB, less 10 dirty and 20 mapped
  expect(machineMemory(read, machine)).toEqual({
    limitBytes: 2 * G,
    availableBytes: 2 * G - 700 * M + 470 * M,
    source: group,
  })
  expect(cgroupMemory(read)).toMatchObject({ path: group, usageBytes: 700 * M, peakBytes: 900 * M, version: 2 })
})

test('v2: memory.high is a limit, and so is a parent with less room', () => {
  const base = {
    '/proc/meminfo': meminfo,
    '/proc/self/cgroup': '0::/a/b/c\n',
    '/proc/self/mountinfo': v2mounts,
    '/sys/fs/cgroup/a/b/c/memory.max': `${4 * G}\n`,
    '/sys/fs/cgroup/a/b/c/memory.current': `${G}\n`,
    '/sys/fs/cgroup/a/b/memory.max': 'max\n',
    '/sys/fs/cgroup/a/b/memory.current': `${G}\n`,
    '/sys/fs/cgroup/a/memory.max': `${6 * G}\n`,
    '/sys/fs/cgroup/a/memory.current': `${5 * G}\n`,
  }
  expect(machineMemory(files(base), machine)).toEqual({
    limitBytes: 4 * G,
    availableBytes: G,
    source: '/sys/fs/cgroup/a',
  })
  const high = { ...base, '/sys/fs/cgroup/a/b/c/memory.high': `${1.5 * G}\n` }
  expect(machineMemory(files(high), machine)).toEqual({
    limitBytes: 1.5 * G,
    availableBytes: 0.5 * G,
    source: '/sys/fs/cgroup/a/b/c',
  })
})

test('v1: nested groups, and the huge number that means no limit', () => {
  const read = (limits: Record<string, string>) =>
    files({ '/proc/meminfo': meminfo, '/proc/self/cgroup': v1groups, '/proc/self/mountinfo': v1mounts, ...limits })
  const none = '9223372036854771712\n'
  const unlimited = read({
    '/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes': none,
    '/sys/fs/cgroup/memory/job/step/memory.usage_in_bytes': `${M}\n`,
    '/sys/fs/cgroup/memory/job/step/memory.stat': 'hierarchical_memory_limit 9223372036854771712\n',
    '/sys/fs/cgroup/memory/memory.limit_in_bytes': none,
  })
  expect(machineMemory(unlimited, machine).source).toBe('machine')
  const parent = read({
    '/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes': none,
    '/sys/fs/cgroup/memory/job/step/memory.usage_in_bytes': `${100 * M}\n`,
    '/sys/fs/cgroup/memory/job/memory.limit_in_bytes': `${600 * M}\n`,
    '/sys/fs/cgroup/memory/job/memory.usage_in_bytes': `${500 * M}\n`,
    '/sys/fs/cgroup/memory/job/memory.max_usage_in_bytes': `${550 * M}\n`,
    '/sys/fs/cgroup/memory/job/memory.stat':
      'cache 1\ninactive_file 999999999999\ntotal_inactive_file 209715200\ntotal_active_file 104857600\ntotal_dirty 0\n',
  })
  expect(machineMemory(parent, machine)).toEqual({
    limitBytes: 600 * M,
    availableBytes: 400 * M,
    source: '/sys/fs/cgroup/memory/job',
  })
  expect(cgroupMemory(parent)).toMatchObject({ path: '/sys/fs/cgroup/memory/job', peakBytes: 550 * M })
  // A limit above the mount is only told by hierarchical_memory_limit.
  const above = read({
    '/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes': none,
    '/sys/fs/cgroup/memory/job/step/memory.usage_in_bytes': `${100 * M}\n`,
    '/sys/fs/cgroup/memory/job/step/memory.stat': `hierarchical_memory_limit ${300 * M}\n`,
  })
  expect(machineMemory(above, machine)).toMatchObject({ limitBytes: 300 * M, availableBytes: 200 * M })
})

test('containers: the mount begins at the group of the container', () => {
  const docker = '/docker/0123456789ab'
  const mounts = `700 600 0:31 ${docker} /sys/fs/cgroup/memory ro,nosuid master:14 - cgroup cgroup rw,memory\n`
  expect(cgroupFolders(`4:memory:${docker}\n`, mounts, 'memory')).toEqual([
    { version: 1, folders: ['/sys/fs/cgroup/memory'] },
  ])
  expect(cgroupFolders(`4:memory:${docker}/inner\n`, mounts, 'memory')).toEqual([
    { version: 1, folders: ['/sys/fs/cgroup/memory/inner', '/sys/fs/cgroup/memory'] },
  ])
  // Another namespace: a path that is not below the mount's root, or climbs.
  for (const path of ['/elsewhere', `${docker}x`, '/../sibling'])
    expect(cgroupFolders(`4:memory:${path}\n`, mounts, 'memory')[0]!.folders).toEqual(['/sys/fs/cgroup/memory'])
  // Mounted twice: the mount that shows our path is taken, whichever comes first.
  const twice = `1 1 0:1 /other /one rw - cgroup2 x rw\n2 1 0:1 / /two rw - cgroup2 x rw\n`
  expect(cgroupFolders('0::/a\n', twice, 'memory')[0]!.folders).toEqual(['/two/a', '/two'])
  // A mount point with a space.
  expect(cgroupFolders('0::/a\n', '1 1 0:1 / /my\\040cgroups rw - cgroup2 x rw\n', 'memory')[0]!.folders[0]).toBe(
    '/my cgroups/a',
  )
})

test('the address space limit and Node’s own word count too', () => {
  const limits = (soft: string) => `Limit                     Soft Limit           Hard Limit           Units     
Max address space         ${soft.padEnd(20)} unlimited            bytes     
`
  expect(addressSpaceLimit(limits('unlimited'))).toBeUndefined()
  expect(addressSpaceLimit(limits('8589934592'))).toBe(8 * G)
  expect(addressSpaceLimit(undefined)).toBeUndefined()
  const f = {
    '/proc/meminfo': meminfo,
    '/proc/self/limits': limits('8589934592'),
    '/proc/self/status': 'VmSize:\t 1048576 kB\nVmRSS:\t  102400 kB\n',
  }
  expect(machineMemory(files(f), machine)).toEqual({ limitBytes: 8 * G, availableBytes: 7 * G, source: 'rlimit' })
  expect(machineMemory(files(f), { ...machine, constrainedBytes: G })).toEqual({
    limitBytes: G,
    availableBytes: G - 100 * M,
    source: 'constrained',
  })
  // Node 20 says 2^64 when nothing constrains it.
  expect(machineMemory(files(f), { ...machine, constrainedBytes: 2 ** 64 }).source).toBe('rlimit')
})

test('odd or missing files are no limit and no crash', () => {
  const texts = ['', '\n', 'garbage', '0::', '4:memory', '::', '0::/a\n0::/b', '-1', 'max', 'NaN', '1e99']
  for (const cgroup of texts)
    for (const other of texts) {
      const read: ReadText = (path) =>
        path === '/proc/self/cgroup' ? cgroup : path === '/proc/self/mountinfo' ? v2mounts : other
      const m = machineMemory(read, machine)
      expect(m.limitBytes).toBe(99 * G)
      expect(cpuCount(read, 4)).toBe(4)
    }
})

test('processors: affinity and quota', () => {
  expect(countCpuList('0')).toBe(1)
  expect(countCpuList('0-3,8,10-11')).toBe(7)
  expect(countCpuList('')).toBeUndefined()
  expect(countCpuList('a-b')).toBeUndefined()
  const v2 = (max: string, parent = 'max 100000') =>
    files({
      '/proc/self/cgroup': '0::/a/b\n',
      '/proc/self/mountinfo': v2mounts,
      '/sys/fs/cgroup/a/b/cpu.max': max,
      '/sys/fs/cgroup/a/cpu.max': parent,
    })
  expect(cpuCount(v2('max 100000\n'), 16)).toBe(16)
  expect(cpuCount(v2('400000 100000\n'), 16)).toBe(4)
  expect(cpuCount(v2('250000 100000\n'), 16)).toBe(2)
  expect(cpuCount(v2('50000 100000\n'), 16)).toBe(1)
  expect(cpuCount(v2('800000 100000\n'), 4)).toBe(4)
  expect(cpuCount(v2('max 100000\n', '300000 100000\n'), 16)).toBe(3)
  const v1 = (quota: string) =>
    files({
      '/proc/self/cgroup': v1groups,
      '/proc/self/mountinfo': v1mounts,
      '/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us': quota,
      '/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us': '100000\n',
      '/proc/self/status': 'Cpus_allowed:\tff\nCpus_allowed_list:\t0-7\n',
    })
  expect(cpuCount(v1('-1\n'), 16)).toBe(8)
  expect(cpuCount(v1('200000\n'), 16)).toBe(2)
})

test('this machine', () => {
  const m = machineMemory()
  expect(m.limitBytes).toBeGreaterThan(100 * M)
  expect(m.limitBytes).toBeLessThanOrEqual(totalmem())
  expect(m.availableBytes).toBeGreaterThan(0)
  expect(m.availableBytes).toBeLessThanOrEqual(m.limitBytes)
  const rss = processResident()
  expect(Math.abs(rss - process.memoryUsage.rss())).toBeLessThan(64 * M)
  expect(peakResident()).toBeGreaterThanOrEqual(rss - 16 * M)
  expect(cpuCount()).toBeGreaterThanOrEqual(1)
})

test('touching memory shows in the resident size', () => {
  const before = processResident()
  const touched = Buffer.alloc(64 * M, 1)
  const after = processResident()
  expect(after - before).toBeGreaterThan(48 * M)
  expect(peakResident()).toBeGreaterThanOrEqual(after - 16 * M)
  expect(touched[5]).toBe(1)
})

test('lines of proc', () => {
  expect(procBytes(meminfo, 'MemAvailable')).toBe(AVAILABLE)
  expect(procBytes(meminfo, 'Mem')).toBeUndefined()
  expect(procBytes(undefined, 'MemTotal')).toBeUndefined()
})
