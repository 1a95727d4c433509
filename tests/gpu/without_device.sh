#!/usr/bin/env bash
# What a build with CUDA does where no device is: starts, refuses or falls back with one line, and needs no driver.
#   tests/gpu/without_device.sh TESSERA_TRAIN TESSERA RUNTIME CUDNN WORK_DIRECTORY
# RUNTIME: Static or Shared, CUDNN: built or absent, as the build was configured
set -euo pipefail
train=$1 tool=$2 runtime=$3 cudnn=$4 work=$5
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
export CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1   # hides the devices of a machine that has some
fail() { echo "$*" >&2; exit 1; }

rm -rf "$work"
mkdir -p "$work"
"$train" --version >"$work/version"
"$tool" --version >>"$work/version"
expected='absent'
[[ $cudnn == absent ]] || expected='[0-9]+\.[0-9]+\.[0-9]+'
[[ $(grep -cE "^  cudnn    $expected\$" "$work/version") == 2 ]] || fail "cuDNN is $cudnn, and --version says: $(grep cudnn "$work/version")"

needed() { LC_ALL=C readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'; }
needed "$train" | grep -E '^libcuda\.so' && fail "tessera-train needs the driver to start"
if [[ $runtime == Static ]]; then
  ldd "$tool" | grep -E 'lib(cuda|cublas|cudnn|nccl|nvrtc)' && fail "tessera loads CUDA"
  needed "$train" | grep -E '^libcudart' && fail "the static runtime was asked for, and tessera-train needs the shared one"
else
  needed "$train" | grep -qE '^libcudart' || fail "the shared runtime was asked for, and tessera-train does not need it"
fi

for line in {1..200}; do echo "line $line of a text for a run without a device"; done >"$work/text.txt"
run() {   # DEVICE: what it says goes to $work/said, its exit code to $code
  code=0
  "$train" --device "$1" --model_type gpt2 --config_overrides n_embd=16,n_layer=1,n_head=1,vocab_size=4096,n_positions=16 --do_train --max_steps 2 \
    --tokenizer_name "$source/configs/gpt2-8m" --train_file "$work/text.txt" --block_size 16 --output_dir "$work/out" --overwrite_output_dir \
    --per_device_train_batch_size 2 --save_strategy no >"$work/said" 2>&1 || code=$?
}
run gpu
[[ $code == 78 ]] || fail "--device gpu ended with $code, not 78: $(cat "$work/said")"
[[ $(wc -l <"$work/said") == 1 ]] || fail "--device gpu said more than one line: $(cat "$work/said")"
grep -q -- '--device gpu: no GPU for rank 0 on .*: .*--device cpu' "$work/said" || fail "unclear refusal: $(cat "$work/said")"
run auto
[[ $code == 0 ]] || fail "--device auto ended with $code: $(cat "$work/said")"
[[ $(grep -c 'no GPU for rank 0 on .*all ranks compute on the host' "$work/said") == 1 ]] || fail "no line, or several, about the host: $(cat "$work/said")"
