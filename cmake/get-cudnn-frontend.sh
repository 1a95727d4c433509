#!/usr/bin/env bash
# Fetches the headers of cuDNN's C++ frontend (nvidia-cudnn-frontend) from the package index that pip is set up with, into DIR/include.
#   get-cudnn-frontend.sh DIR
set -uo pipefail
[[ $# -eq 1 ]] || { sed -n '2,3p' "$0" >&2; exit 64; }
dir=$1
version=1.32.0   # another one of the same major version will do; this one has been compiled
[[ -e $dir/include/cudnn_frontend.h ]] && exit 0

mkdir -p "$dir" && work=$(mktemp -d "$dir/fetch.XXXXXX") || exit 73
trap 'rm -rf "$work"' EXIT
for pip in "python3 -m pip" pip3 pip; do
  for wanted in "nvidia-cudnn-frontend==$version" "nvidia-cudnn-frontend>=1.10,<2"; do
    $pip download -q --no-deps --no-cache-dir --only-binary :all: --timeout 15 --retries 1 -d "$work" "$wanted" >/dev/null 2>&1 || continue
    python3 -m zipfile -e "$work"/nvidia_cudnn_frontend-*.whl "$work/wheel" && mv "$work/wheel/include" "$dir/include" && exit 0
  done
done
echo "get-cudnn-frontend: pip could not download nvidia-cudnn-frontend here" >&2
exit 74
