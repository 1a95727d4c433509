#!/usr/bin/env bash
# Checks that clang-format 14 would change no C++ file. Skipped (77) where there is no clang-format 14.
#   check_format.sh REPOSITORY
set -euo pipefail
cd "$1"
tool=''
for name in clang-format-14 clang-format; do
  if [[ $("$name" --version 2>/dev/null) == *"version 14."* ]]; then tool=$name; break; fi
done
[[ -n $tool ]] || { echo "skipped: no clang-format 14 on this machine; install the Debian package clang-format-14"; exit 77; }
mapfile -t files < <(find src include tests -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' | sort)
[[ ${#files[@]} -gt 100 ]] || { echo "only ${#files[@]} C++ files found in $1: the check itself is broken"; exit 1; }
if ! printf '%s\0' "${files[@]}" | xargs -0 -n 40 -P 2 "$tool" --style=file --dry-run -Werror; then
  echo "format these files: $tool -i FILE..."
  exit 1
fi
echo "${#files[@]} files are formatted"
