#!/bin/bash -l
# Multi-node training: one rank per GPU (or per share of the cores).
#   sbatch multi-node.sh TRAINING_ARGUMENTS     or     tessera submit multi-node --nodes 8 -- TRAINING_ARGUMENTS
# For GPUs add --gpus-per-node=4 and --gpu-bind=none. --output_dir must be on a file system that all nodes share.
#SBATCH --job-name=tessera
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=12:00:00
#SBATCH --output=%x-%j.out
set -euo pipefail
command -v tessera-train >/dev/null || module load tessera
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
echo "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST: $(tessera --version | head -n 1)"
exec srun --kill-on-bad-exit=1 --wait=60 tessera-train "$@"   # --wait: ends all ranks 60 s after the first one exits
