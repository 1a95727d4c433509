#!/bin/sh
# keep_rank.sh PROGRAM ARGUMENT ...: outlives a rank that fails or is killed, so that Hydra, the launcher of MPICH, does not kill the others
# before they have noticed the loss by themselves. Open MPI's launcher has an option for that.
"$@"
code=$?
[ $code -eq 0 ] || sleep 6
exit $code
