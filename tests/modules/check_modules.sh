#!/usr/bin/env bash
# Tests the modulefiles with Lmod and environment-modules: loading sets the right variables, unloading restores the environment.
#   check_modules.sh lua|tcl|modules CMAKE BUILD_DIR WORK_DIR VERSION
# lua, tcl: that file under Lmod. modules: the Tcl file under environment-modules, whose Debian package conflicts with lmod's: its modulecmd.tcl may be
# in BUILD_DIR/environment-modules (quickstart.sh unpacks it there), in MODULES_CMD, or where the package puts it. 125: the tool is not installed.
set -euo pipefail
kind=$1 cmake=$2 build=$3 work=$4 version=$5
source_dir=$(cd "$(dirname "$0")/../.." && pwd)

if [[ $kind == modules ]]; then
  tool=${MODULES_CMD:-}
  for place in "$build"/environment-modules/usr/lib/*/modulecmd.tcl /usr/lib/*/modulecmd.tcl /usr/share/Modules/libexec/modulecmd.tcl; do
    [[ -n $tool || ! -r $place ]] || tool=$place
  done
  [[ -n $tool ]] || { echo "skipped: no environment-modules here (quickstart.sh test unpacks Debian's package into $build/environment-modules)"; exit 125; }
  init="module() { eval \"\$(tclsh '$tool' bash \"\$@\")\"; }"
else
  tool=${LMOD_INIT:-/usr/share/lmod/lmod/init/bash}
  [[ -r $tool ]] || { echo "skipped: no Lmod here (Debian package lmod); $tool does not exist"; exit 125; }
  init="source '$tool' >/dev/null"
fi

rm -rf "$work"; mkdir -p "$work"
"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/moved"   # the prefix is found when the module is loaded
root=$work/moved
# only one of the two languages, next to modules that it may depend on
if [[ $kind == lua ]]; then rm "$root/share/modulefiles/tessera/$version"; else rm "$root/share/modulefiles/tessera/$version.lua"; fi
"$cmake" -DOUT="$work/written" -DVERSION="$version" "-DDEPENDS=mpi/4.1;hdf5/1.14" -P "$source_dir/cmake/ModuleText.cmake"
mkdir -p "$work"/dependent/{share/modulefiles/{tessera,mpi,hdf5},bin}
cp "$work/written/tessera/$version$([[ $kind == lua ]] && echo .lua || true)" "$work/dependent/share/modulefiles/tessera/"
for other in mpi/4.1 hdf5/1.14; do printf '#%%Module1.0\nsetenv LOADED_%s yes\n' "${other%/*}" >"$work/dependent/share/modulefiles/$other"; done

# Runs commands in a shell with the module command and an environment of its own.
with_modules() {   # COMMANDS [TREE]
  env -i HOME="$work" PATH=/usr/local/bin:/usr/bin:/bin ${MANPATH_GIVEN:+MANPATH="$MANPATH_GIVEN"} bash --noprofile --norc -c "
    $init; module use '${2:-$root}/share/modulefiles'; $1" 2>&1
}
fail() { echo "$kind: $1"; exit 1; }
expect() { grep -qF -- "$2" <<<"$1" || fail "'$2' is not in:"$'\n'"$1"; }
lacks() { ! grep -qF -- "$2" <<<"$1" || fail "'$2' is in:"$'\n'"$1"; }

snapshot='env | grep -vE "^(_|SHLVL|LMOD_|LOADEDMODULES|MODULES_)" | sort'
for given in '' /usr/share/man; do
  MANPATH_GIVEN=$given with_modules "$snapshot >'$work/before'; module avail; module show tessera; $snapshot >'$work/looked'
    module load tessera/$version; $snapshot >'$work/loaded'; module unload tessera; $snapshot >'$work/after'" >"$work/said"
  for moment in looked after; do
    diff "$work/before" "$work/$moment" || fail "the environment differs ($moment; MANPATH given: '$given')"
  done
  loaded=$(cat "$work/loaded")
  expect "$loaded" "TESSERA_HOME=$root"
  expect "$loaded" "TESSERA_VERSION=$version"
  expect "$loaded" "PATH=$root/bin:"
  expect "$loaded" "CMAKE_PREFIX_PATH=$root"
  if [[ -n $given ]]; then expect "$loaded" "MANPATH=$root/share/man:$given"; else lacks "$loaded" "MANPATH="; fi
  lacks "$loaded" LD_LIBRARY_PATH
done
expect "$(with_modules "module load tessera; tessera --version")" "tessera $version"
expect "$(with_modules "module load tessera; tessera submit multi-node --nodes 3 --dry-run -- --do_train")" "#SBATCH --nodes=3"
expect "$(with_modules "module load tessera; man -w tessera-train 2>/dev/null || ls $root/share/man/man1/tessera-train.1")" "$root/share/man/man1/tessera-train.1"
expect "$(with_modules "module load tessera; module list")" "tessera/$version"
expect "$(with_modules "module avail")" "tessera/$version"
expect "$(with_modules "module whatis tessera")" "ZeRO training of"
expect "$(with_modules "module show tessera")" "TESSERA_HOME"
expect "$(with_modules "module help tessera")" "srun tessera-train"

# Sites link the modulefile, or its folder, into their own tree: the prefix stays where the file is.
suffix=$([[ $kind == lua ]] && echo .lua || true)
mkdir -p "$work"/by_file/share/modulefiles/tessera "$work"/by_folder/share/modulefiles
ln -s "$root/share/modulefiles/tessera/$version$suffix" "$work/by_file/share/modulefiles/tessera/"
ln -s "$root/share/modulefiles/tessera" "$work/by_folder/share/modulefiles/tessera"
for tree in by_file by_folder; do
  linked=$(with_modules "module load tessera; env | grep TESSERA_HOME; tessera submit single-node --no-check --dry-run -- run.json" "$work/$tree")
  expect "$linked" "TESSERA_HOME=$root"$'\n'
  expect "$linked" "#SBATCH"
done

# One version at a time.
cp -r "$root" "$work/second"
for file in "$work/second/share/modulefiles/tessera/"*; do mv "$file" "${file/$version/9.9}"; done
both=$(with_modules "module use '$work/second/share/modulefiles'; module load tessera/$version; module load tessera/9.9; echo \"home \$TESSERA_HOME\"; module list" || true)
[[ $(grep -oE "tessera/($version|9\.9)" <<<"$(sed -n '/^home /,$p' <<<"$both")" | sort -u | wc -l) == 1 ]] || fail "two versions are loaded together: $both"

# What it depends on is loaded, and unloaded, with it.
loaded=$(with_modules "module load tessera; env; module unload tessera; echo '--- unloaded'; env" "$work/dependent")
expect "${loaded%%--- unloaded*}" "LOADED_mpi=yes"
expect "${loaded%%--- unloaded*}" "LOADED_hdf5=yes"
lacks "${loaded##*--- unloaded}" "LOADED_"
rm "$work/dependent/share/modulefiles/hdf5/1.14"
missing=$(with_modules "module load tessera; echo \"home: '\${TESSERA_HOME:-}'\"" "$work/dependent")
expect "$missing" "hdf5"
expect "$missing" "home: ''"
echo "$kind: loads, shows, unloads; depends and conflicts"
