#!/usr/bin/env bash
# Collects, on a Debian 12 machine with network, what tests/gpu/run.sh --packages takes along to one that has a driver, the CUDA toolkit,
# g++ and cmake, but neither network nor MPI and HDF5: Debian packages, Kokkos' source and cuDNN's frontend. About 45 MB.
#   tests/gpu/collect_packages.sh DIR
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ $# == 1 ]] || { sed -n '2,4p' "$0" >&2; exit 64; }
mkdir -p "$1"
into=$(cd "$1" && pwd)
roots=(libopenmpi-dev openmpi-bin libhdf5-dev libdnnl-dev nlohmann-json3-dev libfmt-dev libspdlog-dev libhwloc-dev libxxhash-dev libpcre2-dev libutf8proc-dev libyaml-dev
       zlib1g-dev libzstd-dev libgtest-dev libgmock-dev pkgconf ninja-build)
# What every machine has, what only matters with real networks or debuggers, and documentation.
skip='^(libc6.*|libgcc.*|libgomp.*|libatomic1|gcc-.*|g\+\+.*|cpp-.*|libstdc\+\+.*|linux-libc-dev|debconf.*|perl.*|python3.*|libpython.*|dpkg.*|tar|bzip2|xz-utils|passwd|adduser|openssh.*'
skip+='|libcrypt.*|libssl-dev|libssl.*|openssl|ca-certificates|libsystemd.*|libdb.*|libx11.*|libxext.*|libxnvctrl.*|libcairo.*|opencl.*|libllvm.*|libz3.*'
skip+='|libcoarrays.*|gfortran.*|libgfortran.*|libjs-.*|javascript-common|libcurl4-.*-dev|libaec-dev|libibverbs-dev|libnuma-dev|valgrind|libgtk.*|cmake.*|libpam.*|libaudit.*|init-.*|lsb-base|media-types|mime-support|libpmix-dev)$'
seen=" "
collect() {   # PACKAGE: it and what it depends on
  local package=$1 next
  [[ $seen == *" $package "* || $package =~ $skip ]] && return 0
  seen+="$package "
  while read -r next; do collect "$next"; done < <(apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances "$package" 2>/dev/null |
    sed -n 's/^ *|\{0,1\}\(PreDepends\|Depends\): \([^<].*\)$/\2/p')
}
for package in "${roots[@]}"; do collect "$package"; done
(cd "$into" && read -r -a names <<<"$seen" && for name in "${names[@]}"; do apt-get download -qq "$name" 2>/dev/null || echo "not a package of its own: $name"; done)
cmake/get-kokkos.sh "$into/kokkos-5.0.2.tar.gz"
# The wheel is headers and a Python module; the headers suffice.
if [[ ! -e $into/cudnn_frontend.tar.gz ]]; then
  if cmake/get-cudnn-frontend.sh "$into/frontend.tmp"; then tar -czf "$into/cudnn_frontend.tar.gz" -C "$into/frontend.tmp" include
  else echo "cuDNN's frontend could not be had from PyPI; the run will use the portable attention"; fi
  rm -rf "$into/frontend.tmp"
fi
du -sh "$into"
