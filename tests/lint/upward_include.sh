#!/usr/bin/env bash
# Proves that a layer, or a part of one, cannot include a header of a higher one: the compiler does not find it, while it finds its own.
#   upward_include.sh CXX REPOSITORY FOLDER "HIGHER;FOLDERS" "INCLUDE;DIRECTORIES"     (FOLDER: "layer" or "layer/part")
set -euo pipefail
cxx=$1 repository=$2 layer=$3 higher=$4 directories=$5
flags=()
while IFS= read -r directory; do [[ -n $directory ]] && flags+=("-I$directory"); done < <(tr ';' '\n' <<<"$directories")
compiles() { echo "#include \"tessera/$1\"" | "$cxx" -std=c++20 -fsyntax-only "${flags[@]}" -x c++ - 2>&1; }
some_header() {   # FOLDER: "FOLDER/x.hpp", public or shared between layers
  (cd "$repository" && find include/tessera src/*/shared src/*/*/shared -path "*/$1/*.hpp" -printf "$1/%f\n" | sort | head -n 1)
}

own=$(some_header "$layer")   # none: a part for its own layer only
[[ -z $own ]] || compiles "$own" || { echo "$layer does not find its own header: the check itself is broken"; exit 1; }
while IFS= read -r other; do
  [[ -n $other ]] || continue
  header=$(some_header "$other" || true)
  [[ -n $header ]] || continue
  if message=$(compiles "$header"); then echo "$layer can include tessera/$header"; exit 1; fi
  grep -q 'No such file' <<<"$message" || { echo "tessera/$header fails for another reason: $message"; exit 1; }
done < <(tr ';' '\n' <<<"$higher")
