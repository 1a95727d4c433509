#!/usr/bin/env bash
# Builds Tessera with CUDA and shows what holds, and how fast, on this machine's GPU. Works from a plain copy of the tree; needs a driver, the
# CUDA toolkit, g++, cmake and python3, but neither network nor git.
#   tests/gpu/run.sh [--packages DIR] [--build-dir DIR] [--report DIR] [LADDER OPTIONS]
#     --packages DIR   what tests/gpu/collect_packages.sh has collected: what this machine lacks and cannot fetch
#     --build-dir DIR  (default: build/gpu)      --report DIR  report.json, report.txt and logs go there (default: build/gpu-report)
#     --copy DIR       report.json, report.txt and logs.tar.gz, three files, are there too after every part
#   and those of tests/gpu/ladder.py, which runs the parts:
#     --budget S       ends within this time, leaving parts out (default: 540)      --quick   without benchmarks and compute-sanitizer
#     --only A,B       only these parts      --from A  this part and those after it      --list   the parts
#     --resume         without the parts that held in the report that is there: a run in several calls
#     --dry-run        what needs no device: unpack, configure, build, start, tiny benchmarks; JOBS and TARGETS in the environment limit it
# Ends with 0 when all parts held, 77 without a GPU.
set -uo pipefail
called_in=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 70
packages='' build=build/gpu report=build/gpu-report dry=0 ladder=()
usage() { sed -n '2,13s/^# \{0,1\}//p' tests/gpu/run.sh; }
refuse() { echo "tests/gpu/run.sh: $1; --help shows the options" >&2; exit 64; }
place() { case $1 in /*) echo "$1" ;; *) echo "$called_in/$1" ;; esac; }
while [[ $# -gt 0 ]]; do
  case $1 in
    --packages | --build-dir | --report | --copy | --budget | --only | --from) [[ -n ${2-} ]] || refuse "$1 has no value" ;;&
    -h | --help) usage; exit 0 ;;
    --packages) packages=$(cd "$(place "$2")" 2>/dev/null && pwd) || { echo "tests/gpu/run.sh: --packages $2 is no directory" >&2; exit 66; }; shift ;;
    --build-dir) build=$(place "$2"); shift ;;
    --report) report=$(place "$2"); shift ;;
    --copy) ladder+=("$1" "$(place "$2")"); shift ;;
    --budget | --only | --from) ladder+=("$1" "$2"); shift ;;
    --dry-run) dry=1; ladder+=("$1") ;;
    --quick | --resume | --list) ladder+=("$1") ;;
    *) refuse "there is no option $1" ;;
  esac
  shift
done
mkdir -p "$build" "$report"
build=$(cd "$build" && pwd) report=$(cd "$report" && pwd)
arch=90
for d in /usr/local/cuda/bin /usr/local/nvidia/bin; do [[ -d $d ]] && PATH=$PATH:$d; done
[[ $dry == 1 ]] || arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)

configure=(-DCMAKE_BUILD_TYPE=Release -DTESSERA_ENABLE_CUDA=ON -DTESSERA_CUDA_ARCHITECTURES="${arch:-90}" -DTESSERA_BUILD_BENCH=OFF -DTESSERA_TEST_FOLDERS=gpu)
unpack() {
  local p
  for p in "$packages"/*.deb; do dpkg -x "$p" "$root" || return 1; done
  [[ ! -e $packages/cudnn_frontend.tar.gz ]] || tar -C "$root" -xzf "$packages/cudnn_frontend.tar.gz" || return 1
  # alternatives and absolute links of the packages, which no installation has made here
  local lib=$root/usr/lib/x86_64-linux-gnu name
  for name in mpicc mpicxx mpiexec mpirun; do ln -sf "$name.openmpi" "$root/usr/bin/$name"; done
  find "$root" -type l -lname '/*' | while read -r p; do ln -sfn "$root$(readlink "$p")" "$p"; done
  [[ -e $lib/libhdf5.so ]] || ln -s hdf5/serial/libhdf5.so "$lib/libhdf5.so"
  # for programs: only what this machine's own directories lack
  mkdir -p "$root/runtime"
  local known
  known=$(/sbin/ldconfig -p 2>/dev/null | awk '{print $1}')
  for p in "$lib"/*.so.* "$root"/lib/x86_64-linux-gnu/*.so.*; do grep -qxF "${p##*/}" <<<"$known" || ln -sfn "$p" "$root/runtime/${p##*/}"; done
  # the HDF5 wrapper, package files and CMake files name /usr
  sed -i "s#\([\"=: -]\|-[IL]\)/usr/#\1$root/usr/#g; s#^prefix=\"/usr\"#prefix=\"$root/usr\"#" "$root/usr/bin/h5cc" || return 1
  find "$root/usr" \( -name '*.pc' -o -name '*.cmake' \) -exec sed -i "s#\(^\|[\"=; ]\)/usr/#\1$root/usr/#g; s#^prefix=/usr\$#prefix=$root/usr#" {} +
}
if [[ -n $packages ]]; then
  root=$build/packages
  mkdir -p "$root"
  if [[ ! -e $root/unpacked ]]; then
    if ! unpack >"$report/packages.log" 2>&1; then tail -15 "$report/packages.log" >&2; exit 73; fi
    touch "$root/unpacked"
  fi
  lib=$root/usr/lib/x86_64-linux-gnu
  export CMAKE_PREFIX_PATH=$root/usr:$lib/hdf5/serial${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH} PATH=$root/usr/bin:$PATH PKG_CONFIG_PATH=$lib/pkgconfig:$root/usr/share/pkgconfig
  export LD_LIBRARY_PATH=$root/runtime${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LIBRARY_PATH=$lib CPATH=$root/usr/include:$root/usr/include/x86_64-linux-gnu
  export OPAL_PREFIX=$root/usr
  # One machine: no networks, whose libraries it may lack; mpirun asks for a remote shell all the same.
  export OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mca_base_component_show_load_errors=0
  export PMIX_MCA_pcompress_base_silence_warning=1
  command -v ssh >/dev/null || export OMPI_MCA_plm_rsh_agent=/bin/sh
  configure+=("-DCMAKE_LIBRARY_PATH=$lib;$lib/openmpi/lib;$lib/hdf5/serial" "-DCMAKE_INCLUDE_PATH=$root/usr/include" "-DMPI_CXX_COMPILER=$root/usr/bin/mpicxx" "-DMPI_CXX_ADDITIONAL_INCLUDE_DIRS=$lib/openmpi/include"
              "-DMPIEXEC_EXECUTABLE=$root/usr/bin/mpirun" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$lib:$lib/openmpi/lib")
  [[ -e $packages/kokkos-5.0.2.tar.gz ]] && configure+=("-DTESSERA_KOKKOS_SOURCE=$packages/kokkos-5.0.2.tar.gz")
  [[ -e $root/include/cudnn_frontend.h ]] && configure+=("-DTESSERA_CUDNN_FRONTEND=$root/include")
fi
# NCCL, cuDNN and cuBLASLt of Python packages, where neither the toolkit nor the system has them.
site=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null)
toolkit=$(dirname "$(dirname "$(readlink -f "$(command -v nvcc)")")")
of_python() {   # HEADER DIRECTORY...: the first directory of Python's packages that has it, when it is nowhere else
  local place
  for place in "$toolkit/include" "$toolkit/targets/x86_64-linux/include" /usr/local/cuda/include /usr/include /usr/include/x86_64-linux-gnu; do
    [[ ! -e $place/$1 ]] || return 1
  done
  for place in "${@:2}"; do [[ -z $site || ! -e $site/$place/include/$1 ]] || { echo "$site/$place"; return 0; }; done
  return 1
}
if p=$(of_python nccl.h nccl); then
  configure+=("-DTESSERA_NCCL_INCLUDE=$p/include" "-DTESSERA_NCCL_LIBRARY=$p/lib/libnccl.so.2")
  export LD_LIBRARY_PATH=$p/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if p=$(of_python cudnn.h cudnn); then
  configure+=("-DTESSERA_CUDNN_INCLUDE=$p/include")
  export LD_LIBRARY_PATH=$p/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if p=$(of_python cublasLt.h cu13 cublas); then
  export CPATH=${CPATH:+$CPATH:}$p/include LD_LIBRARY_PATH=$p/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
keep_going=-k
command -v ninja >/dev/null && configure+=(-G Ninja) keep_going=-k0

# shellcheck disable=SC2086  # several targets
exec python3 tests/gpu/ladder.py --build "$build" --report "$report" --mpiexec "${root:+$root/usr/bin/}mpirun" \
  --configure_command "$(printf '%q ' cmake -S . -B "$build" "${configure[@]}")" \
  --build_command "$(printf '%q ' cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target ${TARGETS:-gpu_suite} -- $keep_going)" "${ladder[@]}"
