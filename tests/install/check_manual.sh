#!/usr/bin/env bash
# Each program of an installed Tessera has a man page that mandoc accepts, that contains every long option of --help, and whose paths share/... exist.
#   check_manual.sh CMAKE BUILD_DIR WORK_DIR        125: mandoc is not installed
set -euo pipefail
cmake=$1 build=$2 work=$3
command -v mandoc >/dev/null || { echo "skipped: no mandoc here (Debian package mandoc)"; exit 125; }
rm -rf "$work"; mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/tree" >"$work/install.log"
for program in "$work"/tree/bin/*; do
  name=${program##*/} page=$work/tree/share/man/man1/${program##*/}.1
  [[ -s $page ]] || { echo "$name has no man page"; exit 1; }
  mandoc -T lint -W warning "$page" || { echo "mandoc reports problems in $page"; exit 1; }
  mandoc -T utf8 "$page" | sed 's/.\x08//g' >"$work/$name.txt"
  "$program" --help | grep -oE -- '(^|[ ,])--[a-z][a-z0-9_-]+' | tr -d ' ,' | sort -u >"$work/$name.options"
  while read -r option; do
    grep -qF -- "$option" "$work/$name.txt" || { echo "$option of $name --help is not in its man page"; exit 1; }
  done <"$work/$name.options"
  while read -r path; do
    [[ -e $work/tree/$path ]] || { echo "the page of $name names $path, which is not installed"; exit 1; }
  done < <(grep -oE '\bshare/[[:alnum:]/_]+' "$work/$name.txt")
  echo "$name: $(wc -l <"$work/$name.options") options, page of $(wc -l <"$work/$name.txt") lines"
done
