#!/usr/bin/env bash
# Runs a compiler call and appends "SECONDS OBJECT" to LOG when it took a second or more of processor time. A call that the compiler cache
# answers takes less.
#   time-compile.sh LOG COMPILER ARGUMENT ...
log=$1
shift
TIMEFORMAT='%0U'
{ time "$@" 2>&3; } 3>&2 2>"$log.$$"
status=$?
seconds=$(tail -1 "$log.$$")
rm -f "$log.$$"
if ((seconds > 0)); then
  while [[ $# -gt 1 && $1 != -o ]]; do shift; done
  echo "$seconds ${2-}" >>"$log"
fi
exit $status
