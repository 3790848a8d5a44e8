{
  # Not at the package root: there it would become an install script of every user. `node scripts/build-addon.mjs` calls it.
  "variables": { "sluice_sources%": "unhashed" },
  "targets": [
    {
      "target_name": "sluice",
      "sources": [ "addon/addon.c", "addon/args.c", "addon/mapping.c", "addon/files.c" ],
      "defines": [ "NAPI_VERSION=8", "SLUICE_SOURCES=\"<(sluice_sources)\"" ],
      "cflags": [ "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden" ],
      "ldflags": [ "-Wl,-z,relro,-z,now", "-s" ]
    }
  ]
}
