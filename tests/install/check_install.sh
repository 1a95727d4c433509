#!/usr/bin/env bash
# Installs the build tree, moves the installation, builds the consumer against it and runs the installed programs.
#   check_install.sh CMAKE BUILD_DIR CONSUMER_SOURCE WORK_DIR KOKKOS_DIR
set -euo pipefail
cmake=$1 build=$2 consumer=$3 work=$4 kokkos=$5
rm -rf "$work"; mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/moved"

for program in tessera-train tessera zero-to-fp32; do
  "$work/moved/bin/$program" --version | grep -q "^$program " || { echo "$program --version does not name itself"; exit 1; }
  "$work/moved/bin/$program" --help >"$work/$program.help"
done
for field in commit compiler mpi hdf5 kokkos blas cuda nccl cudnn; do
  "$work/moved/bin/tessera" --version | grep -q "^  $field  *[^ ]" || { echo "tessera --version has no $field"; exit 1; }
done

prefixes="$work/moved"
[[ -d $kokkos && $kokkos != "$build"* ]] && prefixes+=";$(realpath "$kokkos/../../..")"
"$cmake" -S "$consumer" -B "$work/consumer" -G Ninja -DCMAKE_PREFIX_PATH="$prefixes" >"$work/consumer.log" 2>&1 || { tail -30 "$work/consumer.log"; exit 1; }
"$cmake" --build "$work/consumer" >>"$work/consumer.log" 2>&1 || { tail -30 "$work/consumer.log"; exit 1; }
"$work/consumer/consumer" | grep -q "1000 parameters over 3 ranks: 352 elements a rank" || { echo "the consumer printed something else:"; "$work/consumer/consumer"; exit 1; }
! grep -rlF "$build" "$work/moved/lib/cmake/Tessera" || { echo "the installed package file names the build tree"; exit 1; }
echo "installed, moved and used"
