#!/usr/bin/env bash
# Builds Tessera for aarch64 on an x86-64 Debian 12, and runs unit tests and the main scenarios under qemu-user.
#
#   tests/install/aarch64.sh [OPTIONS] [STEP ...]
#
# Steps, all by default
#   packages      cross compiler and qemu-user by apt (root)
#   sysroot DIR   Debian's packages for arm64, unpacked into DIR (default: TESSERA_SYSROOT, else build/aarch64-sysroot); nothing is installed on this machine
#   programs      tessera-train and tessera, preset host-aarch64
#   scenarios     training, resume, consolidation and generation on one rank and on two, GPT-2 and Llama, compared with this machine's programs, which
#                 also resume what the emulated ones saved (tests/install/two_builds.py)
#   tests         the unit tests of the layers in TESSERA_AARCH64_LAYERS (default: all below train), one after the other
#   cuda DIR      not by default: configures the preset cuda with the toolkit in DIR, builds tessera-train and tessera and starts them without a GPU.
#                 DIR has bin and nvvm of this machine's toolkit, and in targets/aarch64-linux NVIDIA's libraries and headers for sbsa, those of NCCL
#                 and cuDNN, and a lib/stubs/libcuda.so
#
# Options
#   --programs DIR  programs of this machine for the step scenarios  (default: build/quickstart/bin)
#   --jobs N        compile jobs                                     (default: number of cores)
#
# Ranks are started by this machine's mpiexec, the same Open MPI as the ranks'. It needs qemu as the kernel's interpreter of aarch64 programs
# (binfmt_misc), which the package qemu-user-static registers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tests/install/aarch64.sh; }
die() { echo "aarch64: $2" >&2; exit "$1"; }
say() { echo "== $*"; }

jobs=$(nproc) sysroot=${TESSERA_SYSROOT:-build/aarch64-sysroot} toolkit='' programs=build/quickstart/bin steps=()
layers=${TESSERA_AARCH64_LAYERS:-core memory kernels optim model zero checkpoint data config}
while [[ $# -gt 0 ]]; do
  case $1 in
    --jobs|--programs|cuda)
      [[ $# -ge 2 ]] || die 64 "$1 needs a value; see --help"
      case $1 in --jobs) jobs=$2 ;; --programs) programs=$2 ;; cuda) steps+=("$1"); toolkit=$(realpath "$2") ;; esac
      shift ;;
    packages|programs|scenarios|tests) steps+=("$1") ;;
    sysroot)
      steps+=("$1")
      case ${2:-} in ''|-*|packages|programs|scenarios|tests|cuda) ;; *) sysroot=$2; shift ;; esac ;;
    -h|--help) usage; exit 0 ;;
    *) die 64 "unknown argument '$1'; see --help" ;;
  esac
  shift
