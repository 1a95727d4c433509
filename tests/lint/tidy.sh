#!/usr/bin/env bash
# clang-tidy 14 with the checks of .clang-tidy over the sources of src, as the preset host-clang compiles them. Fails where it finds something.
#   tidy.sh [FILE ...]     FILE: sources to check, such as src/core/text.cpp; default: all
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=build/host-clang
[[ -f $build/compile_commands.json ]] || cmake --preset host-clang
files=("$@")
[[ $# -gt 0 ]] || mapfile -t files < <(grep -o "\"file\": \"$PWD/src/[^\"]*" "$build/compile_commands.json" | sed 's/.*"//' | sort -u)
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy-14 -p "$build" --quiet 2>/dev/null && echo "${#files[@]} sources: clang-tidy finds nothing"
