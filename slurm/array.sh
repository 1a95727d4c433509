#!/bin/bash -l
# Array job: one training per run file (*.json) in a directory. Task i uses file i in alphabetical order.
#   sbatch --array=0-7%2 array.sh DIRECTORY [TRAINING_ARGUMENTS]     or     tessera submit array --array 0-7%2 -- DIRECTORY ...
# Arguments after the directory apply to all runs; each run file must set its own output_dir.
#SBATCH --job-name=tessera-array
#SBATCH --array=0-1
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=2
#SBATCH --time=04:00:00
#SBATCH --output=%x-%A_%a.out
set -euo pipefail
command -v tessera-train >/dev/null || module load tessera
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
runs=("${1:?a directory with run files}"/*.json)
run=${runs[$SLURM_ARRAY_TASK_ID]:?no run file for this task: the directory has only ${#runs[@]}}
exec srun tessera-train "$run" "${@:2}"
