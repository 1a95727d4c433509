#!/bin/bash -l
# Training on one or more nodes of a PBS machine: one rank per GPU (or per share of the cores).
#   qsub multi-node.sh     or     tessera submit multi-node --pbs --nodes 8 -- TRAINING_ARGUMENTS
# With plain qsub, TESSERA_ARGUMENTS is a run file: qsub -v TESSERA_ARGUMENTS=run.json multi-node.sh
#PBS -N tessera
#PBS -l select=2:ncpus=32:mpiprocs=4
#PBS -l walltime=12:00:00
#PBS -j oe
#PBS -r n
[[ $# -gt 0 ]] || set -- "${TESSERA_ARGUMENTS:?no training arguments}"
set -euo pipefail
cd "$PBS_O_WORKDIR"
command -v tessera-train >/dev/null || module load tessera
ranks=$(wc -l <"$PBS_NODEFILE") nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
echo "job $PBS_JOBID on $nodes nodes, $ranks ranks: $(tessera --version | head -n 1)"
case $(mpiexec --version 2>&1 || true) in
  *"Open MPI"* | *OpenRTE*) per_node=(--map-by "ppr:$((ranks / nodes)):node" --bind-to none) ;;
  *) per_node=(-ppn "$((ranks / nodes))") ;;   # PALS, and MPICH's Hydra
esac
# nodes of the job that are spares: docs/how-to/survive-failures.md
[[ -z ${TESSERA_SPARES:-} ]] || exec tessera run --spares "$TESSERA_SPARES" --launcher_options="${MPIEXEC_OPTIONS:-}" -- tessera-train "$@"
# shellcheck disable=SC2086   # MPIEXEC_OPTIONS: words of a site profile
exec mpiexec -n "$ranks" "${per_node[@]}" ${MPIEXEC_OPTIONS:-} tessera-train "$@"
