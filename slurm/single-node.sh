#!/bin/bash -l
# Single-node training: one rank per GPU (or per share of the cores).
#   sbatch single-node.sh TRAINING_ARGUMENTS     or     tessera submit single-node -- TRAINING_ARGUMENTS
# For GPUs add --gpus-per-node=4 and --gpu-bind=none: each rank sees all devices of the node and uses one.
#SBATCH --job-name=tessera
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.out
set -euo pipefail
command -v tessera-train >/dev/null || module load tessera
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}   # srun does not inherit it from sbatch
exec srun tessera-train "$@"                          # exec: srun receives signals and forwards them to the ranks
