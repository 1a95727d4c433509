#!/usr/bin/env bash
# Tessera's first steps on a Debian machine (root, or a user with sudo).
#
#   ./quickstart.sh [OPTIONS]          install what is missing, build, train a small GPT-2 on two ranks, consolidate, generate
#   ./quickstart.sh test [OPTIONS]     install what is missing, build everything, run all tests; with nvcc, also build for GPUs
#
# Options
#   --train_file FILE   train on this text instead of the Jargon File (Debian package jargon-text)
#   --output_dir DIR    where the run goes                                        (default: out/quickstart)
#   --max_steps N       optimizer steps; the default trains for about two minutes on two cores
#   --build-dir DIR     where to build; tests in DIR-tests, for GPUs in DIR-cuda  (default: build/quickstart)
#   --jobs N            compile jobs                                              (default: number of cores)
#   --no-install        do not install packages; name the missing ones and continue
#   -h, --help          this text
#
# Both may be repeated: installed packages and built files are reused; the run's directory is overwritten.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' quickstart.sh; }
die() { echo "quickstart: $2" >&2; exit "$1"; }
say() { echo "== $*"; }

goal=run install=1 jobs=$(nproc) build=build/quickstart output=out/quickstart text='' steps=300
while [[ $# -gt 0 ]]; do
  case $1 in
    test) goal='test' ;;
    --train_file|--output_dir|--max_steps|--build-dir|--jobs)
      [[ $# -ge 2 ]] || die 64 "$1 needs a value; see ./quickstart.sh --help"
      case $1 in
        --train_file) text=$2 ;; --output_dir) output=$2 ;; --max_steps) steps=$2 ;; --build-dir) build=$2 ;; --jobs) jobs=$2 ;;
      esac
      shift ;;
    --no-install) install=0 ;;
    -h|--help) usage; exit 0 ;;
    *) die 64 "unknown argument '$1'; see ./quickstart.sh --help" ;;
  esac
  shift
done
[[ $jobs =~ ^[1-9][0-9]*$ ]] || die 64 "--jobs is '$jobs'; it must be a positive number"
[[ $steps =~ ^[1-9][0-9]*$ ]] || die 64 "--max_steps is '$steps'; it must be a positive number"
[[ -z $text || -r $text ]] || die 74 "cannot read the training text '$text'"

packages=(g++ cmake ninja-build ccache pkg-config libopenmpi-dev openmpi-bin libhdf5-dev libdnnl-dev libopenblas-openmp-dev
          nlohmann-json3-dev libfmt-dev libspdlog-dev libhwloc-dev libxxhash-dev libpcre2-dev libutf8proc-dev libyaml-dev zlib1g-dev libzstd-dev
          libsentencepiece-dev liburing-dev)
[[ $goal == run && -z $text ]] && packages+=(jargon-text)
[[ $goal == test ]] && packages+=(libgtest-dev libgmock-dev libbenchmark-dev hdf5-tools python3 python3-jinja2 python3-jsonschema shellcheck jargon-text
                                slurmctld slurmd slurm-client libpmix2 iproute2 lmod strace)
[[ $goal == test ]] && packages+=(mpich libmpich-dev libpmi2-0)   # a second MPI; its priority leaves mpicc and mpirun to Open MPI
[[ $goal == test ]] && packages+=(mandoc man-db bash-completion tcl make dpkg-dev file doxygen mkdocs)
[[ $goal == test ]] && packages+=(clang-14 libclang-rt-14-dev clang-format-14)  # libFuzzer; lint.format

export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$PWD}   # ccache compiles once for checkouts in several directories

