// What the control groups of Linux (v1 and v2, nested) allow this process. Pure functions over the text of the files, which `read` hands in.
// Formats: kernel documentation, admin-guide/cgroup-v1/memory.rst and admin-guide/cgroup-v2.rst; proc(5) for mountinfo.

/** The text of a file, or undefined when it is not there or not readable. */
export type ReadText = (path: string) => string | undefined

export interface CgroupFolder {
  readonly version: 1 | 2
  /** Folders from the group of the process up to the root that is visible here. */
  readonly folders: readonly string[]
}

/** Memory of one group. */
export interface CgroupMemory {
  readonly path: string
  readonly version: 1 | 2
  /** Bytes; undefined when the group sets no limit. */
  readonly limitBytes: number | undefined
  /** Charged to the group and all below it: memory, page cache, kernel. */
  readonly usageBytes: number | undefined
  /** Part of usage that the kernel gives back at once under pressure: clean file pages. */
  readonly reclaimableBytes: number
  readonly peakBytes: number | undefined
}

// "No limit" is "max" in v2 and 2^63 rounded down to a page in v1. More than 2^53 bytes is no limit that a machine could reach.
function bytesOf(text: string | undefined): number | undefined {
  const value = text?.trim()
  if (value === undefined || !/^\d+$/.test(value)) return undefined
  const n = Number(value)
  return Number.isSafeInteger(n) ? n : undefined
}

function smallest(...values: (number | undefined)[]): number | undefined {
  const known = values.filter((v) => v !== undefined)
  return known.length === 0 ? undefined : Math.min(...known)
}

/** 'key value' lines, as in memory.stat and cpu.stat. */
export function parseStat(text: string | undefined): Map<string, number> {
  const out = new Map<string, number>()
  for (const line of text?.split('\n') ?? []) {
    const [key, value] = line.split(' ')
    const n = bytesOf(value)
    if (key !== undefined && n !== undefined) out.set(key, n)
  }
  return out
}

// mountinfo writes space, tab, newline and backslash as \ooo.
function unescapeMount(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, o: string) => String.fromCharCode(Number.parseInt(o, 8)))
}

// A hierarchy may be mounted several times. The mount that shows the path is the one; else the first, whose top then is our own group.
function mountedFolders(mountinfo: string, path: string, version: 1 | 2, controller: string): string[] | undefined {
  let fallback: string[] | undefined
  for (const mount of mountinfo.split('\n')) {
    // 36 35 98:0 /root /mount/point options [tags] - type source superoptions
    const [front, back] = mount.split(' - ')
    const fields = front?.split(' ') ?? []
    const [type, , options] = back?.split(' ') ?? []
    if (fields.length < 6 || type !== (version === 2 ? 'cgroup2' : 'cgroup')) continue
    if (version === 1 && !(options ?? '').split(',').includes(controller)) continue
    const root = unescapeMount(fields[3]!)
    const point = unescapeMount(fields[4]!)
    const below =
      root === '/' ? path : path === root ? '/' : path.startsWith(`${root}/`) ? path.slice(root.length) : undefined
    const parts = below?.split('/').filter((p) => p !== '')
    if (parts === undefined || parts.includes('..')) fallback ??= [point]
    else return [...parts.map((_, i) => [point, ...parts.slice(0, parts.length - i)].join('/')), point]
  }
  return fallback
}

/**
 * Where the groups of this process lie. `cgroup` is /proc/self/cgroup ("4:memory:/a/b", "0::/a/b"), `mountinfo` /proc/self/mountinfo.
 * In a container the path is often that of the host while the mount begins at the container's own group: then the mount itself is it.
 */
export function cgroupFolders(cgroup: string, mountinfo: string, controller: string): CgroupFolder[] {
  const found: CgroupFolder[] = []
  for (const line of cgroup.split('\n')) {
    const [id, controllers, ...rest] = line.split(':')
    const path = rest.join(':')
    if (id === undefined || controllers === undefined || !path.startsWith('/')) continue
    const version = id === '0' && controllers === '' ? 2 : 1
    if (version === 1 && !controllers.split(',').includes(controller)) continue
    const folders = mountedFolders(mountinfo, path, version, controller)
    if (folders !== undefined) found.push({ version, folders })
  }
  return found
}

/** Limit and use of one group. v2: memory.high counts as a limit, since above it the kernel slows the group down on purpose. */
export function readMemoryGroup(folder: string, version: 1 | 2, read: ReadText): CgroupMemory {
  const file = (name: string) => read(`${folder}/${name}`)
  const stat = parseStat(file('memory.stat'))
  const sum = (...keys: string[]) => keys.reduce((n, k) => n + (stat.get(k) ?? 0), 0)
  if (version === 2) {
    const clean = sum('active_file', 'inactive_file') - sum('file_dirty', 'file_writeback', 'file_mapped')
    return {
      path: folder,
      version,
      limitBytes: smallest(bytesOf(file('memory.max')), bytesOf(file('memory.high'))),
      usageBytes: bytesOf(file('memory.current')),
      reclaimableBytes: Math.max(0, clean),
      peakBytes: bytesOf(file('memory.peak')),
    }
  }
  const clean =
    sum('total_active_file', 'total_inactive_file') - sum('total_dirty', 'total_writeback', 'total_mapped_file')
  return {
    path: folder,
    version,
    // hierarchical_memory_limit also tells of groups above the mount, which cannot be seen from inside a container.
    limitBytes: smallest(
      unlimitedV1(bytesOf(file('memory.limit_in_bytes'))),
      unlimitedV1(stat.get('hierarchical_memory_limit')),
    ),
    usageBytes: bytesOf(file('memory.usage_in_bytes')),
    reclaimableBytes: Math.max(0, clean),
    peakBytes: bytesOf(file('memory.max_usage_in_bytes')),
  }
}

// 2^63 − 1 rounded down to a page is parsed as unsafe and so undefined already; some kernels cap lower, far above any machine.
function unlimitedV1(bytes: number | undefined): number | undefined {
  return bytes === undefined || bytes >= 2 ** 52 ? undefined : bytes
}

/** All groups that can limit the memory of this process, from its own upwards. Empty where there are none. */
export function readMemoryGroups(read: ReadText): CgroupMemory[] {
  const cgroup = read('/proc/self/cgroup')
  const mountinfo = read('/proc/self/mountinfo')
  if (cgroup === undefined || mountinfo === undefined) return []
  return cgroupFolders(cgroup, mountinfo, 'memory').flatMap(({ version, folders }) =>
    folders.map((f) => readMemoryGroup(f, version, read)),
  )
}

/** Processors' worth of time that the groups grant (quota / period), or undefined without a quota. May be a fraction. */
export function readCpuQuota(read: ReadText): number | undefined {
  const cgroup = read('/proc/self/cgroup')
  const mountinfo = read('/proc/self/mountinfo')
  if (cgroup === undefined || mountinfo === undefined) return undefined
  const quotas = cgroupFolders(cgroup, mountinfo, 'cpu').flatMap(({ version, folders }) =>
    folders.map((f) => {
      const [quota, period] =
        version === 2
          ? (read(`${f}/cpu.max`)?.trim().split(/\s+/) ?? []) // "max 100000" or "150000 100000"
          : [read(`${f}/cpu.cfs_quota_us`), read(`${f}/cpu.cfs_period_us`)] // -1 is none
      const q = bytesOf(quota)
      const p = bytesOf(period)
      return q === undefined || p === undefined || q === 0 || p === 0 ? undefined : q / p
    }),
  )
  return smallest(...quotas)
}
