#!/usr/bin/env bash
# The same source gives the same version text, wherever and whenever it is configured; an archive knows its commit.
#   check_version.sh CMAKE SOURCE_DIR WORK_DIR
set -euo pipefail
cmake=$1 source=$2 work=$3
rm -rf "$work"; mkdir -p "$work"
configure() {   # COPY [VARIABLE=VALUE ...]: prints the header without its #pragma
  local copy=$work/$1; shift
  mkdir -p "$copy/cmake" "$copy/src/train" "$copy/out"
  cp "$source/cmake/VersionText.cmake" "$copy/cmake/"
  cp "$source/src/train/version_config.hpp.in" "$copy/src/train/"
  cat >"$copy/probe.cmake" <<CMAKE
set(PROJECT_SOURCE_DIR "$copy")
set(PROJECT_VERSION 0.1.0)
set(CMAKE_CURRENT_BINARY_DIR "$copy/out")
include("$copy/cmake/VersionText.cmake")
CMAKE
  env "$@" "$cmake" -P "$copy/probe.cmake" >/dev/null
  grep define "$copy/out/version/version_config.hpp"
}
expect() { grep -qF -- "$2" <<<"$1" || { echo "'$2' is not in:"; echo "$1"; exit 1; }; }

mkdir -p "$work"/{first/cmake,second/cmake}
for copy in first second; do echo "0123456789abcdef0123456789abcdef01234567 2026-01-31" >"$work/$copy/cmake/archive.txt"; done
first=$(configure first TZ=UTC); sleep 1; second=$(configure second TZ=Asia/Tokyo)
[[ $first == "$second" ]] || { echo "two configurations of the same source differ:"; diff <(echo "$first") <(echo "$second"); exit 1; }
expect "$first" 'TESSERA_COMMIT "0123456789ab"'
expect "$first" 'TESSERA_DATE "2026-01-31"'
expect "$(configure first SOURCE_DATE_EPOCH=86400)" 'TESSERA_DATE "1970-01-02"'
mkdir -p "$work/plain/cmake"; echo 'no archive: not filled in' >"$work/plain/cmake/archive.txt"
plain=$(configure plain)
expect "$plain" 'TESSERA_COMMIT "unknown"'
grep -q 'export-subst' "$source/.gitattributes"
echo "reproducible"