done
[[ ${#steps[@]} -gt 0 ]] || steps=(packages sysroot programs scenarios tests)
[[ ${steps[*]} != *scenarios* || (-x $programs/tessera-train && -x $programs/zero-to-fp32) ]] ||
  die 125 "no tessera-train and zero-to-fp32 of this machine in $programs; build them, or name their folder with --programs DIR"   # ctest: skipped
mkdir -p "$sysroot"
sysroot=$(realpath "$sysroot")
build=build/host-aarch64
export OMPI_MCA_btl_vader_single_copy_mechanism=none   # qemu-user has no process_vm_readv
export TESSERA_SYSROOT=$sysroot QEMU_LD_PREFIX=$sysroot CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD}

install_packages() {
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++-aarch64-linux-gnu qemu-user-static binfmt-support debian-archive-keyring >/dev/null
  [[ -e /proc/sys/fs/binfmt_misc/register ]] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
  update-binfmts --enable qemu-aarch64
}

# The packages of quickstart.sh that hold libraries and headers, with what they depend on, by an apt of its own folder.
make_sysroot() {
  local apt=$sysroot/apt packages=() options package link target
  eval "$(sed -n '/^packages=(/,/)/p' quickstart.sh)"
  read -ra packages <<<"$(printf '%s\n' "${packages[@]}" | grep -E '^lib|-dev$' | tr '\n' ' ')"
  packages+=(libc6-dev libstdc++-12-dev libgtest-dev libgmock-dev jargon-text)
  mkdir -p "$apt"/{lists,archives}/partial
  touch "$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" >"$apt/sources.list"
  options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt"
           -o Dir::Etc::sourcelist="$apt/sources.list" -o Dir::Etc::sourceparts=- -o APT::Install-Recommends=false -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  apt-get "${options[@]}" install -y --download-only "${packages[@]}"
  for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$sysroot"; done
  # links to absolute paths would leave the folder
  find "$sysroot" -type l -lname '/*' | while read -r link; do
    target=$sysroot$(readlink "$link")
    [[ ! -e $target ]] || ln -sfnr "$target" "$link"
  done
}

# One build tree, with contracts, for programs and tests.
configure() {
  mkdir -p build
  cmake --preset host-aarch64 -DTESSERA_BUILD_TESTS=ON -DTESSERA_BUILD_BENCH=OFF -DTESSERA_UNITY=ON -DTESSERA_ASSERTIONS=ON \
    "-DTESSERA_TEST_FOLDERS=${layers// /;}" "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG" >$build.log 2>&1 ||
    { tail -30 $build.log >&2; die 70 "configuring failed; the complete log is in $build.log"; }
}

build_programs() {
  configure
  cmake --build $build --parallel "$jobs" --target tessera-train tessera
}

run_unit_tests() {
  local targets
  configure
  mapfile -t targets < <(ninja -C $build -t targets all | sed -n 's/^\(test\.[a-z0-9_.]*\): phony$/\1/p')
  cmake --build $build --parallel "$jobs" --target "${targets[@]}"
  # qemu-user 7.2 grants MADV_POPULATE_WRITE without doing it, and ignores the limit of the address space
  export GTEST_FILTER=-Buffer.PopulateGivesEveryPageItsPlaceAndKeepsTheContent:OutOfMemory.KnowsTheAddressSpaceLimit:SaverOverRanks.ReservedMemoryHasItsPagesBeforeTheFirstSave
  ctest --test-dir $build -LE 'matrix|slow' --timeout 1200 --output-on-failure
}

run_scenarios() {
  tests/install/two_builds.py --bin "$programs" --other $build/bin --source . --work $build/two_builds --mpiexec mpiexec
}

compile_cuda() {
  local tree=build/cuda-aarch64 program
  export NVCC_PREPEND_FLAGS="--target-directory aarch64-linux -Xcompiler=--sysroot=$sysroot"
  mkdir -p build
  cmake --preset cuda -B $tree --toolchain "$PWD/cmake/aarch64-linux-gnu.cmake" "-DCMAKE_CUDA_COMPILER=$toolkit/bin/nvcc" "-DCUDAToolkit_ROOT=$toolkit" \
    "-DCMAKE_FIND_ROOT_PATH=$toolkit/targets/aarch64-linux" -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_BENCH=OFF -DTESSERA_UNITY=ON \
    -DTESSERA_CUDA_ARCHITECTURES=90 >$tree.log 2>&1 || { tail -30 $tree.log >&2; die 70 "configuring failed; the complete log is in $tree.log"; }
  cmake --build $tree --parallel "$jobs" --target tessera-train tessera
  for program in tessera tessera-train; do
    qemu-aarch64-static -E LD_LIBRARY_PATH="$toolkit/targets/aarch64-linux/lib:$sysroot/usr/lib/aarch64-linux-gnu/openblas-openmp" $tree/bin/$program --version
  done
}

for step in "${steps[@]}"; do
  say "$step"
  [[ $step == packages ]] || { command -v aarch64-linux-gnu-g++ && command -v qemu-aarch64-static; } >/dev/null ||
    die 125 "no aarch64-linux-gnu-g++ or qemu-aarch64-static; run the step packages first"   # ctest: skipped
  case $step in
    packages) install_packages ;;
    sysroot) make_sysroot ;;
    programs) build_programs ;;
    scenarios) run_scenarios ;;
    tests) run_unit_tests ;;
    cuda) compile_cuda ;;
  esac
done
