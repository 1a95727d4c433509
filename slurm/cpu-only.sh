#!/bin/bash -l
# CPU-only training: one rank per socket or NUMA domain, one OpenMP thread per core.
#   sbatch cpu-only.sh TRAINING_ARGUMENTS     or     tessera submit cpu-only --cpus-per-task 16 -- TRAINING_ARGUMENTS
#SBATCH --job-name=tessera-cpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=2
#SBATCH --time=04:00:00
#SBATCH --output=%x-%j.out
set -euo pipefail
command -v tessera-train >/dev/null || module load tessera
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OMP_PROC_BIND=close OMP_PLACES=cores
exec srun --cpu-bind=cores tessera-train "$@" --device cpu
