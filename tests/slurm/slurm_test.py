#!/usr/bin/env python3
"""Scenarios under a real Slurm of two emulated nodes. Usage: slurm_test.py SCENARIO --cluster DIR --bin DIR --work DIR --source DIR --mpiexec PROGRAM

A scenario is a function below; it fails by an AssertionError. Without a cluster (cluster.sh says why in DIR.skip) it ends with 125.
Needs only Python's standard library."""
import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from support import Bench, close, corpus, wait_for, zero  # noqa: E402


FIRST_LINE = re.compile(r"^(\d{4}-\d\d-\d\d |tessera-train: |\[rank )", re.MULTILINE)  # of the program


class Cluster(Bench):
    """The e2e bench with srun and sbatch instead of mpiexec."""

    def __init__(self, arguments):
        super().__init__(arguments)
        self.cluster = pathlib.Path(arguments.cluster).resolve()
        self.script = pathlib.Path(__file__).resolve().parent / "cluster.sh"

    def environment(self, **more):
        kept = {k: v for k, v in super().environment().items() if not k.startswith(("SLURM_", "SBATCH_", "PMIX_", "OMPI_"))}
        return dict(kept, SLURM_CONF=str(self.cluster / "slurm.conf"), PATH=f"{self.bin}:{os.environ['PATH']}", **more)

    def run(self, words, expect=0, timeout=120, **more):
        done = subprocess.run([str(w) for w in words], env=self.environment(**more), cwd=self.work, capture_output=True, text=True, timeout=timeout)
        assert expect is None or done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{words}\n{done.stdout}\n{done.stderr}"
        return done

    def srun(self, nodes, ranks, words, expect=0, options=(), **more):
        command = ["srun", f"-N{nodes}", f"-n{ranks}", *options, "tessera-train", *words]
        done = self.past_mpi_init(command, **more) or self.past_mpi_init(command, **more)
        assert done, "srun: MPI_Init has failed twice"
        assert done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{command}\n{done.stdout}\n{done.stderr}"
        return done

    def past_mpi_init(self, command, **more):
        """The ended run. None when Open MPI has died or waited in MPI_Init, before the program's first line (docs/reference/machines.md)."""
        try:
            done = self.run(command, expect=None, **more)
            code, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired as late:
            done, code, said = None, "none in time", (late.stderr or b"").decode(errors="replace")
            print(self.run(["squeue"], expect=None).stdout)
            self.run(["scancel", "--user=root"], expect=None)
        if FIRST_LINE.search(said) or code not in (139, "none in time"):
            assert done, f"srun has not ended in time\n{command}\n{said}"
            return done
        print(f"RETRIED {self.work.name}: srun ended with code {code} before the program's first line:\n{said}", flush=True)
        return None

    def died_in_mpi_init(self):
        """The output of a batch job in which Open MPI has called a null pointer before the program's first line; or None."""
        for file in sorted(self.work.glob("*.out")):
            text = file.read_text(errors="replace")
            before, died, _ = text.partition("Failing at address: (nil)")
            if died and not FIRST_LINE.search(before):
                return text
        return None

    def sbatch(self, words, **more):
        """Submits; the job's id."""
        done = self.run(["sbatch", "--parsable", *words], **more)
        return done.stdout.strip().split(";")[0]

    def field(self, job, name):
        """A field of `scontrol show job`; the empty string when there is no such job any more."""
        done = self.run(["scontrol", "show", "job", "-o", job], expect=None)
        found = re.search(rf"(?:^| ){name}=(\S*)", done.stdout)
        return found.group(1) if found else ""

    def wait_for_end(self, job, seconds=60):
        """State and exit code of the job's batch script: ("COMPLETED", 0)."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY")
        wait_for(lambda: self.field(job, "JobState") in over, seconds)
        code, number = self.field(job, "ExitCode").split(":")
        return self.field(job, "JobState"), int(code) or (128 + int(number) if int(number) else 0)

    def output(self, job):
        return "\n".join(p.read_text(errors="replace") for p in sorted(self.work.glob(f"*{job}.out")))

    def wait_for_losses(self, output, count, seconds=150):
        wait_for(lambda: (self.work / output / "metrics.jsonl").exists() and len(self.losses(output)) >= count, seconds)

    def script_of(self, name, text):
        path = self.work / name
        path.write_text("#!/bin/bash\n" + text)
        return str(path)

    def node_processes(self, node):
        """Every process inside a node's namespaces, its slurmd included."""
        daemon = int((self.cluster / f"slurmd.{node}.pid").read_text())
        inside = os.readlink(f"/proc/{daemon}/ns/uts")
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.readlink(entry / "ns/uts") == inside:
                    found.append(int(entry.name))
            except OSError:
                continue
        return found


    def features(self):
        """Optional features of this cluster, as words of cluster.sh."""
        file = self.cluster / "features"
        return file.read_text().split() if file.exists() else []

    def trainers(self, *nodes):
        """Process ids of tessera-train on these nodes."""
        return [p for node in nodes for p in self.node_processes(node) if self.name_of(p).startswith("tessera-train")]

    @staticmethod
    def name_of(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            return ""

    @staticmethod
    def kill(pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


# --- starting ---------------------------------------------------------------------------------------------------------------------

def two_nodes_train_as_one(b):
    words = dict(per_device_train_batch_size=2, deepspeed=b.config("ds.json", zero(2)))
    done = b.srun(2, 4, b.common("nodes", **words))
    assert "on 4 ranks (2 nodes)" in done.stderr and "[rank" not in done.stderr, done.stderr  # rank 0 speaks for all
    b.train(4, b.common("alone", **words))
    close(b.losses("nodes"), b.losses("alone"), 1e-6, "two nodes of two ranks against mpirun -np 4")
    assert "links: inside nodes" in done.stderr, done.stderr  # measured, for the choice of each operation
    for choice in ("flat", "two-level"):
        b.srun(2, 4, b.common(choice, collectives=choice, **words))
        close(b.losses(choice), b.losses("nodes"), 0.0, f"{choice} collectives against the choice by the links")
    assert b.status("nodes")["nodes"] == 2 and b.status("nodes")["SLURM_JOB_ID"].isdigit()


def selftest_on_each_node(b):
    done = b.run(["srun", "-N2", "--ntasks-per-node=1", "tessera", "selftest", "--dir", b.work])
    assert done.stdout.count("this installation works on this machine") == 2 and "FAILED" not in done.stdout, done.stdout
    told = b.run(["srun", "-N1", "-n1", "--mpi=none", "tessera", "doctor", "--dir", b.work]).stdout
    assert "srun started this program without PMIx" in told and "SLURM_STEP_ID" in told, told


def mpirun_inside_a_job(b):
    words = b.common("mpirun", per_device_train_batch_size=2)
    script = b.script_of("job.sh", 'exec mpirun --allow-run-as-root --bind-to none tessera-train "$@"\n')
    job = b.sbatch(["-N2", "--ntasks-per-node=2", "-o", "job-%j.out", script, *words])
    state = b.wait_for_end(job)
    assert state == ("COMPLETED", 0), (state, b.output(job))
    assert "on 4 ranks (2 nodes)" in b.output(job)
    b.srun(2, 4, b.common("srun", per_device_train_batch_size=2))
    close(b.losses("mpirun"), b.losses("srun"), 1e-6, "mpirun inside a job against srun")


def wrong_mpi(b):
    for kind in ("none", "pmi2"):
        began = time.monotonic()
        done = b.srun(2, 4, b.common("x"), expect=64, options=[f"--mpi={kind}"])
        assert done.stderr.count("tessera-train:") == 1 and "--mpi=pmix" in done.stderr, done.stderr
        assert time.monotonic() - began < 10, "the refusal takes as long as a start of ranks that do not find each other"
        assert not (b.work / "x").exists()
    done = b.run(["tessera-train", *b.common("x")], expect=64, PMI_SIZE="4", PMI_RANK="0")
    assert "4 processes" in done.stderr and "one rank" in done.stderr, done.stderr
    b.srun(1, 1, b.common("x"), expect=64, options=["--mpi=none"])


def mpich_ranks_by_pmi2(b):
    """A build with MPICH: srun needs --mpi=pmi2, and says so once otherwise; Hydra inside a job starts ranks on both nodes. (Their names have no
    addresses here: -iface.)"""
    b.srun(2, 4, b.common("pmi2", per_device_train_batch_size=2), options=["--mpi=pmi2"])
    b.train(4, b.common("alone", per_device_train_batch_size=2))
    close(b.losses("pmi2"), b.losses("alone"), 1e-6, "two nodes of two ranks by PMI-2 against mpiexec -n 4")
    assert b.status("pmi2")["nodes"] == 2
    for kind in ("none", "pmix"):
        began = time.monotonic()
        done = b.srun(2, 4, b.common("x"), expect=64, options=[f"--mpi={kind}"])
        assert done.stderr.count("tessera-train: error: ") == 1 and "--mpi=pmi2" in done.stderr and time.monotonic() - began < 10, done.stderr
        assert not (b.work / "x").exists()
    script = b.script_of("job.sh", f'exec {b.mpiexec} -iface lo -n 4 -ppn 2 tessera-train "$@"\n')
    job = b.sbatch(["-N2", "--ntasks-per-node=2", "-o", "job-%j.out", script, *b.common("hydra", per_device_train_batch_size=2)])
    state = b.wait_for_end(job)
    assert state == ("COMPLETED", 0), (state, b.output(job))
    assert b.output(job).count("on 4 ranks (2 nodes)") == 1, b.output(job)
    close(b.losses("hydra"), b.losses("pmi2"), 1e-6, "Hydra inside a job against srun")


# --- stopping ---------------------------------------------------------------------------------------------------------------------

def cancelled_job_saves(b):
    words = b.common("run", max_steps=100000, per_device_train_batch_size=2)
    script = b.script_of("job.sh", 'srun tessera-train "$@"\n')
    job = b.sbatch(["-N2", "-n4", "-o", "job-%j.out", script, *words])
    b.wait_for_losses("run", 5)
    b.run(["scancel", job])
    b.wait_for_end(job)
    wait_for(lambda: b.status("run")["state"] == "stopped_early", 20)
    status = b.status("run")
    assert status["exit_code"] == 75 and "SIGTERM" in status["reason"], status
    b.tool(["checkpoint", "verify", b.work / "run"])


def save_on_request(b):
    """SIGUSR2 from scancel: a checkpoint between the planned ones, and the job continues to its end."""
    words = b.common("run", max_steps=100000, per_device_train_batch_size=2, save_strategy="no")
    job = b.sbatch(["-N2", "-n4", "-o", "job-%j.out", b.script_of("job.sh", 'srun tessera-train "$@"\n'), *words])
    b.wait_for_losses("run", 5)
    assert not (b.work / "run/checkpoints/latest").exists()
    b.run(["scancel", "--signal=USR2", job])
    wait_for(lambda: (b.work / "run/checkpoints/latest").exists(), 60)
    saved = len(b.losses("run"))
    b.wait_for_losses("run", saved + 5)
    assert b.field(job, "JobState") == "RUNNING"
    b.run(["scancel", job])
    b.wait_for_end(job)


def time_limit_is_known(b):
    """No --signal: the run reads the job's end from Slurm, saves before it and ends with 75."""
    words = b.common("run", max_steps=10000000, per_device_train_batch_size=2, save_strategy="no")
    job = b.sbatch(["-N2", "-n4", "--time=1", "-o", "job-%j.out", b.script_of("job.sh", 'srun tessera-train "$@"\n'), *words])
    state, code = b.wait_for_end(job, 100)
    assert (state, code) == ("FAILED", 75), (state, code, b.output(job))
    status = b.status("run")
    assert status["exit_code"] == 75 and "the time limit" in status["reason"], status
    b.tool(["checkpoint", "verify", b.work / "run"])


def shrink_and_grow(b):
    """One job on 4 ranks of two nodes, requeued to 2 ranks of one, then to 3 of two: the losses are those of one run."""
    b.text.write_text(corpus(16000))  # one epoch for all: its last round is filled up differently for other rank counts
    words = dict(max_steps=100000, gradient_accumulation_steps=4, learning_rate=1e-4, lr_scheduler_type="constant", save_strategy="no")
    file = b.work / "run.json"

    def attempt(ranks):
        document = {n.lstrip("-"): v for n, v in pairs(b.common("run", per_device_train_batch_size=12 // ranks, **words))}
        file.write_text(json.dumps(dict(document, deepspeed=zero(3 if ranks != 2 else 2))))
        (b.work / "ranks").write_text(str(ranks))

    def stop(seen):
        """Stops the running attempt some steps later; the job waits in the queue then. Returns the step."""
        b.wait_for_losses("run", seen + 5)
        b.run(["scancel", "--signal=USR1", job])
        wait_for(lambda: b.field(job, "JobState") == "PENDING", 60)
        status = b.status("run")
        assert status["exit_code"] == 75 and "SIGUSR1" in status["reason"], status
        return status["step"]

    def go_on_with(ranks, nodes):
        attempt(ranks)  # what the next attempt reads; Slurm lets a requeued job wait some seconds
        b.run(["scontrol", "update", f"JobId={job}", f"NumNodes={nodes}-{nodes}", f"NumTasks={2 * nodes}", "StartTime=now+3"])

    attempt(4)
    template = b.work / "requeue.sh"  # the shipped one, but with as many ranks as the file says: three on two nodes are not the same on each
    template.write_text((b.source / "slurm/requeue.sh").read_text().replace("srun --kill", f"srun --ntasks=$(cat {b.work}/ranks) --kill"))
    job = submit(b, template, [str(file)], "--nodes=2", "--ntasks-per-node=2", "--signal=USR1@10", log="requeue")
    first = stop(0)
    go_on_with(2, 1)
    second = stop(first)
    go_on_with(3, 2)
    steps = stop(second) + 10
    words["max_steps"] = steps
    go_on_with(3, 2)
    ends_well(b, job)
    output = b.output(job)
    for ranks, nodes in ((4, "2 nodes"), (2, "1 node"), (3, "2 nodes")):
        assert f"on {ranks} ranks ({nodes})" in output, output
    assert len(b.losses("run")) == steps
    b.train(1, b.common("whole", **dict(words, per_device_train_batch_size=12)))
    close(b.losses("run"), b.losses("whole"), 1e-5, "4, 2 and 3 ranks in turn against one")


def preempted_job_resumes(b):
    """A job of higher priority takes both nodes: signal, save, requeue by Slurm, and the rest of the training afterwards."""
    file = b.work / "run.json"
    document = {n.lstrip("-"): v for n, v in pairs(b.common("run", max_steps=100000, per_device_train_batch_size=2, lr_scheduler_type="constant", save_strategy="no"))}
    file.write_text(json.dumps(document))
    job = submit(b, "requeue", [str(file)], "--nodes=2", "--ntasks-per-node=2", "--partition=low", "--signal=USR1@60")
    b.wait_for_losses("run", 5)
    urgent = b.sbatch(["-purgent", "-N2", "--exclusive", "-o", "urgent-%j.out", b.script_of("urgent.sh", "sleep 1\n")])
    wait_for(lambda: b.status("run")["state"] == "stopped_early", 60)
    status = b.status("run")
    assert status["exit_code"] == 75 and ("SIGUSR1" in status["reason"] or "SIGTERM" in status["reason"]), status
    ends_well(b, urgent)
    steps = status["step"] + 10
    file.write_text(json.dumps(dict(document, max_steps=steps)))
    wait_for(lambda: b.field(job, "JobState") in ("PENDING", "RUNNING", "COMPLETED"), 30)
    b.run(["scontrol", "update", f"JobId={job}", "StartTime=now+3"], expect=None)
    ends_well(b, job)
    assert b.field(job, "Restarts") == "1" and len(b.losses("run")) == steps and "resuming from" in b.output(job), b.output(job)


def killed_for_memory(b):
    """The step's memory limit is passed and the kernel kills a rank: the run ends with 69 or without a final status, doctor finds the reason in the job's log."""
    if "memory_cgroups" not in b.features():
        print("skipped: this cluster has no memory cgroups (cgroup version 1 with a writable memory hierarchy)")
        return 125
    eater = b.script_of("eater.sh", """
if [[ $SLURM_PROCID == 1 ]]; then
  ( until [[ -e $1 ]]; do sleep 0.1; done; head -c 900M /dev/zero | tail -c 900M >/dev/null ) &   # another process of the step takes all memory
fi
shift
echo 1000 >/proc/self/oom_score_adj                               # and the kernel chooses a rank
exec tessera-train "$@"
""")
    words = b.common("run", max_steps=100000, per_device_train_batch_size=4, save_strategy="steps", save_steps=5, save_total_limit=2)
    script = b.script_of("job.sh", f'exec srun bash {eater} {b.work}/run/checkpoints/latest "$@"\n')
    job = b.sbatch(["-N1", "-n2", "--mem=600M", "-o", "job-%j.out", script, *words])
    b.wait_for_end(job, 90)
    assert re.search("oom-kill|Out Of Memory", b.output(job)), b.output(job)
    told = b.run(["tessera", "doctor", "--why", b.work / "run"]).stdout
    print(told)
    assert "memory limit" in told and "--mem" in told, told
    b.tool(["checkpoint", "verify", b.work / "run"])


def devices_of_each_rank(b):
    """Fake GPUs: what the tasks see with --gpus-per-task differs by rank, with --gpus-per-node it does not; both kinds of job train."""
    show = b.script_of("show.sh", "echo $SLURM_PROCID:$CUDA_VISIBLE_DEVICES\n")
    seen = {}
    for name, options in (("per_task", ["--gpus-per-task=1", "--gpu-bind=single:1"]), ("per_node", ["--gpus-per-node=2"])):
        lines = b.run(["srun", "-N2", "-n4", *options, "bash", show]).stdout.split()
        seen[name] = dict(line.split(":") for line in lines)
        # equal ranks on each node: sums are formed node by node
        b.srun(2, 4, b.common(name, per_device_train_batch_size=2), options=[*options, "--ntasks-per-node=2"])
        told = b.run(["srun", "-N1", "-n1", *options[:1], "tessera", "doctor", "--dir", b.work]).stdout
        assert "CUDA_VISIBLE_DEVICES" in told, told
    assert sorted(seen["per_task"].values()) == ["0", "0", "1", "1"] and set(seen["per_node"].values()) == {"0,1"}, seen
    close(b.losses("per_task"), b.losses("per_node"), 0.0, "either way of asking for devices")


def lose_node(b, name, number):
    """Every process of node n2 (slurmd, stepd, tasks) gets a signal: nothing of it answers any more, and MPI itself does not say so."""
    words = b.common(name, max_steps=100000, per_device_train_batch_size=2, save_strategy="steps", save_steps=20, save_total_limit=2, node_timeout=4)
    step = subprocess.Popen(["srun", "-N2", "--ntasks-per-node=2", "tessera-train", *words], env=b.environment(), cwd=b.work, stderr=subprocess.PIPE, text=True)
    lost = []
    try:
        wait_for(lambda: (b.work / name / "checkpoints/latest").exists(), 60)
        started = time.monotonic()
        lost = b.node_processes("n2")
        for pid in lost:
            os.kill(pid, number)
        wait_for(lambda: b.status(name)["state"] == "failed", 60)
        status = b.status(name)
        print(f"status.json named the loss {time.monotonic() - started:.1f} s after it: {status['reason']}")
        assert status["exit_code"] == 69 and status["suspect_rank"] == 2 and status["suspect_host"] == "n2", status
        wait_for(lambda: not b.trainers("n1"), 30)
        print(f"the other node's ranks had ended {time.monotonic() - started:.1f} s after it")
        told = b.run(["tessera", "doctor", "--why", b.work / name]).stdout
        assert "rank 2 on n2" in told and "--exclude=n2" in told, told
        b.tool(["checkpoint", "verify", b.work / name])
    finally:
        for pid in lost:
            b.kill(pid)
        step.communicate(timeout=90)
        b.run([b.script, "node-up", b.cluster, "n2"])
    assert step.returncode != 0


def dead_node(b):
    """Within --node_timeout the others name the lost node and end, although --comm_timeout is 300 s."""
    lose_node(b, "killed", signal.SIGKILL)


def stopped_node(b):
    lose_node(b, "stopped", signal.SIGSTOP)


def supervised_run_loses_a_node(b):
    """The template recover: every process of a node is killed, slurmd too; the job continues with the other one and ends with the same bits."""
    flags = dict(per_device_train_batch_size=1, deepspeed=b.config("ds.json", zero(3)), reproducible="world", threads=1, max_steps=150, save_strategy="steps",
                 save_steps=20, save_total_limit=2, node_timeout=4)
    words = b.common("run", gradient_accumulation_steps=2, **flags)
    job, lost = submit(b, "recover", words, "--nodes=2", "--ntasks-per-node=2", "--sbatch=--export=ALL,TESSERA_SPARES=0"), []
    try:
        wait_for(lambda: (b.work / "run/checkpoints/latest").exists(), 60)
        lost = b.node_processes("n2")
        for pid in lost:
            b.kill(pid)
        state = b.wait_for_end(job, 120)
    finally:
        b.run([b.script, "node-up", b.cluster, "n2"])
    print(b.output(job))
    assert state == ("COMPLETED", 0), (state, b.output(job))
    history = json.loads((b.work / "run/recovery.json").read_text())
    failure = history["failures"][0]
    assert len(history["failures"]) == 1 and failure["node"] == "n2" and failure["node_lost"] and history["ranks"] == 2, history
    print(f"the loss of a node cost {failure['lost_seconds']}")
    b.train(2, b.common("alone", gradient_accumulation_steps=4, **flags))
    assert b.losses("run") == b.losses("alone"), "the run that lost a node differs from an undisturbed one"
    told = b.run(["tessera", "doctor", "--why", b.work / "run"]).stdout
    assert "node n2" in told and "goodput" in told, told


# --- the shipped templates ----------------------------------------------------------------------------------------------------------

def submit(b, template, words, *options, log=None):
    """A job from `tessera submit`; its id. A login shell (bash -l) sets PATH again, so that a site profile must add the directory of the programs."""
    site = b.work / "here.conf"
    site.write_text(f"export PATH={b.environment()['PATH']}\n")
    done = b.run(["tessera", "submit", template, f"--site={site}", f"--output={b.work}/{log or template}-%j.out", *options, "--", *words])
    return re.search(r"Submitted batch job (\d+)", done.stdout).group(1)


def ends_well(b, job):
    state = b.wait_for_end(job)
    assert state == ("COMPLETED", 0), (state, b.output(job))


def templates_train(b):
    words = dict(per_device_train_batch_size=4, deepspeed=b.config("ds.json", zero(2)))
    b.train(2, b.common("reference", **words))
    for template, options in (("single-node", ["--ntasks-per-node=2"]), ("multi-node", ["--nodes=2", "--ntasks-per-node=1"]), ("cpu-only", [])):
        ends_well(b, submit(b, template, b.common(template, **words), *options))
        close(b.losses(template), b.losses("reference"), 1e-6, f"{template} against mpirun -np 2")
    job = submit(b, "debug", b.common("untouched", **words))
    ends_well(b, job)
    assert b.field(job, "Partition") == "debug" and not (b.work / "untouched").exists()
    assert len(b.losses(f"tessera-debug-{job}")) == 20 and "SLURM_JOB_ID=" in b.output(job) and "compiler" in b.output(job)


def requeue_stops_where_it_must(b):
    """Only 75, a lost peer and a crash before the program begins go back into the queue: a wrong argument and a finished run do not."""
    job = submit(b, "requeue", b.common("wrong", learning_rate="fast"), "--nodes=1", "--ntasks-per-node=2", "--no-check")
    assert b.wait_for_end(job) == ("FAILED", 64) and b.field(job, "Restarts") == "0"
    words = b.common("done", per_device_train_batch_size=4, save_strategy="steps", save_steps=3)
    for _ in range(2):
        job = submit(b, "requeue", words, "--nodes=1", "--ntasks-per-node=2")
        ends_well(b, job)
        assert b.field(job, "Restarts") == "0"
    crash = b.work / "crash/tessera-train"  # in the first attempt, as Open MPI does at times
    crash.parent.mkdir()
    crash.write_text(f'#!/bin/bash\n((${{SLURM_RESTART_COUNT:-0}})) || kill -SEGV $$\nexec {b.bin}/tessera-train "$@"\n')
    crash.chmod(0o755)
    template = b.work / "requeue.sh"
    template.write_text((b.source / "slurm/requeue.sh").read_text().replace("set -euo pipefail", f"set -euo pipefail\nexport PATH={crash.parent}:$PATH"))
    job = submit(b, template, b.common("second", per_device_train_batch_size=4), "--nodes=1", "--ntasks-per-node=2", log="requeue")
    wait_for(lambda: b.field(job, "Restarts") == "1", 60)
    b.run(["scontrol", "update", f"JobId={job}", "StartTime=now+3"], expect=None)
    ends_well(b, job)
    assert b.field(job, "Restarts") == "1" and len(b.losses("second")) == 6, b.output(job)


def time_limit_requeue_finish(b):
    """A real time limit: USR1 before it, saved, back in the queue, resumed, done; the losses are those of one uninterrupted run."""
    common = dict(per_device_train_batch_size=2, gradient_accumulation_steps=16, lr_scheduler_type="constant", max_steps=10000000)
    file = b.work / "run.json"
    document = {name.lstrip("-"): value for name, value in pairs(b.common("run", **common))}
    file.write_text(json.dumps(document))
    job = submit(b, "requeue", [str(file)], "--nodes=2", "--ntasks-per-node=2", "--time=1", "--signal=USR1@20")
    wait_for(lambda: b.field(job, "Restarts") == "1", 100)
    status = b.status("run")
    assert status["exit_code"] == 75 and "SIGUSR1" in status["reason"], status
    steps = status["step"] + 20
    file.write_text(json.dumps(dict(document, max_steps=steps)))
    ends_well(b, job)
    assert "attempt 2 of job" in b.output(job) and "resuming from" in b.output(job), b.output(job)
    assert b.status("run")["SLURM_RESTART_COUNT"] == "1" and len(b.losses("run")) == steps
    # on one machine, with sums formed as on the two nodes
    b.train(4, b.common("whole", **dict(common, max_steps=steps)), nodes="2,2")
    assert b.losses("run") == b.losses("whole"), "the losses of the requeued run differ from those of an uninterrupted one"


def pairs(words):
    """--name value and --flag words as (name, value)."""
    out = []
    for word in words:
        if word.startswith("--"):
            out.append([word, True])
        else:
            try:
                out[-1][1] = json.loads(word)
            except ValueError:
                out[-1][1] = word
    return out


def array_and_consolidation(b):
    """Two experiments as an array; a job that depends on them makes an fp32 file of each run's checkpoint."""
    (b.work / "experiments").mkdir()
    for rate in (1, 2):
        words = b.common(f"rate{rate}", per_device_train_batch_size=4, learning_rate=f"{rate}e-2", save_strategy="steps", save_steps=6)
        (b.work / f"experiments/{rate}.json").write_text(json.dumps({n.lstrip("-"): v for n, v in pairs(words)}))
    job = submit(b, "array", [b.work / "experiments"])
    after = submit(b, "consolidate", [b.work / "rate2", b.work / "fp32.safetensors"], f"--after={job}")
    ends_well(b, after)
    assert b.losses("rate1")[-1] != b.losses("rate2")[-1] and b.status("rate2")["SLURM_ARRAY_TASK_ID"] == "1"
    assert (b.work / "fp32.safetensors").read_bytes() == (b.work / "rate2/model.safetensors").read_bytes()


def words_arrive_as_they_are(b):
    """Quotes, blanks and shell characters in arguments reach the program, and nothing is executed on the way."""
    nasty = ["a b", "it's", "$(touch x)", "`touch y`", "; touch z", '"q"', "", "*"]
    template = b.script_of("show.sh", 'printf "<%s>\\n" "$@"\n')
    done = b.run(["tessera", "submit", template, "--output=show-%j.out", "--job-name=words", "--", *nasty])
    job = re.search(r"Submitted batch job (\d+)", done.stdout).group(1)
    ends_well(b, job)
    assert b.output(job).split("\n")[:-1] == [f"<{w}>" for w in nasty], b.output(job)
    assert not any((b.work / name).exists() for name in "xyz")
    b.run(["tessera", "submit", template, "--job-name=a b"], expect=64)


def launcher_of_deepspeed(b):
    """tessera launch inside a job starts srun, outside mpirun; doctor explains a run that was killed."""
    words = b.common("launched", per_device_train_batch_size=2)
    script = b.script_of("job.sh", 'tessera launch --num_nodes 2 --num_gpus 2 --master_port 29500 run_clm.py "$@"\n')
    job = b.sbatch(["-N2", "--ntasks-per-node=2", "-o", "job-%j.out", script, *words])
    ends_well(b, job)
    assert "srun --nodes=2 --ntasks=4 --ntasks-per-node=2" in b.output(job) and "on 4 ranks (2 nodes)" in b.output(job)
    done = b.run(["tessera", "launch", "--num_gpus", "2", "--", *b.common("local", per_device_train_batch_size=4)])
    assert "mpirun" in done.stderr and "on 2 ranks" in done.stderr, done.stderr
    endless = b.common("killed", max_steps=100000, per_device_train_batch_size=4, save_strategy="steps", save_steps=5, save_total_limit=2)
    job = b.sbatch(["-N1", "-n2", "-o", "job-%j.out", b.script_of("job.sh", 'srun tessera-train "$@"\n'), *endless])
    wait_for(lambda: (b.work / "killed/checkpoints/latest").exists(), 60)
    ranks = b.trainers("n1", "n2")
    assert len(ranks) == 2, ranks
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none may see the other die and say so
        for pid in ranks:
            os.kill(pid, number)
    b.wait_for_end(job)
    told = b.run(["tessera", "doctor", "--why", b.work / "killed"]).stdout
    print(told)
    assert "without a final status" in told and "it was killed" in told and "FAILED" in told and "run the same command again" in told, told
    b.run(["tessera", "status", "--code", b.work / "killed"], expect=74)


SCENARIOS = [templates_train, requeue_stops_where_it_must, time_limit_requeue_finish, array_and_consolidation, words_arrive_as_they_are,
             launcher_of_deepspeed, mpich_ranks_by_pmi2, two_nodes_train_as_one, selftest_on_each_node, mpirun_inside_a_job, wrong_mpi, cancelled_job_saves, save_on_request,
             time_limit_is_known, shrink_and_grow, preempted_job_resumes, killed_for_memory, devices_of_each_rank, dead_node, stopped_node,
             supervised_run_loses_a_node]


def run_scenario(arguments, again=False):
    """What the scenario returns. It starts again once where Open MPI has died in MPI_Init."""
    bench = Cluster(arguments)
    try:
        return globals()[arguments.scenario](bench)
    except BaseException:
        bench.run(["scancel", f"--user={os.getuid()}", "--signal=KILL"], expect=None)  # the next scenario finds free nodes
        said = bench.died_in_mpi_init()
        if again or not said:
            raise
    print(f"RETRIED {arguments.scenario}: Open MPI has died in MPI_Init (docs/reference/machines.md):\n{said}", flush=True)
    return run_scenario(arguments, again=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=[s.__name__ for s in SCENARIOS])
    for name in ("cluster", "bin", "work", "source", "mpiexec"):
        parser.add_argument("--" + name, required=True)
    arguments = parser.parse_args()
    if not os.path.exists(os.path.join(arguments.cluster, "slurm.conf")):
        reason = pathlib.Path(arguments.cluster + ".skip")
        print("skipped:", reason.read_text().strip() if reason.exists() else "the cluster is not up")
        return 125 if reason.exists() else 1
    if run_scenario(arguments) == 125:
        return 125
    print(f"{arguments.scenario}: holds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
