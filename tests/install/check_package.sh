#!/usr/bin/env bash
# Makes a package with cpack and uses it like a user: unpacked in its own folder, without the build tree.
#   check_package.sh tgz|deb CPACK BUILD_DIR WORK_DIR VERSION        125: dpkg is not installed
set -euo pipefail
kind=$1 cpack=$2 build=$3 work=$4 version=$5
rm -rf "$work"; mkdir -p "$work/root"
fail() { echo "$kind: $1"; exit 1; }
if [[ $kind == deb ]]; then command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null || { echo "skipped: no dpkg-deb or dpkg-shlibdeps here"; exit 125; }; fi
"$cpack" --config "$build/CPackConfig.cmake" -G "${kind^^}" -B "$work/made" >"$work/cpack.log" 2>&1 || { tail -20 "$work/cpack.log"; fail "cpack failed"; }

if [[ $kind == tgz ]]; then
  tar -xzf "$work"/made/tessera-*.tar.gz -C "$work/root"
  prefix=$(echo "$work"/root/tessera-"$version"-*)
  [[ -d $prefix ]] || fail "the archive has no folder tessera-$version-..."
else
  package=$(echo "$work"/made/tessera_"$version"*_*.deb)
  depends=$(dpkg-deb -f "$package" Depends)
  for library in libc6 libhdf5 libopenmpi libdnnl libhwloc; do
    [[ $depends == *"$library"* ]] || fail "the package does not depend on $library: $depends"
  done
  [[ $(dpkg-deb -f "$package" Version) == "$version"* && $(dpkg-deb -f "$package" Recommends) == *openmpi-bin* ]] || fail "wrong fields: $(dpkg-deb -f "$package")"
  dpkg-deb -x "$package" "$work/root"
  prefix=$work/root/usr
fi
for file in bin/tessera-train bin/tessera bin/zero-to-fp32 "share/modulefiles/tessera/$version.lua" share/man/man1/tessera.1 share/tessera/slurm/requeue.sh \
            share/tessera/configs/gpt2-8m/tokenizer.json share/bash-completion/completions/tessera; do
  [[ -e $prefix/$file ]] || fail "$file is missing"
done
! grep -rlF "$build" "$prefix" --include=*.cmake --include=*.lua --include=tessera || fail "a file names the build tree"
env -i HOME="$work" PATH=/usr/local/bin:/usr/bin:/bin make -s -C "$prefix/share/tessera" check DIR="$work" >"$work/selftest.log" || { cat "$work/selftest.log"; fail "the self-test fails"; }
grep -q "this installation works on this machine" "$work/selftest.log" || fail "the self-test did not run"
echo "$kind: $(du -h "$work"/made/tessera[-_]*.{tar.gz,deb} 2>/dev/null | cut -f1 | tail -1), unpacked, self-test passed"
