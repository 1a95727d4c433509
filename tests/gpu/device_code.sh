#!/usr/bin/env bash
# What the compiled flat kernels, and those by rows and columns, do with a device's memory, read from their machine code: packs of 16 bytes, 8 for the narrower of two element
# types, in one access each, as many as the kernels' design says, in the flat kernels all reads before the first write; nothing in local memory
# (16 bytes of stack are Kokkos' own, where a kernel has scratch memory).
#   tests/gpu/device_code.sh CUDA_DIRECTORY OBJECT...     cuobjdump from TESSERA_CUOBJDUMP, the toolkit or PATH; exit code 77 without
set -euo pipefail
toolkit=$1
shift
tool=
for candidate in "${TESSERA_CUOBJDUMP:-}" "$toolkit/cuobjdump" "$(command -v cuobjdump || true)"; do
  [[ -z $tool && -x $candidate ]] && tool=$candidate
done
[[ -n $tool ]] || { echo "no cuobjdump in $toolkit or PATH (tests/gpu/get_cuobjdump.sh fetches one); TESSERA_CUOBJDUMP names it elsewhere"; exit 77; }
PATH=$PATH:$(dirname "$tool")   # of nvdisasm, which it calls

objects=()
for object in "$@"; do
  case ${object##*/} in activation.cpp.* | adamw.cpp.* | column_sums.cpp.* | cross_entropy.cpp.* | elementwise.cpp.* | embedding.cpp.* | gradient_statistics.cpp.* | layer_norm.cpp.* | sgd.cpp.*) objects+=("$object") ;; esac
done
[[ ${#objects[@]} == 9 ]] || { echo "expected nine objects, of activation to sgd, got: ${objects[*]}"; exit 1; }

for object in "${objects[@]}"; do
  "$tool" --dump-resource-usage "$object"
  "$tool" --dump-sass "$object"
done | c++filt | awk '
  function short(name) {   # ParallelFor<KERNEL, Kokkos::...
    sub(/.*ParallelFor</, "", name); sub(/.*Function *:? */, "", name)
    gsub(/tessera::(kernels::|optim::)?(detail::)?|\(anonymous namespace\)::/, "", name)
    gsub(/, ScratchBytes<[0-9a-z]*>/, "", name); sub(/, Kokkos::.*/, "", name); sub(/^CallWithScratch</, "", name)
    return name
  }
  function bytes(type) { return type == "float" ? 4 : type == "void" ? 0 : 2 }
  function wanted(kernel, pack, packs, from, to,    n, i) {   # sets want[16 or 8 bytes read, written]
    split("", want)
    n = split(from, operand, " ")
    for (i = 1; i <= n; ++i) want["r" pack * bytes(operand[i])] += packs
    n = split(to, operand, " ")
    for (i = 1; i <= n; ++i) want["w" pack * bytes(operand[i])] += packs
    for (i in want)
      if (i != "r0" && i != "w0" && seen[kernel, i] < want[i]) wrong(kernel, seen[kernel, i] + 0 " accesses " i ", designed are " want[i])
  }
  # By rows: `reads` and `writes` of 16 bytes at least, anywhere in the kernel.
  function rows(kernel, reads, writes) {
    if (all_seen[kernel, "r16"] < reads || all_seen[kernel, "w16"] < writes)
      wrong(kernel, all_seen[kernel, "r16"] + 0 " reads and " all_seen[kernel, "w16"] + 0 " writes of 16 bytes, designed are " reads " and " writes)
    if (stack[kernel] > 16) wrong(kernel, stack[kernel] " bytes of local memory are used")
    ++by_rows
  }
  function wrong(kernel, what) { print kernel ": " what; bad = 1 }

  /^arch = /                 { arch = $3 }
  / Function .*ParallelFor</ { usage = arch " " short($0) }
  / REG:/ && usage != ""     { split($0, word); for (i in word) if (word[i] ~ /^(STACK|LOCAL):[1-9]/) { spilled[usage] = word[i]; sub(/.*:/, "", word[i]); stack[usage] += word[i] } usage = "" }
  /Function : /              { code = arch " " short($0); kernels[code] = 1; writes = 0 }
  / LDG\.E\.128[ .]/        { ++all_seen[code, "r16"] }
  / STG\.E\.128[ .]/        { ++all_seen[code, "w16"] }
  / STG\.E\.(128|64)[ .]/    { ++seen[code, / STG\.E\.128/ ? "w16" : "w8"]; writes = 1 }
  / LDG\.E\.(128|64)[ .]/ && !writes { ++seen[code, / LDG\.E\.128/ ? "r16" : "r8"] }
  / (LDL|STL)[. ]/           { spilled[code] = "access" }
  END {
    for (kernel in kernels) {
      types = kernel; sub(/^[^ ]* /, "", types)
      ++all[substr(kernel, 1, index(kernel, " ") - 1)]
      if (sub(/^FlatOnDevice<Flat</, "", types)) {
        sub(/> *>.*/, "", types)
        split(types, t, /, */)
        widest = bytes(t[2]); for (i = 3; i <= 4; ++i) if (bytes(t[i]) > widest) widest = bytes(t[i])
        wanted(kernel, 16 / widest, t[4] == "void" ? 4 : 2, t[3] " " t[4], t[2]); ++flat
      } else if (sub(/^UpdatePacks</, "", types)) {
        sub(/>.*/, "", types)
        split(types, t, /, */)
        states = t[1] == "AdamWRule" ? "float float " : t[1] == "SgdMomentumRule" ? "float " : ""
        wanted(kernel, 4, 2, "float " states t[2], "float " states t[3]); ++updates
      } else if (sub(/.*SquaresOfRuns</, "", types)) {
        sub(/>.*/, "", types)
        wanted(kernel, 16 / bytes(types), 4, types, ""); ++squares
      } else if (types ~ /^(Team(Residual)?Normalize(Backward)?|TeamCrossEntropy|ColumnTile|EmbedPack|SumTokensOfSlice|SumTokensAcrossSlices|SumPositions)</) {
        rule = types; sub(/<.*/, "", rule); sub(/[^<]*</, "", types); sub(/ *>.*/, "", types)
        split(types, t, /, */)
        narrow = t[1] == "float" && kernel ~ /float16/                  # its result is of 16 bits: packs of 8 bytes
        if (rule == "TeamNormalize") rows(kernel, 6, narrow ? 0 : 4)    # four rows; gamma, beta
        else if (rule == "TeamResidualNormalize") rows(kernel, 10, narrow ? 4 : 8)   # two inputs, two outputs
        else if (rule == "TeamNormalizeBackward") rows(kernel, 13, t[1] == "float" ? 6 : 8)   # three inputs, gamma; din, two fp32 sums
        else if (rule == "TeamCrossEntropy" && t[4] == "true") rows(kernel, t[2] == "float" ? 8 : 4, t[1] == "float" ? 4 : 2)   # sixteen elements, twice
        else if (rule == "ColumnTile" && t[3] > 1) rows(kernel, 4, 0)
        else if (rule == "EmbedPack" && t[2] > 1) rows(kernel, 2, 1)
        else if (rule == "SumTokensOfSlice" && t[3] > 1) rows(kernel, 4, 1)
        else if (rule == "SumTokensAcrossSlices" && t[3] > 1) rows(kernel, 8, 0)
        else if (rule == "SumPositions" && t[3] > 1) rows(kernel, 4, 0)
        continue
      } else continue
      if (kernel in spilled) wrong(kernel, "local memory is used: " spilled[kernel])
    }
    for (arch in all) ++architectures
    if (architectures == 0 || flat != 71 * architectures || updates != 24 * architectures || squares != 3 * architectures || by_rows != 96 * architectures)
      wrong("found", flat + 0 " element-wise kernels of 71, " updates + 0 " of optimizers of 24, " squares + 0 " of squares of 3, " by_rows + 0 " by rows of 96, for each of " architectures + 0 " architectures")
    if (!bad) print flat + updates + squares + by_rows " kernels read and write whole packs"
    exit bad
  }'
