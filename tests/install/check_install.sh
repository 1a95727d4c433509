#!/usr/bin/env bash
# Installs the build tree and moves the installation. Then the installed programs run, links of the installed pages resolve, and projects with the
# language CXX only build against it: the consumer, and the example of docs/how-to/use-the-library.md as it is in the installed page.
#   check_install.sh CMAKE BUILD_DIR SOURCE_DIR WORK_DIR KOKKOS_DIR
set -euo pipefail
cmake=$1 build=$2 source=$3 work=$4 kokkos=$5
fail() { echo "$1"; exit 1; }
rm -rf "$work"; mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/moved"

for program in tessera-train tessera zero-to-fp32; do
  "$work/moved/bin/$program" --version | grep -q "^$program " || { echo "$program --version does not name itself"; exit 1; }
  "$work/moved/bin/$program" --help >"$work/$program.help"
done
for field in commit compiler mpi hdf5 kokkos blas device nccl cudnn; do
  "$work/moved/bin/tessera" --version | grep -q "^  $field  *[^ ]" || { echo "tessera --version has no $field"; exit 1; }
done

programs=$(cd "$work/moved/bin" && echo *)
[[ $programs == "tessera tessera-train zero-to-fp32" ]] || fail "bin has other files than Tessera's programs: $programs"

pages=$work/moved/share/doc/Tessera
python3 -B "$source/tests/docs/check_links.py" "$pages" "$work/moved" || fail "an installed page has a link to something that is not installed"

prefixes="$work/moved"
[[ -d $kokkos && $kokkos != "$build"* ]] && prefixes+=";$(realpath "$kokkos/../../..")"
build_project() {   # SOURCE BUILD
  { "$cmake" -S "$1" -B "$2" -G Ninja -DCMAKE_PREFIX_PATH="$prefixes" && "$cmake" --build "$2"; } >"$2.log" 2>&1 || { tail -30 "$2.log"; fail "$1 does not build"; }
  ! grep -q "CMake Warning" "$2.log" || { grep -A 8 "CMake Warning" "$2.log"; fail "CMake warns"; }
}
build_project "$source/tests/install/consumer" "$work/consumer"
"$work/consumer/consumer" | grep -q "1000 parameters over 3 ranks: 352 elements a rank" || { "$work/consumer/consumer"; fail "the consumer printed something else"; }
# Parquet: an installed program and the consumer read it if the build has Arrow, which the package file then finds again; else a message says so.
parquet=$source/tests/data/vectors/arrow/text.parquet tokenizer=$work/moved/share/tessera/configs/gpt2-8m
read_parquet() {   # EXPECTED_STATUS COMMAND...: its output
  local expected=$1 status=0; shift
  "$@" >"$work/parquet.log" 2>&1 || status=$?
  [[ $status == "$expected" ]] || { cat "$work/parquet.log"; fail "$1 ends with $status, not $expected, where it reads $parquet"; }
}
read_by_consumer=("$work/consumer/consumer" "$parquet" "$tokenizer" "$work")
read_by_program=("$work/moved/bin/tessera" tokenize "$tokenizer" --file "$parquet" --output "$work/parquet.bin")
if grep -q '^TESSERA_ENABLE_ARROW:BOOL=ON$' "$build/CMakeCache.txt"; then
  grep -q 'find_dependency(TesseraArrow)' "$work/moved/lib/cmake/Tessera/TesseraConfig.cmake" || fail "the package file does not find Arrow"
  python3 -c 'import json, sys; [print(json.dumps({"text": t})) for t in json.load(open(sys.argv[1]))]' "${parquet%/*}/records.json" >"$work/records.jsonl"
  "$work/consumer/consumer" "$work/records.jsonl" "$tokenizer" "$work" >"$work/records.log" 2>/dev/null
  read_parquet 0 "${read_by_consumer[@]}"
  diff "$work/records.log" <(grep '^[0-9]* records,' "$work/parquet.log") || fail "Parquet has other tokens than the same records of JSON"
  read_parquet 0 "${read_by_program[@]}"
else
  message="Parquet needs Apache Arrow, and this Tessera was built without it (TESSERA_ENABLE_ARROW); convert it with Python"
  read_parquet 78 "${read_by_consumer[@]}"
  grep -qF "$message" "$work/parquet.log" || { cat "$work/parquet.log"; fail "the library says nothing about Arrow"; }
  read_parquet 78 "${read_by_program[@]}"
  grep -qF "$message" "$work/parquet.log" || { cat "$work/parquet.log"; fail "tessera tokenize says nothing about Arrow"; }
fi
! grep -rlF "$build" "$work/moved/lib/cmake" || fail "an installed package file names the build tree"

