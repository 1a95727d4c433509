#!/usr/bin/env bash
# check_offline.sh CMAKE BUILD SOURCE WORK: the archive of all sources configures where there is no network at all.
set -euo pipefail
cmake=$1 build=$2 source=$3 work=$4
[[ -f $build/kokkos-5.0.2.tar.gz ]] || { echo "skipped: this build uses an installed Kokkos"; exit 125; }
git -C "$source" rev-parse HEAD >/dev/null 2>&1 || { echo "skipped: $source is no git checkout, from which the archive is made"; exit 125; }
unshare -n ip link set lo up 2>/dev/null || { echo "skipped: unshare -n is not permitted here"; exit 125; }   # Open MPI's wrapper wants a loopback
rm -rf "$work" && mkdir -p "$work"
# without an index of Python packages the optional headers are left out
PIP_NO_INDEX=1 "$source/cmake/bundle-sources.sh" "$work/sources.tar.gz" "$build/kokkos-5.0.2.tar.gz"
tar xf "$work/sources.tar.gz" -C "$work"
# shellcheck disable=SC2016
unshare -n bash -c 'ip link set lo up && ! tail -n +3 /proc/self/net/dev | grep -v "^ *lo:" && "$1" -S "$2/tessera" -B "$2/build" -DCMAKE_BUILD_TYPE=Release' \
  offline "$cmake" "$work" >"$work/log" 2>&1 || { tail -20 "$work/log"; exit 1; }
grep -q "Build files have been written" "$work/log" && [[ -f $work/build/kokkos-5.0.2/CMakeLists.txt ]]
[[ ! -f $work/build/kokkos-5.0.2.tar.gz ]] || { echo "Kokkos was fetched, not taken from the archive"; exit 1; }
rm -rf "$work/build" "$work/tessera"
