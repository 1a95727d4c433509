#!/usr/bin/env bash
# The programs of a build folder find their data files, wherever that folder is: it is used here from outside of the source tree.
#   check_build_folder.sh BUILD_DIR
set -euo pipefail
build=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/tessera-build.XXXXXX"); trap 'rm -rf "$work"' EXIT
mkdir -p "$work/deeply/nested/build"
cp -a "$build/bin" "$build/share" "$work/deeply/nested/build/"
cd /
checked=(--no-check --dry-run -- run.json)
ln -s "$work/deeply/nested/build/bin/tessera" "$work/linked"
for tessera in "$work/deeply/nested/build/bin/tessera" "$work/linked"; do
  "$tessera" submit requeue --site juwels "${checked[@]}" | grep -q '^#SBATCH --requeue' || { echo "$tessera finds no template or site"; exit 1; }
  "$tessera" launch --dry-run --num_gpus 1 -- run.json 2>&1 | grep -qF "$work/deeply/nested/build/bin/tessera-train" || { echo "$tessera does not find tessera-train"; exit 1; }
done
"$work/linked" selftest --dir "$work" | grep -q "this installation works on this machine" || { echo "the self-test fails"; exit 1; }
echo "a build folder outside of the source tree works"
