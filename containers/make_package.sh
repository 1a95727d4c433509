#!/usr/bin/env bash
# For images (Dockerfile, tessera.def), as root of a bare Debian 12: quickstart.sh installs what is missing, builds, trains for two steps and consolidates;
# then build/package/tessera.deb is made, which names the libraries that it needs.
#   [MPI=mpich] make_package.sh [ARCH]     MPI: openmpi (default) or mpich, Debian's. ARCH: TESSERA_ARCH of the programs (default: x86-64-v3, for processors from about 2015 on)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=build/image
mkdir -p "$build"
[[ -f $build/CMakeCache.txt ]] || echo "TESSERA_ARCH:STRING=${1:-x86-64-v3}" >"$build/CMakeCache.txt"   # quickstart.sh would build for this machine
./quickstart.sh --build-dir "$build" --output_dir build/image-run --max_steps 2
apt-get install -y -qq --no-install-recommends dpkg-dev file >/dev/null
if [[ ${MPI:-openmpi} == mpich ]]; then   # quickstart.sh trains with the machine's default, Open MPI
  apt-get install -y -qq --no-install-recommends libmpich-dev mpich >/dev/null
  cmake -S . -B "$build-mpich" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_BENCH=OFF -DTESSERA_UNITY=ON \
    "-DTESSERA_ARCH=${1:-x86-64-v3}" -DMPI_CXX_COMPILER=mpicxx.mpich
  build=$build-mpich
fi
cmake --build "$build"
cpack --config "$build/CPackConfig.cmake" -G DEB -B build/package
mv build/package/tessera_*.deb build/package/tessera.deb
