#!/usr/bin/env bash
# Builds Tessera with CUDA and shows what holds on this machine's GPU. Works from a plain copy of the tree.
#   tests/gpu/run.sh [--quick] [--packages DIR] [--build-dir DIR] [--report DIR]
#     --quick         without compute-sanitizer
#     --packages DIR  Debian packages (*.deb) to unpack into the build directory first: what this machine lacks and cannot fetch
#     --build-dir DIR (default: build/gpu)      --report DIR  report.json and report.txt go there (default: build/gpu-report)
# Prints a line per part, so that a run cut short still says what held. Ends with 0 when all parts held, 77 without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 70
quick=0 packages='' build=build/gpu report=build/gpu-report
while [[ $# -gt 0 ]]; do
  case $1 in
    --quick) quick=1 ;;
    --packages) packages=${2:?}; shift ;;
    --build-dir) build=${2:?}; shift ;;
    --report) report=${2:?}; shift ;;
    *) sed -n '2,8p' "$0" >&2; exit 64 ;;
  esac
  shift
done
mkdir -p "$build" "$report"
: >"$report/report.txt"
parts=() failed=0
[[ -d /usr/local/cuda/bin ]] && PATH=$PATH:/usr/local/cuda/bin

part() {   # NAME COMMAND...: runs it, keeps its output, says how it went
  local name=$1 start=$SECONDS rc state=held
  shift
  "$@" >"$report/$name.log" 2>&1; rc=$?
  [[ $rc -eq 77 ]] && state=skipped
  [[ $rc -ne 0 && $rc -ne 77 ]] && { state="failed ($rc)"; failed=1; }
  printf '%-22s %-12s %4d s\n' "$name" "$state" $((SECONDS - start)) | tee -a "$report/report.txt"
  parts+=("{\"part\": \"$name\", \"state\": \"$state\", \"seconds\": $((SECONDS - start))}")
  [[ $state == failed* ]] && tail -15 "$report/$name.log" | sed 's/^/    /' | tee -a "$report/report.txt"
  return $rc
}
finish() {
  local IFS=,
  printf '{"date": "%s", "gpu": "%s", "held": %s, "parts": [%s]}\n' "$(date -u +%FT%TZ)" "$gpu" "$([[ $failed == 0 && ${#parts[@]} -gt 0 ]] && echo true || echo false)" "${parts[*]}" \
    >"$report/report.json"
  exit "${1:-$failed}"
}

gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -1)
if [[ -z $gpu ]]; then
  echo "no GPU: nvidia-smi finds no device" | tee -a "$report/report.txt"
  finish 77
fi
echo "GPU: $gpu" | tee -a "$report/report.txt"

if [[ -n $packages ]]; then
  unpack() { for p in "$packages"/*.deb; do dpkg -x "$p" "$build/packages" || return 1; done; }
  part packages unpack || finish
  root=$PWD/$build/packages
  export CMAKE_PREFIX_PATH=$root/usr:${CMAKE_PREFIX_PATH:-} PKG_CONFIG_PATH=$root/usr/lib/x86_64-linux-gnu/pkgconfig PATH=$root/usr/bin:$PATH
  export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu:${LD_LIBRARY_PATH:-} OPAL_PREFIX=$root/usr
fi

arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
part configure cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DTESSERA_ENABLE_CUDA=ON -DTESSERA_CUDA_ARCHITECTURES="$arch" -DTESSERA_BUILD_BENCH=OFF || finish
part build cmake --build "$build" --parallel "$(nproc)" --target tessera-train tessera test.gpu.training || finish
part suite ctest --test-dir "$build" -L gpu --output-on-failure --no-tests=error

bin=$build/bin
train() {   # DEVICE OUTPUT STEPS [ARGUMENTS]
  "$bin/tessera-train" --device "$1" --config_name configs/gpt2-8m --tokenizer_name configs/gpt2-8m --train_file "$report/text" --block_size 128 \
    --output_dir "$2" --do_train --per_device_train_batch_size 4 --max_steps "$3" --save_steps 4 --logging_steps 1 --seed 1 "${@:4}"
}
losses_agree() {   # the last loss of two runs
  local a b
  a=$(tail -1 "$1/metrics.jsonl" | sed 's/.*"loss": *\([0-9.eE+-]*\).*/\1/'); b=$(tail -1 "$2/metrics.jsonl" | sed 's/.*"loss": *\([0-9.eE+-]*\).*/\1/')
  awk -v a="$a" -v b="$b" 'BEGIN { print "losses", a, b; d = a - b; if (d < 0) d = -d; exit !(a > 0 && b > 0 && d < 2e-3 * b) }'
}
cat docs/*.md README.md >"$report/text"
rm -rf "$build/on-device" "$build/on-host"
part train_on_device train cuda "$build/on-device" 8
part train_on_host train cpu "$build/on-host" 8
part losses_agree losses_agree "$build/on-device" "$build/on-host"
part resume_on_host train cpu "$build/on-device" 12 --resume_from_checkpoint latest
if [[ $quick == 0 ]] && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    part "$tool" compute-sanitizer --tool "$tool" --error-exitcode 1 "$build/tests/bin/test.gpu.training" --gtest_filter='Stages/*0_*'
  done
fi
finish
