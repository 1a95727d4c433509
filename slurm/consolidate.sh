#!/bin/bash -l
# Consolidates a run's latest checkpoint into one fp32 file or a sharded directory. Needs no GPU, no MPI and at most 256 MiB of memory.
# Every block is checked. A damaged latest checkpoint ends the job with 65; with --allow_older an older one is used, and the log says so.
#   sbatch --dependency=afterok:JOB consolidate.sh RUN_DIRECTORY OUTPUT [OPTIONS]
#   tessera submit consolidate --after JOB -- RUN_DIRECTORY OUTPUT
#SBATCH --job-name=tessera-consolidate
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=01:00:00
#SBATCH --output=%x-%j.out
set -euo pipefail
command -v zero-to-fp32 >/dev/null || module load tessera
exec zero-to-fp32 "$@"
