#!/bin/bash -l
# One node, one rank for each GPU (or CPU share).
#   sbatch single-node.sh TRAINING_ARGUMENTS     or     tessera submit single-node -- TRAINING_ARGUMENTS
# For GPUs add --gpus-per-node=4 and --gpu-bind=none: every rank sees all of its node's devices and takes its own.
#SBATCH --job-name=tessera
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.out
set -euo pipefail
command -v tessera-train >/dev/null || module load tessera
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}   # srun does not take it over from sbatch by itself
exec srun tessera-train "$@"                          # exec: signals reach srun and so the ranks
