#!/usr/bin/env bash
# Fetches cuobjdump and nvdisasm, which some CUDA toolkits come without, from the package index that pip is set up with, into DIR.
#   tests/gpu/get_cuobjdump.sh DIR
set -uo pipefail
[[ $# -eq 1 ]] || { sed -n '2,3p' "$0" >&2; exit 64; }
dir=$1
[[ -x $dir/cuobjdump && -x $dir/nvdisasm ]] && exit 0
mkdir -p "$dir" && work=$(mktemp -d "$dir/fetch.XXXXXX") || exit 73
trap 'rm -rf "$work"' EXIT
for pip in "python3 -m pip" pip3 pip; do
  $pip download -q --no-deps --no-cache-dir --only-binary :all: --timeout 15 --retries 1 -d "$work" nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm >/dev/null 2>&1 || continue
  for wheel in "$work"/*.whl; do python3 -m zipfile -e "$wheel" "$work/unpacked" || exit 74; done
  find "$work/unpacked" \( -name cuobjdump -o -name nvdisasm \) -type f -exec install -m 755 -t "$dir" {} +
  [[ -x $dir/cuobjdump && -x $dir/nvdisasm ]] && exit 0
done
echo "get_cuobjdump: pip could not download nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm here" >&2
exit 74