install_packages() {
  local missing=() p sudo=()
  for p in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${Status}' "$p" 2>/dev/null) == *" installed" ]] || missing+=("$p")
  done
  [[ ${#missing[@]} -eq 0 ]] && return 0
  if [[ $install == 0 ]]; then
    say "not installed (--no-install): ${missing[*]}"
    return 0
  fi
  command -v apt-get >/dev/null || die 78 "this machine has no apt-get; install the equivalents of: ${missing[*]}, then use --no-install"
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null || die 77 "packages are missing and there is no sudo; ask an administrator for: ${missing[*]}"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

configure() {   # DIRECTORY OPTION ...
  local tree=$1 cpu
  cpu=$(grep -m1 -E '^(flags|Features)' /proc/cpuinfo | sha256sum)   # a build tree that moved to another processor is configured again
  mkdir -p "$tree"
  if [[ ! -f $tree/build.ninja || $goal == test || $(cat "$tree/processor" 2>/dev/null) != "$cpu" ]]; then
    echo "$cpu" >"$tree/processor"
    cmake -S . -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release "${@:2}" \
      >"$tree.configure.log" 2>&1 || { tail -30 "$tree.configure.log" >&2; die 70 "configuring failed; the complete log is in $tree.configure.log"; }
  fi
}

# The programs as users get them, compiled in few large units: the fastest build from nothing.
build_programs() {   # TARGET ...
  configure "$build" -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_BENCH=OFF -DTESSERA_UNITY=ON
  cmake --build "$build" --parallel "$jobs" --target "$@"
}

# A test that fails or runs out of time is not repeated; what a test itself had to begin again is said at the end.
run_ctest() {   # BUILD [OPTION ...]
  local status=0
  ctest --test-dir "$1" "${@:2}" --output-on-failure --no-tests=error || status=$?
  grep -ah '^RETRIED' "$1/Testing/Temporary/LastTest.log" || true
  return $status
}

show() { printf '\n$'; printf ' %q' "$@"; printf '\n'; "$@"; }   # prints a command as a user would type it, then runs it

# The preset cuda for one architecture where nvcc is installed: its programs, benchmarks and GPU tests; needs no driver. The host's tests are those
# of the host build.
test_cuda_build() {
  local nvcc log=$build-cuda.log
  nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || { say "no nvcc on this machine: skipping the build for GPUs"; return 0; }
  echo '#include <nccl.h>' | "$nvcc" -x cu -E - >/dev/null 2>&1 || { say "no nccl.h on this machine: skipping the build for GPUs"; return 0; }
  say "building for GPUs (${TESSERA_CUDA_ARCHITECTURES:-90})"
  mkdir -p "$(dirname "$log")"
  cmake --preset cuda -B "$build-cuda" -DTESSERA_UNITY=ON "-DTESSERA_TEST_FOLDERS=gpu;bench" -DCMAKE_CUDA_COMPILER="$nvcc" \
    -DTESSERA_CUDA_ARCHITECTURES="${TESSERA_CUDA_ARCHITECTURES:-90}" >"$log" 2>&1 ||
    { tail -30 "$log" >&2; die 70 "configuring for GPUs failed; the complete log is in $log"; }
  cmake --build "$build-cuda" --parallel "$jobs" --target gpu_suite benchmarks
  if ! command -v cuobjdump >/dev/null && [[ ! -x ${nvcc%/*}/cuobjdump ]] && tests/gpu/get_cuobjdump.sh "$build-cuda/tools"; then
    TESSERA_CUOBJDUMP=$(cd "$build-cuda/tools" && pwd)/cuobjdump
    export TESSERA_CUOBJDUMP
  fi
  run_ctest "$build-cuda" -L gpu -L install --parallel $((2 * jobs))
}

# environment-modules conflicts with lmod in Debian: the tests use its files without installing the package.
unpack_environment_modules() {
  [[ $install == 1 && ! -d $build/environment-modules ]] && command -v apt-get >/dev/null || return 0
  local folder; folder=$(mktemp -d)
  if (cd "$folder" && apt-get download -qq environment-modules >/dev/null 2>&1); then
    mkdir -p "$build" && dpkg-deb -x "$folder"/environment-modules_*.deb "$build/environment-modules"
  fi
  rm -rf "$folder"
}

# What depends on MPI, once more with MPICH and its launcher Hydra. Sources that do not see MPI come from the compiler cache.
test_mpich_build() {
  local tree=$build-mpich
  command -v mpicxx.mpich >/dev/null || { say "no mpicxx.mpich on this machine: skipping the tests under MPICH"; return 0; }
  say "building for MPICH"
  configure "$tree" "-DTESSERA_TEST_FOLDERS=topology;comm;zero;e2e;slurm" "$@" -DMPI_CXX_COMPILER=mpicxx.mpich
  cmake --build "$tree" --parallel "$jobs" --target tessera-train tessera mpi_suite
  say "testing under MPICH"
  run_ctest "$tree" -L mpi --parallel $((2 * jobs))
}

run_tests() {
  local options
  test_cuda_build
  (steps=4 output=$build-smoke; main_job)   # the programs that users get
  say "building everything with contracts, and warnings as errors"
  build=$build-tests
  unpack_environment_modules
  options=(-DTESSERA_BUILD_TESTS=ON -DTESSERA_ASSERTIONS=ON -DTESSERA_WERROR=ON -DTESSERA_TIME_COMPILES=ON "-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG")
  configure "$build" -DTESSERA_BUILD_BENCH=ON "${options[@]}"
  cmake --build "$build" --parallel "$jobs"
  tests/lint/build_time.py "$build"
  say "testing"
  # more tests than cores: most wait for programs to start and end, for files and for time limits
  run_ctest "$build" -LE matrix --parallel $((4 * jobs))   # the reshard matrix: ctest --test-dir "$build" -L matrix
  build=${build%-tests} test_mpich_build "${options[@]}"
}

main_job() {
  local bin=$build/bin corpus=$output.txt root=()
  if [[ ! -x $bin/tessera-train || -n $(find src include cmake CMakeLists.txt -newer "$bin/tessera-train" -print -quit) ]]; then
    say "building tessera-train"
    build_programs tessera-train
    touch "$bin/tessera-train"
  fi
  mkdir -p "$(dirname "$output")"
  if [[ -n $text ]]; then corpus=$text; else
    gunzip -c /usr/share/doc/jargon-text/jargon.txt.gz >"$corpus" || die 74 "package jargon-text is not installed; name a text with --train_file FILE"
  fi
  [[ $EUID -eq 0 ]] && root=(--allow-run-as-root)

  say "training a GPT-2 of 7 million parameters from random weights: ZeRO stage 2 on two ranks"
  show mpirun -np 2 --bind-to none --oversubscribe "${root[@]}" "$bin/tessera-train" \
    --config_name configs/gpt2-8m --tokenizer_name configs/gpt2-8m --train_file "$corpus" --block_size 256 \
    --output_dir "$output" --overwrite_output_dir --do_train --do_eval --eval_on_start --deepspeed configs/ds_zero2.json \
    --per_device_train_batch_size 4 --per_device_eval_batch_size 8 --max_steps "$steps" --learning_rate 1e-3 --weight_decay 0.1 \
    --lr_scheduler_type cosine --warmup_steps 30 --logging_steps 20 --save_steps $(((steps + 1) / 2)) --save_total_limit 2 --seed 1 \
    --do_generate --prompt "A hacker is" --max_new_tokens 60 --temperature 0.8 --top_k 40

  say "building tessera and zero-to-fp32"
  build_programs tessera
  say "consolidating the last checkpoint into one fp32 file, as a login node would"
  show "$bin/zero-to-fp32" "$output" "$output/fp32.safetensors"
  say "drawing the loss curve"
  show "$bin/tessera" plot "$output" --output "$output/loss.svg"

  cat <<TEXT

Files
  $output/model.safetensors     the trained model, with config.json and tokenizer.json a Hugging Face directory
  $output/fp32.safetensors      the fp32 master weights of the last checkpoint
  $output/loss.svg              the loss curve; $output/metrics.jsonl has the numbers, $output/status.json the state of the run
  $output/checkpoints           HDF5 shards: h5ls -r $output/checkpoints/$(cat "$output/checkpoints/latest")/view.h5

Try next
  $bin/tessera checkpoint ls $output
  mpirun -np 2 $bin/tessera-train --model_name_or_path $output --do_generate --prompt "The jargon file" --max_new_tokens 80
  mpirun -np 2 $bin/tessera-train --model_name_or_path $output --train_file FILE --do_train --output_dir out/mine --deepspeed configs/ds_zero3.json
  $bin/tessera-train --help
TEXT
}

install_packages
if [[ $goal == test ]]; then run_tests; else main_job; fi
