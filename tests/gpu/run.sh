#!/usr/bin/env bash
# Builds Tessera with CUDA and shows what holds, and how fast, on this machine's GPU. Works from a plain copy of the tree; needs a driver, the
# CUDA toolkit, g++ and cmake, but neither network nor git.
#   tests/gpu/run.sh [--quick] [--packages DIR] [--build-dir DIR] [--report DIR] [--budget SECONDS] [--dry-run]
#     --quick          without benchmarks and compute-sanitizer
#     --packages DIR   what tests/gpu/collect_packages.sh has collected: what this machine lacks and cannot fetch
#     --build-dir DIR  (default: build/gpu)      --report DIR  report.json, report.txt and logs.tar.gz go there (default: build/gpu-report)
#     --budget S       ends within this time, leaving parts out (default: 540)
#     --dry-run        what needs no device: unpack, configure, build, start, tiny benchmarks; JOBS and TARGETS in the environment limit it
# Prints a line per part, so that a run cut short still says what held. Ends with 0 when all parts held, 77 without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 70
quick=0 dry=0 packages='' build=build/gpu report=build/gpu-report budget=540
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick) quick=1 ;;
    --dry-run) dry=1 ;;
    --packages) packages=$(cd "${2:?}" && pwd) || exit 66; shift ;;
    --build-dir) build=${2:?}; shift ;;
    --report) report=${2:?}; shift ;;
    --budget) budget=${2:?}; shift ;;
    *) sed -n '2,12p' "$0" >&2; exit 64 ;;
  esac
  shift
