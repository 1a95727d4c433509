#!/usr/bin/env bash
# run_libfuzzer.sh PROGRAM TARGET CORPUS_DIR FINDINGS_DIR LIBFUZZER_OPTION...: one target from its seeds and stored findings; what it learns goes into
# CORPUS_DIR/TARGET.learned, which starts empty, so that the same seed does the same.
set -euo pipefail
program=$1 target=$2 corpus=$3 findings=$4
shift 4
learned=$corpus/$target.learned
rm -rf "$learned"
mkdir -p "$learned"
directories=("$learned" "$corpus/$target")
[[ -d $findings/$target ]] && directories+=("$findings/$target")
# leaks: the third-party libraries keep what they allocate once; memory: an answer never takes more than this
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0:handle_abort=1 TESSERA_FUZZ_TARGET=$target
exec "$program" "$@" -rss_limit_mb=1200 -malloc_limit_mb=600 -timeout=20 -max_len=65536 -print_final_stats=1 -artifact_prefix="$corpus/finding-$target-" "${directories[@]}"
