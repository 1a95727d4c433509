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
parts=() figures=() failed=0 gpu='none' arch=90 child=''
for d in /usr/local/cuda/bin /usr/local/nvidia/bin; do [[ -d $d ]] && PATH=$PATH:$d; done

say() { echo "$*" | tee -a "$report/report.txt"; }
write_report() {   # after every part, so that it is whole whenever the run ends
  local IFS=,
  printf '{"date": "%s", "gpu": "%s", "dry_run": %s, "finished": %s, "held": %s, "seconds": %d, "parts": [%s], "figures": [%s]}\n' "$(date -u +%FT%TZ)" "$gpu" \
    "$([[ $dry == 1 ]] && echo true || echo false)" "$1" "$([[ $failed == 0 && ${#parts[@]} -gt 0 ]] && echo true || echo false)" "$SECONDS" "${parts[*]}" "${figures[*]}" \
    >"$report/report.json.new" && mv "$report/report.json.new" "$report/report.json"
}
finish() {   # CODE [FINISHED]
  write_report "${2:-true}"
  (cd "$report" && tar -czf logs.tar.gz -- *.log 2>/dev/null)
  exit "${1:-$failed}"
}
record() { parts+=("{\"part\": \"$1\", \"state\": \"$2\", \"seconds\": $3}"); }
end_tree() {   # SIGNAL PROCESS: it and all that it has started
  local each
  for each in $(cat /proc/"$2"/task/*/children 2>/dev/null); do end_tree "$1" "$each"; done
  kill -"$1" "$2" 2>/dev/null
}
# shellcheck disable=SC2317  # called by trap
cut_short() {
  if [[ -n $child ]]; then end_tree TERM "$child"; record "$running" 'cut short' $((SECONDS - began)); fi
  say "ended by a signal after $SECONDS s${child:+, in $running}"
  failed=1
  finish 143 false
}
trap cut_short TERM INT HUP
part() {   # NAME LIMIT COMMAND...: runs it within LIMIT seconds and what is left of the budget, keeps its output, says how it went
  local name=$1 limit=$2 start=$SECONDS left=$((budget - SECONDS - 5)) rc state=held late=0
  shift 2
  if [[ $left -lt 10 ]]; then
    say "$(printf '%-24s %s' "$name" 'left out: no time')"
    record "$name" 'left out' 0
    write_report false
    return 75
  fi
  [[ $limit -lt $left ]] || limit=$left
  running=$name began=$start
  "$@" >"$report/$name.log" 2>&1 &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    if [[ $late == 0 && $((SECONDS - start)) -ge $limit ]]; then end_tree TERM "$child"; late=1; fi
    if [[ $late == 1 && $((SECONDS - start)) -ge $((limit + 5)) ]]; then end_tree KILL "$child"; fi
    sleep 0.1
  done
  wait "$child"
  rc=$?
  child=''
  [[ $late == 0 ]] || rc=124
  case $rc in 0) ;; 77) state=skipped ;; 124) state="out of time"; failed=1 ;; *) state="failed ($rc)"; failed=1 ;; esac
  say "$(printf '%-24s %-12s %4d s' "$name" "$state" $((SECONDS - start)))"
  record "$name" "$state" $((SECONDS - start))
  [[ $state == failed* || $state == out* ]] && tail -15 "$report/$name.log" | sed 's/^/    /' | tee -a "$report/report.txt"
  write_report false
  return $rc
}
figure() {   # NAME LIMIT COMMAND...: a part whose JSON lines are figures
  local line
  part "$@" || true
  while read -r line; do
    python3 -c 'import json, sys; json.loads(sys.argv[1])' "$line" 2>/dev/null || continue   # cut short in the middle of a line
    figures+=("$line")
    say "    $line"
  done < <(grep '^{' "$report/$1.log" 2>/dev/null)
  write_report false
}
suite() {   # NAME LIMIT CTEST_ARGUMENTS...: a part of tests, with a line for each
  part "$1" "$2" ctest --test-dir "$build" --output-on-failure --no-tests=error "${@:3}"
  local rc=$?
  sed -n 's/^ *[0-9]*\/[0-9]* Test *#[0-9]*: */    /p' "$report/$1.log" | tee -a "$report/report.txt"
  return $rc
}
# shellcheck disable=SC2317  # called by part
derived() { python3 "$PWD/tests/gpu/derived.py" "$report"/*.log; }

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
  part packages 60 unpack || finish
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
command -v ninja >/dev/null && configure+=(-G Ninja)
[[ $EUID -eq 0 ]] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

part configure 240 cmake -S . -B "$build" "${configure[@]}" || finish
# shellcheck disable=SC2086  # several targets
part build "$budget" cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target ${TARGETS:-gpu_suite} || finish
bin=$build/bin bench=$build/tests/bin/bench.gpu
part start 60 "$bin/tessera-train" --version
overlap() { for stage in 1 2 3; do "$bench" overlap "${@:1:5}" "$stage" "${@:6}" || return; done; }
text() { cat docs/*/*.md README.md >"$report/text.txt"; }
# shellcheck disable=SC2317  # called by part
train() {   # DEVICE OUTPUT STEPS [ARGUMENTS]
  "$bin/tessera-train" --device "$1" --config_name configs/gpt2-8m --tokenizer_name configs/gpt2-8m --train_file "$report/text.txt" --block_size 128 \
    --output_dir "$2" --do_train --per_device_train_batch_size 4 --max_steps "$3" --save_steps 4 --logging_steps 1 --seed 1 "${@:4}"
}
# shellcheck disable=SC2317  # called by part
losses_agree() { python3 -c 'import json, sys
a, b = (json.loads(open(f"{d}/metrics.jsonl").read().splitlines()[-1])["loss"] for d in sys.argv[1:])
print("losses", a, b); sys.exit(not (a > 0 and abs(a - b) < 2e-3 * b))' "$@"; }
start_up() { python3 tests/gpu/start_up.py --bin "$bin" --hello "$build/tests/bin/bench.gpu_hello" --mpiexec "${root:+$root/usr/bin/}mpirun" "$@"; }
text
rm -rf "$build/on-device" "$build/on-host"
if [[ $dry == 1 ]]; then
  suite without_device 240 -L gpu -L install
  part train_on_host 90 train cpu "$build/on-host" 8
  part torch_parity 200 python3 tests/gpu/parity_torch.py --bin "$bin" --device cpu --work "$build/parity"
  figure bench_train 60 "$bench" train 2 64 2 2 64 3
  figure bench_gemm 60 "$bench" gemm 256
  figure bench_optimizer 60 "$bench" optimizer 1000000
  figure bench_flat 60 "$bench" flat 1000000
  figure bench_rows 60 "$bench" rows 300 64 1001
  figure bench_overlap 60 overlap 2 64 2 2 64 4 1 2
  figure start_up 60 start_up --device cpu --rounds 2
  part derived 60 derived && say "$(cat "$report/derived.log")"
  finish
fi

part doctor 30 "$bin/tessera" doctor --gpus
suite suite 200 -L gpu
part train_on_device 60 train cuda "$build/on-device" 8
part train_on_host 60 train cpu "$build/on-host" 8
part losses_agree 20 losses_agree "$build/on-device" "$build/on-host"
part resume_on_host 60 train cpu "$build/on-device" 12 --resume_from_checkpoint latest
part resume_on_device 60 train cuda "$build/on-host" 12 --resume_from_checkpoint latest
part losses_agree_resumed 20 losses_agree "$build/on-device" "$build/on-host"
part torch_parity 60 python3 tests/gpu/parity_torch.py --bin "$bin" --device cuda --work "$build/parity"

if [[ $quick == 0 ]]; then
  figure bench_train_124m 40 "$bench" train 12 768 12 32 1024 8
  figure bench_gemm 30 "$bench" gemm 8192
  figure bench_optimizer 60 "$bench" optimizer 400000000
  figure bench_flat 30 "$bench" flat 200000000
  figure bench_rows 30 "$bench" rows 32768 768 50257
  figure bench_rows_1558m 30 "$bench" rows 8192 1600 50257
  figure bench_torch_124m 100 python3 tests/gpu/peer_torch.py 12 768 12 32 1024 8
  figure bench_train_1558m 80 "$bench" train 48 1600 25 8 1024 5
  figure bench_torch_1558m 120 python3 tests/gpu/peer_torch.py 48 1600 25 8 1024 5
  figure bench_overlap 60 overlap 12 768 12 8 1024 8 50 4
  TESSERA_PORTABLE=1 figure bench_portable_124m 40 "$bench" train 12 768 12 32 1024 4
  figure bench_train_small 20 "$bench" train 8 256 8 1 128 30
  TESSERA_GRAPHS=1 figure bench_graphs_small 20 "$bench" train 8 256 8 1 128 30
  TESSERA_GELU=separate figure bench_separate_gelu_124m 40 "$bench" train 12 768 12 32 1024 4
  figure start_up 40 start_up --device cuda --rounds 5
  part derived 20 derived && say "$(cat "$report/derived.log")"
  if command -v compute-sanitizer >/dev/null; then
    # shellcheck disable=SC2317  # called by part
    sanitized() { "${@:3}" "$build/tests/bin/test.gpu.$1" --gtest_filter="$2" device; }
    check=(compute-sanitizer --error-exitcode 1 --tool)
    part memcheck_pool 30 sanitized memory 'DeviceMemory.LedgerAndDriverAgree:DeviceMemory.TheHost*' "${check[@]}" memcheck --track-stream-ordered-races all
    part memcheck 60 sanitized training 'Stages/*/stage2_*' "${check[@]}" memcheck
    part memcheck_flat 60 sanitized flat '*' "${check[@]}" memcheck
    part racecheck_flat 60 sanitized flat '*' "${check[@]}" racecheck
    part memcheck_rows 60 sanitized rows '*bf16' "${check[@]}" memcheck
    part racecheck_rows 60 sanitized rows '*bf16' "${check[@]}" racecheck
    part racecheck 60 sanitized training 'Stages/*/stage0_*' "${check[@]}" racecheck
    part synccheck 30 sanitized training 'Stages/*/stage0_fp32' "${check[@]}" synccheck
    part initcheck 40 sanitized training 'Stages/*/stage0_fp32' "${check[@]}" initcheck
  fi
fi
finish
