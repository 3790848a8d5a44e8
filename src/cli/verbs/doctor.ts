// sluice doctor: what this machine offers and what would be used.
import type { Command } from 'commander'
import { formatBytes } from '../../base/bytes.ts'
import { jsonOption } from '../options.ts'
import { version } from '../version.ts'

async function hasMmapIo(): Promise<boolean> {
  try {
    await import('mmap-io')
    return true
  } catch {
    return false
  }
}

async function doctor(options: { json?: boolean }): Promise<void> {
  const { selectKernels } = await import('../../kernels/select.ts')
  const { cpuCount, machineMemory, processResident } = await import('../../memory/machine.ts')
  const { loadAddon } = await import('../../source/addon.ts')
  const memory = machineMemory()
  const kernels = await selectKernels()
  const facts = {
    version,
    node: process.version,
    v8: process.versions.v8,
    platform: `${process.platform}-${process.arch}`,
    cpus: cpuCount(),
    memory: {
      limitBytes: memory.limitBytes,
      availableBytes: memory.availableBytes,
      source: memory.source,
      residentBytes: processResident(),
    },
    kernels: { set: kernels.set, reason: kernels.reason },
    addon: loadAddon() !== undefined,
    mmapIo: await hasMmapIo(),
  }
  if (options.json) {
    console.log(JSON.stringify(facts))
    return
  }
  const rows: [string, string][] = [
    ['sluice', `${version} on Node ${facts.node} (V8 ${facts.v8}), ${facts.platform}`],
    ['cores', `${facts.cpus} usable`],
    [
      'memory',
      `${formatBytes(memory.availableBytes)} available of ${formatBytes(memory.limitBytes)} (${memory.source})`,
    ],
    ['kernels', `${kernels.set}: ${kernels.reason}`],
    ['mapping addon', facts.addon ? 'loaded' : 'not available: files are read with pread'],
    ['mmap-io', facts.mmapIo ? 'available' : 'not installed (optional)'],
  ]
  for (const [name, text] of rows) console.log(`${name.padEnd(14)} ${text}`)
}

export function register(program: Command): void {
  program
    .command('doctor')
    .description('show what this machine offers: cores, memory, kernels, I/O')
    .addOption(jsonOption())
    .addHelpText('after', '\nExamples:\n  sluice doctor\n  sluice doctor --json')
    .action(doctor)
}
