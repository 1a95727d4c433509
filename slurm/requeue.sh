#!/bin/bash -l
# A training that is longer than one time limit: saved before the limit, put back into the queue, resumed.
#   sbatch requeue.sh TRAINING_ARGUMENTS     or     tessera submit requeue --time 12:00:00 -- TRAINING_ARGUMENTS
# Slurm sends USR1 to the ranks 600 s before the limit; they finish the step, save, and end with 75. What happens next is decided by
# status.json in the output directory: the number that srun returns may be another one (docs/reference/exit-codes.md).
#SBATCH --job-name=tessera
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=12:00:00
#SBATCH --signal=USR1@600
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -euo pipefail
command -v tessera-train >/dev/null || module load tessera
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
restarts=${SLURM_RESTART_COUNT:-0} started=$(date +%s) rc=0
echo "attempt $((restarts + 1)) of job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"
srun --kill-on-bad-exit=1 --wait=60 tessera-train "$@" || rc=$?

code=$(tessera status --code --since "$started" -- "$@") || code=$((rc ? rc : 1))   # no word of this attempt: believe srun, but not that all is well
case $code in
  75) ;;                                                               # saved and to be continued
  69) [[ $restarts -lt 3 ]] || exit 69 ;;                              # a rank or node was lost: on other nodes, three times at most
  *) exit "$code" ;;                                                   # done, or nothing that another attempt would mend
esac
scontrol requeue "$SLURM_JOB_ID"
