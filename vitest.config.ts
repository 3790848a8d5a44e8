import { defineConfig } from 'vitest/config'

// Tests run on dist/, the files that are shipped: `npm test` builds first. Worker threads and addons
// are then loaded exactly as a user's process loads them.
export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    pool: 'forks',
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    server: { deps: { external: [/\/dist\//] } },
  },
})
