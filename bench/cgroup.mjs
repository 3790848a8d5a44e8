// Runs a command inside a memory control group of its own (v1 or v2) and says what it was charged, page cache included.
// Needs root on Linux. The group would kill the command if it went over the limit.
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs'

const V1 = '/sys/fs/cgroup/memory'
const isV1 = existsSync(`${V1}/memory.limit_in_bytes`)
const ROOT = isV1 ? V1 : '/sys/fs/cgroup'

/** Why control groups cannot be used here, or undefined. */
export function cgroupProblem() {
  if (process.platform !== 'linux') return 'control groups are a Linux feature'
  if (process.getuid?.() !== 0) return 'making a control group needs root'
  if (!isV1 && !existsSync('/sys/fs/cgroup/cgroup.controllers')) return 'no memory control group is mounted'
  return undefined
}

const read = (file) => {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch {
    return ''
  }
}

/** → {code, signal, stdout, stderr, wallMs, limitBytes, peakBytes, oomKills}. peakBytes: highest charge, page cache included. */
export async function runLimited(limitBytes, command, args, options = {}) {
  const group = `${ROOT}/sluice-bench-${process.pid}-${Date.now()}`
  mkdirSync(group)
  try {
    writeFileSync(`${group}/${isV1 ? 'memory.limit_in_bytes' : 'memory.max'}`, String(limitBytes))
    try {
      writeFileSync(
        `${group}/${isV1 ? 'memory.memsw.limit_in_bytes' : 'memory.swap.max'}`,
        isV1 ? String(limitBytes) : '0',
      )
    } catch {
      // no swap accounting: nothing to forbid
    }
    const started = performance.now()
    const child = spawn('/bin/sh', ['-c', `echo $$ > ${group}/cgroup.procs; exec "$@"`, 'sh', command, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      ...options,
    })
    let stdout = ''
    let stderr = ''
    child.stdout.on('data', (d) => (stdout += d))
    child.stderr.on('data', (d) => (stderr += d))
    const [code, signal] = await new Promise((resolve) => child.on('close', (c, s) => resolve([c, s])))
    const peakBytes = Number(read(`${group}/${isV1 ? 'memory.max_usage_in_bytes' : 'memory.peak'}`)) || undefined
    const oomKills = Number(
      /oom_kill (\d+)/.exec(read(`${group}/${isV1 ? 'memory.oom_control' : 'memory.events'}`))?.[1] ?? 0,
    )
    return { code, signal, stdout, stderr, wallMs: performance.now() - started, limitBytes, peakBytes, oomKills }
  } finally {
    if (isV1)
      try {
        writeFileSync(`${group}/memory.force_empty`, '0')
      } catch {
        // pages in use elsewhere stay charged to the parent
      }
    for (let i = 0; i < 50; i++) {
      try {
        rmdirSync(group)
        break
      } catch {
        await new Promise((r) => setTimeout(r, 100))
      }
    }
  }
}
