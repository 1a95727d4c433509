#!/usr/bin/env bash
# A Slurm of two nodes (n1, n2) on this machine, for tests.
#
#   cluster.sh up DIR [KEEP ...]     start it; all its files are in DIR; DIR/slurm.conf is what SLURM_CONF must name
#   cluster.sh down DIR              end every process it started and remove DIR
#   cluster.sh node-up DIR NODE      bring a node back after its death
#
# Each node is a slurmd in its own mount and UTS namespaces: another host name, private /tmp and /dev/shm, so that MPI sees two
# machines. KEEP names paths below /tmp that the nodes must still see (a build tree, for example). No authentication (auth/none): the
# ports are open to local users while it runs. An installed Slurm's files and daemons are not touched.
# Exit code 125: this machine cannot run it; the reason is printed and written to DIR.skip.
set -euo pipefail

action=${1:?usage: cluster.sh up|down|node-up DIR} dir=$(realpath -m "${2:?usage: cluster.sh up|down|node-up DIR}")
for variable in "${!SLURM_@}" "${!SBATCH_@}" "${!PMIX_@}" "${!OMPI_@}"; do unset "$variable"; done   # of an outer job

skip() { echo "skipped: $*"; echo "$*" >"$dir.skip"; exit 125; }

check_machine() {
  local program
  for program in slurmctld slurmd srun sbatch scontrol squeue unshare; do
    command -v "$program" >/dev/null || skip "no $program here (Debian packages slurmctld, slurmd, slurm-client)"
  done
  compgen -G "/usr/lib/*/slurm*/mpi_pmix.so" >/dev/null || compgen -G "/usr/lib*/slurm*/mpi_pmix.so" >/dev/null || skip "this Slurm has no PMIx plugin"
  [[ $EUID -eq 0 ]] || skip "needs root: each emulated node mounts a /tmp of its own"
  unshare -m -u true 2>/dev/null || skip "unshare -m -u is not permitted (a container without CAP_SYS_ADMIN)"
  ! ss -ltnH '( sport = :16817 or sport = :17001 or sport = :17002 )' 2>/dev/null | grep -q . || skip "ports 16817, 17001 or 17002 are in use"
}

# Memory limits need a cgroup hierarchy that may be written to (version 1 here: Slurm's version 2 plugin wants systemd).
has_memory_cgroups() {
  local probe=/sys/fs/cgroup/memory/tessera-probe.$$
  [[ -d /sys/fs/cgroup/freezer && -d /sys/fs/cgroup/cpuset ]] && mkdir "$probe" 2>/dev/null && rmdir "$probe"
}

write_conf() {
  local track=linuxproc task=none cores=CR_Core
  if has_memory_cgroups; then
    track=cgroup task=cgroup cores=CR_Core_Memory
    cat >"$dir/cgroup.conf" <<CONF
CgroupMountpoint=/sys/fs/cgroup
CgroupPlugin=cgroup/v1
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
CONF
    echo memory_cgroups >>"$dir/features"
  fi
  local node number
  for node in n1 n2; do
    for number in 0 1; do
      [[ -e $dir/dev/nvidia$number ]] || mknod "$dir/dev/nvidia$number" c 1 3
    done
    echo "NodeName=$node Name=gpu File=$dir/dev/nvidia[0-1]"
  done >"$dir/gres.conf"
  cat >"$dir/slurm.conf" <<CONF
ClusterName=tessera-test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
AuthInfo=cred_expire=10
CredType=cred/none
MpiDefault=pmix
ProctrackType=proctrack/$track
TaskPlugin=task/$task
GresTypes=gpu
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2
SelectType=select/cons_tres
SelectTypeParameters=$cores
DefMemPerCPU=200
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldPort=16817
SlurmctldPidFile=$dir/slurmctld.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdPidFile=$dir/slurmd.%n.pid
SlurmdSpoolDir=$dir/spool.%n
SlurmdLogFile=$dir/slurmd.%n.log
StateSaveLocation=$dir/state
JobCompType=jobcomp/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=sched_interval=1,bf_interval=2,batch_sched_delay=0
SlurmdTimeout=20
KillWait=10
MinJobAge=600
JobRequeue=1
LaunchParameters=use_interactive_step
NodeName=n1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=17001 CPUs=4 RealMemory=1000 Gres=gpu:2
NodeName=n2 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=17002 CPUs=4 RealMemory=1000 Gres=gpu:2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
PartitionName=batch Nodes=n1,n2 Default=YES MaxTime=UNLIMITED PriorityTier=5 PreemptMode=OFF State=UP
PartitionName=debug Nodes=n1,n2 MaxTime=5 PriorityTier=5 PreemptMode=OFF State=UP
PartitionName=low Nodes=n1,n2 PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 State=UP
PartitionName=urgent Nodes=n1,n2 PriorityTier=10 PreemptMode=OFF State=UP
CONF
}

