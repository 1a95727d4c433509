#!/bin/bash -l
# Training that survives failures inside its job: one node is a spare, and ranks are started again in place, without a place in the queue.
#   sbatch recover.sh TRAINING_ARGUMENTS     or     tessera submit recover --nodes 9 -- TRAINING_ARGUMENTS
# TESSERA_SPARES: how many of the nodes are spares (1). Near the time limit the run saves, and the job is requeued as by requeue.sh.
# --no-kill keeps the job when a node fails. docs/how-to/survive-failures.md says what happens when.
#SBATCH --job-name=tessera
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=4
#SBATCH --time=12:00:00
#SBATCH --signal=USR1@600
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.out
set -euo pipefail
command -v tessera-train >/dev/null || module load tessera
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
echo "attempt $((${SLURM_RESTART_COUNT:-0} + 1)) of job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"
rc=0
tessera run --spares "${TESSERA_SPARES:-1}" -- tessera-train "$@" || rc=$?
[[ $rc -eq 75 ]] || exit "$rc"   # done, or an error that another attempt cannot fix
scontrol requeue "$SLURM_JOB_ID"