done
mkdir -p "$build" "$report"
build=$(cd "$build" && pwd) report=$(cd "$report" && pwd)
rm -f "$report"/*.log
: >"$report/report.txt"
parts=() figures=() failed=0 gpu='none' arch=90
for d in /usr/local/cuda/bin /usr/local/nvidia/bin; do [[ -d $d ]] && PATH=$PATH:$d; done

say() { echo "$*" | tee -a "$report/report.txt"; }
part() {   # NAME LIMIT COMMAND...: runs it within LIMIT seconds and what is left of the budget, keeps its output, says how it went
  local name=$1 limit=$2 start=$SECONDS left=$((budget - SECONDS - 5)) rc state=held
  shift 2
  if [[ $left -lt 10 ]]; then
    say "$(printf '%-24s %s' "$name" 'left out: no time')"
    parts+=("{\"part\": \"$name\", \"state\": \"left out\", \"seconds\": 0}")
    return 75
  fi
  [[ $limit -lt $left ]] || limit=$left
  if [[ $(type -t "$1") == function ]]; then "$@" >"$report/$name.log" 2>&1; else timeout -k 5 "$limit" "$@" >"$report/$name.log" 2>&1; fi
  rc=$?
  case $rc in 0) ;; 77) state=skipped ;; 124|137) state="out of time"; failed=1 ;; *) state="failed ($rc)"; failed=1 ;; esac
  say "$(printf '%-24s %-12s %4d s' "$name" "$state" $((SECONDS - start)))"
  parts+=("{\"part\": \"$name\", \"state\": \"$state\", \"seconds\": $((SECONDS - start))}")
  [[ $state == failed* || $state == out* ]] && tail -15 "$report/$name.log" | sed 's/^/    /' | tee -a "$report/report.txt"
  return $rc
}
figure() {   # NAME COMMAND...: a part whose JSON lines are figures
  local line
  part "$1" 150 "${@:2}" || return 0
  while read -r line; do
    figures+=("$line")
    say "    $line"
  done < <(grep '^{' "$report/$1.log")
}
# shellcheck disable=SC2317  # called by part
derived() { python3 "$PWD/tests/gpu/derived.py" "$report"/*.log; }
finish() {
  local IFS=,
  printf '{"date": "%s", "gpu": "%s", "dry_run": %s, "held": %s, "seconds": %d, "parts": [%s], "figures": [%s]}\n' "$(date -u +%FT%TZ)" "$gpu" \
    "$([[ $dry == 1 ]] && echo true || echo false)" "$([[ $failed == 0 && ${#parts[@]} -gt 0 ]] && echo true || echo false)" "$SECONDS" "${parts[*]}" "${figures[*]}" >"$report/report.json"
  (cd "$report" && tar -czf logs.tar.gz -- *.log 2>/dev/null)
  exit "${1:-$failed}"
}

if [[ $dry == 0 ]]; then
  gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -1)
  if [[ -z $gpu ]]; then
    gpu=none
    say "no GPU: nvidia-smi finds no device"
    finish 77
  fi
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
else
  export CUDA_VISIBLE_DEVICES=''
fi
say "GPU: $gpu"

configure=(-DCMAKE_BUILD_TYPE=Release -DTESSERA_ENABLE_CUDA=ON -DTESSERA_CUDA_ARCHITECTURES="$arch" -DTESSERA_BUILD_BENCH=OFF -DTESSERA_TEST_FOLDERS=gpu)
# shellcheck disable=SC2317  # called by part
unpack() {
  local p
  for p in "$packages"/*.deb; do dpkg -x "$p" "$root" || return 1; done
  [[ ! -e $packages/cudnn_frontend.tar.gz ]] || tar -C "$root" -xzf "$packages/cudnn_frontend.tar.gz" || return 1
  # alternatives and absolute links of the packages, which no installation has made here
  local lib=$root/usr/lib/x86_64-linux-gnu name
  for name in mpicc mpicxx mpiexec mpirun; do ln -sf "$name.openmpi" "$root/usr/bin/$name"; done
  find "$root" -type l -lname '/*' | while read -r p; do ln -sfn "$root$(readlink "$p")" "$p"; done
  [[ -e $lib/libhdf5.so ]] || ln -s hdf5/serial/libhdf5.so "$lib/libhdf5.so"
  # the HDF5 wrapper, package files and CMake files name /usr
  sed -i "s#\([\"=: -]\|-[IL]\)/usr/#\1$root/usr/#g; s#^prefix=\"/usr\"#prefix=\"$root/usr\"#" "$root/usr/bin/h5cc" || return 1
  find "$root/usr" \( -name '*.pc' -o -name '*.cmake' \) -exec sed -i "s#\(^\|[\"=; ]\)/usr/#\1$root/usr/#g; s#^prefix=/usr\$#prefix=$root/usr#" {} +
}
if [[ -n $packages ]]; then
  root=$build/packages
  mkdir -p "$root"
  part packages 60 unpack || finish
  lib=$root/usr/lib/x86_64-linux-gnu
  export CMAKE_PREFIX_PATH=$root/usr:$lib/hdf5/serial${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH} PATH=$root/usr/bin:$PATH PKG_CONFIG_PATH=$lib/pkgconfig:$root/usr/share/pkgconfig
  export LD_LIBRARY_PATH=$lib:$lib/openmpi/lib:$lib/hdf5/serial${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LIBRARY_PATH=$lib CPATH=$root/usr/include:$root/usr/include/x86_64-linux-gnu
  export OPAL_PREFIX=$root/usr
  configure+=("-DCMAKE_LIBRARY_PATH=$lib;$lib/openmpi/lib;$lib/hdf5/serial" "-DCMAKE_INCLUDE_PATH=$root/usr/include" "-DMPI_CXX_COMPILER=$root/usr/bin/mpicxx" "-DMPI_CXX_ADDITIONAL_INCLUDE_DIRS=$lib/openmpi/include"
              "-DMPIEXEC_EXECUTABLE=$root/usr/bin/mpirun" "-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,$lib:$lib/openmpi/lib")
  [[ -e $packages/kokkos-5.0.2.tar.gz ]] && configure+=("-DTESSERA_KOKKOS_SOURCE=$packages/kokkos-5.0.2.tar.gz")
  [[ -e $root/include/cudnn_frontend.h ]] && configure+=("-DTESSERA_CUDNN_FRONTEND=$root/include")
fi
# NCCL and cuDNN of Python packages, where the toolkit has none.
site=$(python3 -c 'import nvidia, os; print(list(nvidia.__path__)[0])' 2>/dev/null)
if [[ -n $site && ! -e /usr/local/cuda/include/nccl.h && ! -e /usr/include/nccl.h && -e $site/nccl/include/nccl.h ]]; then
  configure+=("-DTESSERA_NCCL_INCLUDE=$site/nccl/include" "-DTESSERA_NCCL_LIBRARY=$site/nccl/lib/libnccl.so.2")
  export LD_LIBRARY_PATH=$site/nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
if [[ -n $site && ! -e /usr/local/cuda/include/cudnn.h && ! -e /usr/include/cudnn.h && -e $site/cudnn/include/cudnn.h ]]; then
  configure+=("-DTESSERA_CUDNN_INCLUDE=$site/cudnn/include")
  export LD_LIBRARY_PATH=$site/cudnn/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
command -v ninja >/dev/null && configure+=(-G Ninja)
[[ $EUID -eq 0 ]] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

part configure "$budget" cmake -S . -B "$build" "${configure[@]}" || finish
# shellcheck disable=SC2086  # several targets
part build "$budget" cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target ${TARGETS:-gpu_suite} || finish
bin=$build/bin bench=$build/tests/bin/bench.gpu
part start 60 "$bin/tessera-train" --version
if [[ $dry == 1 ]]; then
  part without_device 120 ctest --test-dir "$build" -L gpu -L install --output-on-failure --no-tests=error
  figure bench_optimizer "$bench" optimizer 1000000
  figure bench_train "$bench" train 2 64 2 2 64 3
  part derived 60 derived
  finish
fi

part doctor 60 "$bin/tessera" doctor --gpus
part suite 240 ctest --test-dir "$build" -L gpu --output-on-failure --no-tests=error
# shellcheck disable=SC2317  # called by part
train() {   # DEVICE OUTPUT STEPS [ARGUMENTS]
  timeout 90 "$bin/tessera-train" --device "$1" --config_name configs/gpt2-8m --tokenizer_name configs/gpt2-8m --train_file "$report/text.txt" --block_size 128 \
    --output_dir "$2" --do_train --per_device_train_batch_size 4 --max_steps "$3" --save_steps 4 --logging_steps 1 --seed 1 "${@:4}"
}
# shellcheck disable=SC2317  # called by part
losses_agree() { python3 -c 'import json, sys
a, b = (json.loads(open(f"{d}/metrics.jsonl").read().splitlines()[-1])["loss"] for d in sys.argv[1:])
print("losses", a, b); sys.exit(not (a > 0 and abs(a - b) < 2e-3 * b))' "$@"; }
cat docs/*.md README.md >"$report/text.txt"
rm -rf "$build/on-device" "$build/on-host"
part train_on_device 90 train cuda "$build/on-device" 8
part train_on_host 90 train cpu "$build/on-host" 8
part losses_agree 20 losses_agree "$build/on-device" "$build/on-host"
part resume_on_host 90 train cpu "$build/on-device" 12 --resume_from_checkpoint latest
rm -f "$report/text.txt"

if [[ $quick == 0 ]]; then
  figure bench_gemm "$bench" gemm 8192
  figure bench_optimizer "$bench" optimizer 400000000
  figure bench_train_124m "$bench" train 12 768 12 32 1024 8
  TESSERA_PORTABLE=1 figure bench_portable_124m "$bench" train 12 768 12 32 1024 4
  TESSERA_GELU=separate figure bench_separate_gelu_124m "$bench" train 12 768 12 32 1024 4
  figure bench_torch_124m python3 tests/gpu/peer_torch.py 12 768 12 32 1024 8
  figure bench_train_1558m "$bench" train 48 1600 25 8 1024 5
  figure bench_torch_1558m python3 tests/gpu/peer_torch.py 48 1600 25 8 1024 5
  part derived 30 derived && { say "$(cat "$report/derived.log")"; }
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      part "$tool" 90 compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/tests/bin/test.gpu.training" --gtest_filter='Stages/*0_*'
    done
  fi
fi
finish
