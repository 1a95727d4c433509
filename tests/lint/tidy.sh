#!/usr/bin/env bash
# clang-tidy 14 with the checks of .clang-tidy over the sources of src, as the preset host-clang compiles them. Fails where it finds something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/host-clang
cmake --preset host-clang >/dev/null
mapfile -t files < <(grep -o '"file": "[^"]*' "$build/compile_commands.json" | cut -d'"' -f4 | grep -E "^$PWD/($build/)?src/")
[[ ${#files[@]} -gt 20 ]] || { echo "only ${#files[@]} units found in $build: the check itself is broken"; exit 1; }
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 -p "$build" --quiet 2>/dev/null
echo "${#files[@]} units: clang-tidy finds nothing"