# Runs a node's daemon in namespaces of its own, with the kept paths carried into its new /tmp.
start_node() {   # NAME
  local keep=() path
  while read -r path; do [[ $path == /tmp/* ]] && keep+=("$path"); done <"$dir/keep"
  # shellcheck disable=SC2016
  env -i PATH="$PATH" HOME="${HOME:-/root}" SLURM_CONF="$dir/slurm.conf" setsid unshare -m -u --propagation private bash -c '
    name=$1 conf=$2; shift 2
    hostname "$name"; mount --bind /tmp /mnt; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm; chmod 1777 /tmp /dev/shm
    for path; do mkdir -p "$path"; mount --bind "/mnt/${path#/tmp/}" "$path"; done
    umount -l /mnt
    exec slurmd -D -N "$name" -f "$conf"' node "$1" "$dir/slurm.conf" "${keep[@]}" >"$dir/slurmd.$1.out" 2>&1 </dev/null &
  echo $! >"$dir/$1.shell.pid"
}

wait_for_nodes() {
  local i
  for ((i = 0; i < 150; ++i)); do
    [[ $(SLURM_CONF=$dir/slurm.conf sinfo -h -N -p batch -t idle -o %N 2>/dev/null | sort -u | wc -l) == 2 ]] && return 0
    sleep 0.2
  done
  tail -n 5 "$dir"/*.log "$dir"/*.out; return 1
}

up() {
  mkdir -p "$(dirname "$dir")"
  [[ -e $dir/slurm.conf ]] && down
  rm -f "$dir.skip"
  check_machine
  mkdir -p "$dir"/{state,spool.n1,spool.n2,dev}
  cd "$dir"
  realpath -m "$dir" "$@" | sort >"$dir/keep"
  write_conf
  # Every process of the cluster carries SLURM_CONF=DIR/slurm.conf in its environment: that is how it is found again.
  env -i PATH="$PATH" SLURM_CONF="$dir/slurm.conf" setsid slurmctld -D -f "$dir/slurm.conf" >"$dir/slurmctld.out" 2>&1 </dev/null &
  start_node n1
  start_node n2
  wait_for_nodes || { echo "the two nodes did not come up"; down; exit 1; }
  echo "two nodes are up: SLURM_CONF=$dir/slurm.conf"
}

members() {   # process ids whose environment names this cluster
  grep -lzxF "SLURM_CONF=$dir/slurm.conf" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3 || true
}

down() {
  local pid i
  [[ -e $dir/slurm.conf ]] || { rm -f "$dir.skip"; return 0; }
  SLURM_CONF=$dir/slurm.conf timeout 10 scancel --state=RUNNING --signal=KILL -u "$(id -un)" 2>/dev/null || true
  for signal in TERM KILL; do
    for pid in $(members); do kill -"$signal" "$pid" 2>/dev/null || true; done
    for ((i = 0; i < 30; ++i)); do [[ -z $(members) ]] && break; sleep 0.1; done
  done
  [[ -z $(members) ]] || { echo "processes are left over: $(members | tr '\n' ' ')"; exit 1; }
  rm -rf "$dir" "$dir.skip"
  echo "nothing is left"
}

case $action in
  up) shift 2; up "$@" ;;
  down) down ;;
  node-up) start_node "${3:?node name}"; wait_for_nodes ;;
  *) echo "unknown action '$action'"; exit 64 ;;
esac
