#!/usr/bin/env bash
# On a machine with internet: puts Tessera's committed sources, and every source that a build would fetch, into one archive for a machine without.
#   cmake/bundle-sources.sh FILE.tar.gz [KOKKOS_TARBALL]
# There: tar xf FILE.tar.gz && cd tessera && cmake --preset host. The configuration finds the folder vendor of the archive and fetches nothing.
set -euo pipefail
[[ $# -ge 1 && $# -le 2 ]] || { sed -n '2,4p' "$0" >&2; exit 64; }
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) out=$(realpath -m "$1") kokkos=${2:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/tessera/vendor"
git -C "$source" archive HEAD | tar x -C "$work/tessera"
vendor=$work/tessera/vendor
[[ -z $kokkos ]] || cp "$kokkos" "$vendor/kokkos-5.0.2.tar.gz"
"$source/cmake/get-kokkos.sh" "$vendor/kokkos-5.0.2.tar.gz"   # accepts a file of the right SHA-256
"$source/cmake/get-cudnn-frontend.sh" "$vendor/cudnn-frontend" ||
  echo "bundle-sources: without the headers of cuDNN's frontend; builds for GPUs then use Tessera's own attention kernel" >&2
[[ -d $vendor/cudnn-frontend/include ]] || rm -rf "$vendor/cudnn-frontend"
tar czf "$out" -C "$work" tessera
echo "$out: $(du -h "$out" | cut -f1)"
