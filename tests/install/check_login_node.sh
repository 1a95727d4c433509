#!/usr/bin/env bash
# tessera and zero-to-fp32 work where MPI, oneDNN, BLAS and NVIDIA's libraries are missing: none of them is among the libraries that the loader would
# load, and the programs work where each of them is replaced by a file that no program can load.
#   check_login_node.sh BUILD_DIR SOURCE_DIR WORK_DIR
set -euo pipefail
build=$1 source=$2 work=$3
rm -rf "$work"; mkdir -p "$work/broken"
tessera=$build/bin/tessera
fail() { echo "$1"; exit 1; }

hidden='lib(mpi|mpich|open-rte|open-pal|pmix|dnnl|mkl|openblas|blas|cblas|flexiblas|nccl|cudart|cublas|cudnn)[-_a-z0-9]*\.so[.0-9]*'
closure=$(ldd "$tessera")   # all libraries, of libraries too
! grep -E "^[[:space:]]*$hidden" <<<"$closure" || fail "tessera would load these libraries"
wanted=$(ldd "$build/bin/tessera-train" | grep -oE "^[[:space:]]*$hidden" | tr -d '[:blank:]' | sort -u)
[[ -n $wanted ]] || fail "tessera-train loads none of these libraries: the pattern proves nothing"
for library in $wanted; do echo "not a library" >"$work/broken/$library"; done
export LD_LIBRARY_PATH=$work/broken
if "$build/bin/tessera-train" --version >/dev/null 2>"$work/trainer"; then fail "tessera-train starts: the files in $work/broken hide nothing"; fi

"$tessera" --version | grep -qE '^  mpi +[A-Z]' || fail "tessera --version does not name the MPI of the build"
"$build/bin/zero-to-fp32" --help | grep -q output || fail "zero-to-fp32 --help"
"$tessera" submit requeue --no-check --dry-run -- run.json | grep -q '^#SBATCH --requeue' || fail "tessera submit"
"$tessera" doctor --dir "$work" | grep -q "tessera-train does not start on this node" || fail "tessera doctor does not say that tessera-train cannot start"
"$tessera" tokenize "$source/configs/gpt2-8m" "a text" | grep -qE '^[0-9 ]+$' || fail "tessera tokenize"

# Processor time of a start, the best of 20: other programs of the machine hardly change it. Instrumented builds are slower.
TIMEFORMAT='%3U %3S'
best=$(for _ in {1..20}; do { time "$tessera" --help >/dev/null; } 2>&1; done | awk '{ t = 1000 * ($1 + $2); if (NR == 1 || t < best) best = t } END { print best }')
if ! nm "$tessera" 2>/dev/null | grep -q __asan; then awk -v t="$best" 'BEGIN { exit !(t <= 20) }' || fail "tessera needs $best ms of processor time to start, more than 20"; fi

unset LD_LIBRARY_PATH
mkdir "$work/model"
printf 'record %s of the text\n' {1..400} >"$work/text.txt"
"$build/bin/tessera-train" --model_type gpt2 --config_overrides n_embd=32,n_layer=2,n_head=2,vocab_size=4096,n_positions=32 --block_size 32 \
  --tokenizer_name "$source/configs/gpt2-8m" --train_file "$work/text.txt" --do_train --max_steps 2 --output_dir "$work/run" --device cpu >/dev/null 2>&1
export LD_LIBRARY_PATH=$work/broken
"$tessera" checkpoint verify "$work/run" >/dev/null || fail "tessera checkpoint verify"
"$build/bin/zero-to-fp32" "$work/run" "$work/model/model.safetensors" >/dev/null || fail "zero-to-fp32"
cp "$work/run/config.json" "$work/model/"
"$tessera" import "$work/model" "$work/imported" >/dev/null || fail "tessera import"
[[ -s $work/imported/latest ]] || fail "tessera import wrote no checkpoint"
echo "starts in $best ms of processor time; works without $(wc -w <<<"$wanted") libraries of tessera-train: $(tr '\n' ' ' <<<"$wanted")"
