#!/bin/bash -l
# Consolidates a run's latest checkpoint into one fp32 file or a sharded directory. Needs no GPU, no MPI and at most 256 MiB of memory.
#   sbatch --dependency=afterok:JOB consolidate.sh RUN_DIRECTORY OUTPUT [OPTIONS]
#   tessera submit consolidate --after JOB -- RUN_DIRECTORY OUTPUT
#SBATCH --job-name=tessera-consolidate
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out
set -euo pipefail
command -v zero-to-fp32 >/dev/null || module load tessera
tessera checkpoint verify "${1:?the run directory}"
exec zero-to-fp32 "$@"
