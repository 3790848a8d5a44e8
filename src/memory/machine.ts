// What this machine, its control groups and its limits really allow this process, and what the process takes.
import { readFileSync } from 'node:fs'
import { availableParallelism, freemem, totalmem } from 'node:os'
import { type CgroupMemory, type ReadText, readCpuQuota, readMemoryGroups } from './cgroup.ts'

export interface MachineMemory {
  /** The most this process could ever hold: the tightest of RAM, control groups and address space. Bytes. */
  readonly limitBytes: number
  /** What it could still take now without swapping or being killed. File cache that the kernel gives back counts as free. Bytes. */
  readonly availableBytes: number
  /** Which bound is the tightest on `availableBytes`: 'machine', 'rlimit', or the path of a control group. */
  readonly source: string
}

/** Facts that do not come from files. */
export interface MachineFacts {
  readonly totalBytes: number
  readonly freeBytes: number
  /** process.constrainedMemory(), where Node has it. */
  readonly constrainedBytes: number | undefined
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

function facts(): MachineFacts {
  return { totalBytes: totalmem(), freeBytes: freemem(), constrainedBytes: process.constrainedMemory?.() }
}

/** The number of a 'Key:  123 kB' line of /proc/meminfo or /proc/self/status, in bytes. */
export function procBytes(text: string | undefined, key: string): number | undefined {
  const match = text === undefined ? null : new RegExp(`^${key}:\\s+(\\d+) kB$`, 'm').exec(text)
  return match === null ? undefined : Number(match[1]) * 1024
}

/** The soft limit of 'Max address space' in /proc/self/limits; undefined when unlimited or not there. */
export function addressSpaceLimit(limits: string | undefined): number | undefined {
  const match = limits === undefined ? null : /^Max address space\s+(\d+)\s/m.exec(limits)
  const n = match === null ? Number.NaN : Number(match[1])
  return Number.isSafeInteger(n) ? n : undefined
}

/** Every group that holds this process counts: a child may be allowed more than is left in its parent. */
export function machineMemory(read: ReadText = readText, machine: MachineFacts = facts()): MachineMemory {
  const meminfo = read('/proc/meminfo')
  const bounds: MachineMemory[] = [
    {
      limitBytes: procBytes(meminfo, 'MemTotal') ?? machine.totalBytes,
      availableBytes: procBytes(meminfo, 'MemAvailable') ?? machine.freeBytes,
      source: 'machine',
    },
  ]
  for (const group of readMemoryGroups(read)) {
    if (group.limitBytes === undefined) continue
    const used = Math.max(0, (group.usageBytes ?? 0) - group.reclaimableBytes)
    bounds.push({
      limitBytes: group.limitBytes,
      availableBytes: Math.max(0, group.limitBytes - used),
      source: group.path,
    })
  }
  const { constrainedBytes } = machine
  if (constrainedBytes !== undefined && constrainedBytes > 0 && constrainedBytes < bounds[0]!.limitBytes) {
    const used = processResident(read)
    bounds.push({
      limitBytes: constrainedBytes,
      availableBytes: Math.max(0, constrainedBytes - used),
      source: 'constrained',
    })
  }
  const space = addressSpaceLimit(read('/proc/self/limits'))
  if (space !== undefined) {
    const mapped = procBytes(read('/proc/self/status'), 'VmSize') ?? 0
    bounds.push({ limitBytes: space, availableBytes: Math.max(0, space - mapped), source: 'rlimit' })
  }
  const limitBytes = Math.min(...bounds.map((b) => b.limitBytes))
  const tightest = bounds.reduce((a, b) => (b.availableBytes < a.availableBytes ? b : a))
  return {
    limitBytes,
    availableBytes: Math.min(tightest.availableBytes, limitBytes),
    source: tightest.source,
  }
}

/** Bytes of this process in RAM now, all threads and mappings (RSS). */
export function processResident(read: ReadText = readText): number {
  return procBytes(read('/proc/self/status'), 'VmRSS') ?? process.memoryUsage.rss()
}

/** The most bytes of this process that were in RAM at once so far (VmHWM). */
export function peakResident(read: ReadText = readText): number {
  return procBytes(read('/proc/self/status'), 'VmHWM') ?? process.resourceUsage().maxRSS * 1024
}

/**
 * Memory of the control group that would kill this process first: the one with the least room, else its own. Usage holds the page cache charged
 * to it. Undefined where there are no groups or they cannot be read.
 */
export function cgroupMemory(read: ReadText = readText): CgroupMemory | undefined {
  const groups = readMemoryGroups(read).filter((g) => g.usageBytes !== undefined)
  const room = (g: CgroupMemory) => (g.limitBytes ?? Number.POSITIVE_INFINITY) - g.usageBytes!
  return groups.reduce<CgroupMemory | undefined>((a, b) => (a === undefined || room(b) < room(a) ? b : a), undefined)
}

/** How many processors a list like '0-3,8,10-11' (Cpus_allowed_list) names. */
export function countCpuList(list: string): number | undefined {
  let n = 0
  for (const part of list.trim().split(',')) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(part)
    if (match === null) return undefined
    n += Number(match[2] ?? match[1]) - Number(match[1]) + 1
  }
  return n > 0 ? n : undefined
}

/**
 * Threads worth starting: processors this process may run on, and no more than the time its groups grant. A quota of 2.5 gives 2:
 * threads that wait for each other at every layer stand still when one of them is out of time. At least 1.
 */
export function cpuCount(read: ReadText = readText, parallelism: number = availableParallelism()): number {
  const list = /^Cpus_allowed_list:\s+(\S+)$/m.exec(read('/proc/self/status') ?? '')?.[1]
  const allowed = Math.min(parallelism, (list === undefined ? undefined : countCpuList(list)) ?? parallelism)
  const quota = readCpuQuota(read)
  return Math.max(1, Math.min(allowed, quota === undefined ? allowed : Math.floor(quota)))
}

/**
 * Address space this process may still map (ulimit -v), in bytes; Infinity where there is no limit or it cannot be told. V8 ends the whole
 * process when it cannot map what a new thread needs, so this has to be known before.
 */
export function addressSpaceLeft(read: ReadText = readText): number {
  const limit = addressSpaceLimit(read('/proc/self/limits'))
  const used = procBytes(read('/proc/self/status'), 'VmSize')
  return limit === undefined || used === undefined ? Number.POSITIVE_INFINITY : Math.max(0, limit - used)
}
