#!/bin/bash -l
# Training longer than the time limit: saves a checkpoint before the limit, requeues the job, and resumes.
#   sbatch requeue.sh TRAINING_ARGUMENTS     or     tessera submit requeue --time 12:00:00 -- TRAINING_ARGUMENTS
# Slurm sends USR1 to the ranks 600 s before the limit; they finish the step, save a checkpoint and exit with 75. The exit code in status.json
# decides what happens next, because srun may return a different code (docs/reference/exit-codes.md).
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

code=$(tessera status --code --since "$started" -- "$@") || code=$((rc ? rc : 1))   # no status of this attempt: use srun's code, but never report success
case $code in
  75) ;;                                                               # saved; resume in the next attempt
  69|139) [[ $restarts -lt 3 ]] || exit "$code" ;;                     # a rank or node was lost, or crashed, as Open MPI at times in MPI_Init: retry, at most three times
  *) exit "$code" ;;                                                   # done, or an error that another attempt cannot fix
esac
scontrol requeue "$SLURM_JOB_ID"
