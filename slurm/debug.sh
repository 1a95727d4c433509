#!/bin/bash -l
# Runs 20 steps in the debug partition; the log contains what a bug report needs.
#   sbatch debug.sh TRAINING_ARGUMENTS     or     tessera submit debug -- TRAINING_ARGUMENTS
# The options on the last lines override the arguments: 20 steps, no checkpoint, another output directory.
#SBATCH --job-name=tessera-debug
#SBATCH --partition=debug
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --time=00:05:00
#SBATCH --output=%x-%j.out
set -euo pipefail
command -v tessera-train >/dev/null || module load tessera
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
tessera --version
scontrol show job "$SLURM_JOB_ID"
env | grep -E '^(SLURM|PMIX|OMPI|OMP|NCCL|FI|UCX|CUDA)_' | sort
exec srun --label tessera-train "$@" --max_steps 20 --logging_steps 1 --save_strategy no --log_level debug --log_level_replica info \
  --output_dir "tessera-debug-$SLURM_JOB_ID"
