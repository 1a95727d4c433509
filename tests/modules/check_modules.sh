#!/usr/bin/env bash
# The modulefiles under a real Lmod: loading sets what it should, unloading leaves the environment as it was, both languages agree.
#   check_modules.sh CMAKE BUILD_DIR WORK_DIR VERSION        125: there is no Lmod here
set -euo pipefail
cmake=$1 build=$2 work=$3 version=$4
lmod=${LMOD_INIT:-/usr/share/lmod/lmod/init/bash}
[[ -r $lmod ]] || { echo "skipped: no Lmod here (Debian package lmod); $lmod is not there"; exit 125; }
rm -rf "$work"; mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/moved"   # the prefix is found when the module is loaded
root=$work/moved

# Runs commands in a shell with Lmod and one of the two files alone, and an environment of its own.
with_lmod() {   # lua|tcl COMMANDS
  local tree=$work/tree.$1
  if [[ ! -d $tree ]]; then
    mkdir -p "$tree"; cp -r "$root" "$tree/prefix"
    if [[ $1 == lua ]]; then rm "$tree/prefix/share/modulefiles/tessera/$version"; else rm "$tree/prefix/share/modulefiles/tessera/$version.lua"; fi
  fi
  env -i HOME="$work" PATH=/usr/local/bin:/usr/bin:/bin TREE="$tree/prefix" ${MANPATH_GIVEN:+MANPATH="$MANPATH_GIVEN"} bash --noprofile --norc -c "
    source '$lmod' >/dev/null; module use '$tree/prefix/share/modulefiles'; $2" 2>&1
}
expect() { grep -qF -- "$2" <<<"$1" || { echo "'$2' is not in:"; echo "$1"; exit 1; }; }

snapshot='env | grep -vE "^(_|SHLVL|LMOD_|_LMFILES_|LOADEDMODULES|__LMOD|_ModuleTable|_LM)" | sort'
for kind in lua tcl; do
  for given in '' /usr/share/man; do
    MANPATH_GIVEN=$given with_lmod $kind "$snapshot >'$work/before'; module load tessera/$version; $snapshot >'$work/loaded'; module unload tessera; $snapshot >'$work/after'"
    diff "$work/before" "$work/after" || { echo "$kind: unloading does not restore the environment (MANPATH given: '$given')"; exit 1; }
    loaded=$(cat "$work/loaded")
    expect "$loaded" "TESSERA_HOME=$work/tree.$kind/prefix"
    expect "$loaded" "TESSERA_VERSION=$version"
    expect "$loaded" "PATH=$work/tree.$kind/prefix/bin:"
    expect "$loaded" "CMAKE_PREFIX_PATH=$work/tree.$kind/prefix"
    if [[ -n $given ]]; then expect "$loaded" "MANPATH=$work/tree.$kind/prefix/share/man:$given"; else ! grep -q ^MANPATH= <<<"$loaded"; fi
    ! grep -q LD_LIBRARY_PATH <<<"$loaded" || { echo "$kind: LD_LIBRARY_PATH is set"; exit 1; }
  done
  # shellcheck disable=SC2016
  expect "$(with_lmod $kind "module load tessera; tessera --version")" "tessera $version"
  expect "$(with_lmod $kind "module load tessera; tessera submit multi-node --nodes 3 --dry-run -- --do_train")" "#SBATCH --nodes=3"
  expect "$(with_lmod $kind "module avail")" "tessera/$version"
  expect "$(with_lmod $kind "module whatis tessera")" "ZeRO training toolkit"
  expect "$(with_lmod $kind "module show tessera")" "TESSERA_HOME"
  expect "$(with_lmod $kind "module help tessera")" "srun tessera-train"
  echo "$kind: loads, shows, unloads"
done
