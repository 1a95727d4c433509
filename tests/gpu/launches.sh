#!/usr/bin/env bash
# How kernels reach a device: each with its rule as parameters. Kokkos copies rules that are too large for that to constant or global memory, and
# the host then waits for the previous kernel that was launched so.
#   tests/gpu/launches.sh LIBRARY...
set -euo pipefail
launches=$(nm -C "$@" | sed -n 's/.*cuda_parallel_launch_\([a-z]*\)_memory.*ParallelFor<\([^ ]*\).*/\1 \2/p' | sort -u)
echo "$(wc -l <<<"$launches") kernels"
grep -q '^local tessera::' <<<"$launches" || { echo "no kernel found: are they launched under other names now?"; exit 1; }
if grep -v '^local ' <<<"$launches"; then
  echo "these rules are larger than a kernel's parameters may be (4 KiB), or are launched without ByParameter (kernels/launch/launch.hpp)"
  exit 1
fi