python3 -B "$source/tests/docs/write_example.py" "$pages/docs/how-to/use-the-library.md" "$work/example"
build_project "$work/example" "$work/example-build"
printf 'record %s of the text\n' {1..400} >"$work/text.txt"
"$work/moved/bin/tessera-train" --model_type gpt2 --config_overrides n_embd=32,n_layer=2,n_head=2,vocab_size=4096,n_positions=32 --block_size 32 \
  --tokenizer_name "$work/moved/share/tessera/configs/gpt2-8m" --train_file "$work/text.txt" --do_train --max_steps 2 --output_dir "$work/run" \
  --device cpu >"$work/run.log" 2>&1 || { tail "$work/run.log"; fail "tessera-train"; }
inspect() {   # RUN EXIT_CODE PATTERN: what the example says about a run
  local status=0
  "$work/example-build/inspect" "$1" >"$work/inspect.log" 2>&1 || status=$?
  if [[ $status != "$2" ]] || ! grep -qE -- "$3" "$work/inspect.log"; then cat "$work/inspect.log"; fail "the example ends with $status, not $2, or does not say '$3'"; fi
}
# 2 layers of 12 x 32^2 + 13 x 32 parameters, the final norm of 2 x 32, embeddings of 4096 + 32 rows; 2 x 12 + 2 + 2 tensors
inspect "$work/run" 0 "^step 2: $((2 * (12 * 32 * 32 + 13 * 32) + 2 * 32 + 4128 * 32)) parameters in 28 tensors$"
inspect "$work/missing" 74 "^inspect: .*$work/missing"
shards=("$work"/run/checkpoints/step_00000002/shard*)
printf 'damaged' | dd of="${shards[0]}" bs=1 seek=$(($(stat -c %s "${shards[0]}") / 2)) conv=notrunc status=none
inspect "$work/run" 65 "${shards[0]}"
python3 -B "$source/tests/docs/write_example.py" "$pages/docs/how-to/own-trainer.md" "$work/classify"
build_project "$work/classify" "$work/classify-build"
printf '{"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}' >"$work/stage3.json"
mpirun -n 2 --oversubscribe --allow-run-as-root --bind-to none "$work/classify-build/classify" --model_type gpt2 --do_train --do_eval --max_steps 40 \
  --config_overrides n_embd=32,n_layer=2,n_head=2,vocab_size=64,n_positions=16 --tokenizer_name gpt2 --train_file none --per_device_train_batch_size 8 \
  --learning_rate 1e-2 --deepspeed "$work/stage3.json" --output_dir "$work/classified" >"$work/classify.log" 2>&1 || { tail "$work/classify.log"; fail "the classifier of the example"; }
grep -qE "^loss 1\.[0-9]+, then 0\.0" "$work/classify.log" || { tail "$work/classify.log"; fail "the classifier of the example does not learn"; }
grep -q '"score.weight"' "$work/classified/model.safetensors" || fail "the classifier's model has no score.weight"
python3 -B "$source/tests/docs/write_example.py" "$pages/docs/how-to/own-model.md" "$work/own-model"
cp "$work/classify/program.hpp" "$work/own-model/"
build_project "$work/own-model" "$work/own-model-build"
for stage in 0 1 2 3; do
  printf '{"zero_optimization": {"stage": %s}, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}' "$stage" >"$work/stage.json"
  for ranks in 1 2; do
    run=$work/own-model-$stage-$ranks
    mpirun -n "$ranks" --oversubscribe --allow-run-as-root --bind-to none "$work/own-model-build/own_model" --config_name "$work/own-model/config.json" \
      --do_train --do_eval --max_steps 40 --tokenizer_name none --train_file none --per_device_train_batch_size $((16 / ranks)) --learning_rate 1e-2 \
      --deepspeed "$work/stage.json" --output_dir "$run" >"$run.log" 2>&1 || { tail "$run.log"; fail "the model of the example at stage $stage on $ranks ranks"; }
  done
done
python3 - "$work" <<'PYTHON' || fail "the model of the example trains differently by stage or number of ranks"
import json, sys
runs = {}
for stage in range(4):
    for ranks in (1, 2):
        lines = [json.loads(line) for line in open(f"{sys.argv[1]}/own-model-{stage}-{ranks}/metrics.jsonl")]
        runs[stage, ranks] = [line[key] for line in lines for key in ("loss", "eval_loss") if key in line]
first = runs[0, 1]
assert len(first) > 40 and first[0] > 4.0 and first[-1] < first[0] / 2, first
for run, losses in runs.items():
    worst = max(abs(a - b) / a for a, b in zip(losses, first, strict=True))
    assert worst < 1e-6, (run, worst)
PYTHON
grep -q '"layers.1.attention.q_proj.weight"' "$work/own-model-3-2/model.safetensors" || fail "the model of the example exports other names"
echo "installed, moved, documented and used"
