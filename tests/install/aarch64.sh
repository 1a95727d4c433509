#!/usr/bin/env bash
# Builds Tessera for aarch64 on an x86-64 Debian 12 and runs unit tests under qemu-user.
#
#   tests/install/aarch64.sh [OPTIONS] [STEP ...]
#
# Steps, all by default
#   packages      cross compiler and qemu-user by apt (root)
#   sysroot DIR   Debian's packages for arm64, unpacked into DIR (default: build/aarch64-sysroot); nothing is installed on this machine
#   programs      tessera-train and tessera, preset host-aarch64
#   tests         the unit tests of the layers in TESSERA_AARCH64_LAYERS (default: core), one after the other
#
# Options
#   --jobs N      compile jobs                                  (default: number of cores)
#
# Ranks are started by this machine's mpiexec, the same Open MPI as the ranks'. It needs qemu as the kernel's interpreter of aarch64 programs
# (binfmt_misc), which the package qemu-user-static registers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tests/install/aarch64.sh; }
die() { echo "aarch64: $2" >&2; exit "$1"; }
say() { echo "== $*"; }

jobs=$(nproc) sysroot=build/aarch64-sysroot steps=()
layers=${TESSERA_AARCH64_LAYERS:-core}
while [[ $# -gt 0 ]]; do
  case $1 in
    --jobs)
      [[ $# -ge 2 ]] || die 64 "$1 needs a value; see --help"
      jobs=$2
      shift ;;
    packages|programs|tests) steps+=("$1") ;;
    sysroot)
      steps+=("$1")
      case ${2:-} in ''|-*|packages|programs|tests) ;; *) sysroot=$2; shift ;; esac ;;
    -h|--help) usage; exit 0 ;;
    *) die 64 "unknown argument '$1'; see --help" ;;
  esac
  shift
done
[[ ${#steps[@]} -gt 0 ]] || steps=(packages sysroot tests programs)
mkdir -p "$sysroot"
sysroot=$(realpath "$sysroot")
build=build/host-aarch64
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
  OMPI_MCA_btl=self,tcp ctest --test-dir $build -LE 'matrix|slow' --timeout 1200 --output-on-failure
}

for step in "${steps[@]}"; do
  say "$step"
  [[ $step == packages ]] || { command -v aarch64-linux-gnu-g++ && command -v qemu-aarch64-static; } >/dev/null ||
    die 125 "no aarch64-linux-gnu-g++ or qemu-aarch64-static; run the step packages first"   # ctest: skipped
  case $step in
    packages) install_packages ;;
    sysroot) make_sysroot ;;
    programs) build_programs ;;
    tests) run_unit_tests ;;
  esac
done
