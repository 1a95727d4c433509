#!/usr/bin/env python3
"""How often starting and ending a run asks the file system, at 1, 2 and 4 ranks on a node: counted from strace's record of every system call with a
path. Usage: start_up.py SCENARIO --bin DIR --work DIR --source DIR --mpiexec PROGRAM --hello PROGRAM. 125: strace cannot be used here.

Calls on the job's own files (configuration, tokenizer, text, weights, run directory) must be as many a node whatever the number of ranks; shards of
checkpoints are one file per rank by design and counted apart, and what rank 0 writes by the clock (status.json, .lock) is left out. Outside of these, a rank may open only what a bare MPI program opens, and libraries."""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from support import Bench, launcher_words, ranks_of, wait_for, zero  # noqa: E402

LOCAL = ("/proc/", "/sys/", "/dev/", "/run/", "/tmp/ompi.", "/tmp/openmpi", "/tmp/pmix")  # memory of this node, and the MPI library's session files


class Traced(Bench):
    def __init__(self, arguments):
        super().__init__(arguments)
        self.hello = pathlib.Path(arguments.hello).resolve()

    def trace(self, ranks, program, words, name):
        """The calls of every rank: [rank][(call, path)]. Runs in /, so that every path of the record is absolute."""
        folder = self.work / f"trace.{name.replace(' ', '_')}.{ranks}"
        folder.mkdir()
        script = f'exec strace -f -y -s 4096 -e trace=%file,getdents64,fstat,fstatfs,ftruncate -o {folder}/${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} "$@"'
        command = launcher_words(self.mpiexec, ranks) + ["bash", "-c", script, "bash"]
        environment = {k: v for k, v in self.environment().items() if k != "LD_LIBRARY_PATH"}
        done = subprocess.run(command + [str(program)] + words, env=environment, cwd="/", capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        self.said = done.stderr
        return [calls_in(folder / str(rank)) for rank in range(ranks)]


def calls_in(record):
    calls = []
    for line in record.read_text(errors="replace").splitlines():
        call = re.match(r"\d+ +(\w+)\((.*)", line)
        if not call or call.group(1) in ("execve", "getcwd"):
            continue
        relative = re.match(r'\d+<(/[^>]+)>, "([^"/][^"]*)"', call.group(2))
        path = relative or re.search(r'"(/[^"]*)"', call.group(2)) or re.search(r"<(/[^>]+)>", call.group(2))
        if path:
            calls.append((call.group(1), "/".join(path.groups())))
    return calls


def own_files(b, calls):
    """Numbers of calls on the job's files, and on shards of checkpoints."""
    inside = [path for _, path in calls if path.startswith((str(b.work), str(b.source / "configs"))) and not re.search(r"/(status\.json|\.lock)", path)]
    shards = [path for path in inside if re.search(r"/shard_\d+", path) or ".tmp." in path]
    return len(inside) - len(shards), len(shards)


def same_on_every_rank_count(b, what, words_of):
    table = {}  # ranks of the node: calls on it
    for ranks in (1, 2, 4):
        calls = b.trace(ranks, b.bin / "tessera-train", words_of(ranks), what)
        counted = [own_files(b, of_rank) for of_rank in calls]
        table[ranks] = sum(own for own, _ in counted)
        print(f"{what}, {ranks} ranks: {table[ranks]} calls on the job's files ({', '.join(str(own) for own, _ in counted)} by rank), "
              f"{sum(shards for _, shards in counted)} on shards")
        assert all(own == 0 for own, _ in counted[1:]), f"{what}: a rank that does not lead its node looks at files: {counted}"
    assert len(set(table.values())) == 1, f"{what}: {table}"


def count(b):
    first = b.train(1, b.common("model", max_steps=2))
    assert first.stderr.count("\n") < 11, first.stderr  # among them the first step, what it uses, and two of the summary
    flat = {"deepspeed": b.config("ds.json", zero(2))}

    def fresh(ranks):
        shutil.rmtree(b.work / "run", ignore_errors=True)
        return b.common("run", max_steps=2, per_device_train_batch_size=8 // ranks, **flat)

    def run_file(ranks):
        shutil.rmtree(b.work / "run", ignore_errors=True)
        document = dict(model_name_or_path=str(b.work / "model"), train_file=str(b.text), block_size=32, output_dir=str(b.work / "run"), do_train=True,
                        do_eval=True, max_steps=2, save_strategy="no", per_device_train_batch_size=8 // ranks, **flat)
        return [b.config("run.json", document)]

    def resumed(ranks):
        shutil.rmtree(b.work / "run", ignore_errors=True)
        common = dict(per_device_train_batch_size=8 // ranks, save_strategy="steps", save_steps=1, **flat)
        b.train(4, b.common("run", **dict(common, max_steps=1, per_device_train_batch_size=2)))
        return b.common("run", max_steps=2, **common)

    for what, words_of in (("random weights", fresh), ("run file, weights, evaluation", run_file), ("resume and save", resumed)):
        same_on_every_rank_count(b, what, words_of)
        assert "[rank" not in b.said, b.said  # only rank 0 writes to the log


def nothing_else(b):
    """A rank opens, besides its own files, what a bare MPI program opens, libraries, and no more."""
    local = LOCAL + (str(b.work), str(b.source / "configs"))

    def opened(calls):
        return {re.sub(r"\d+", "N", path) for call, path in calls if call == "openat" and not path.startswith(local) and ".so" not in path}
    baseline = set().union(*(opened(calls) for calls in b.trace(2, b.hello, [], "hello")))
    for rank, calls in enumerate(b.trace(2, b.bin / "tessera-train", b.common("run"), "run")):
        clock = {"/etc/localtime"} if rank == 0 else set()  # for the log's times
        more = opened(calls) - baseline - clock
        searched = [path for call, path in calls if "libJitPI" in path]
        print(f"rank {rank}: {len(calls)} calls, beyond MPI, libraries and own files: {sorted(more)}")
        assert not more and not searched, (more, searched)


def early_signal(b):
    """USR1 before MPI has started is kept: the run saves after its first step and ends with 75. A signal to one rank is enough."""
    for name, everyone in (("all", True), ("one", False)):
        started = subprocess.Popen(b.command(2, b.common(name, max_steps=100000, per_device_train_batch_size=4)), env=b.environment(), stderr=subprocess.PIPE, text=True)
        wait_for(lambda: len(ranks_of(started.pid)) == 2, 60)
        ranks = sorted(ranks_of(started.pid))
        assert not (b.work / name).exists()
        wait_for(lambda: all(blocks_usr1(pid) for pid in ranks), 60)  # the first thing that main() does
        for pid in ranks if everyone else ranks[1:]:
            os.kill(pid, signal.SIGUSR1)
        _, stderr = started.communicate(timeout=60)
        assert started.returncode == 75, f"exit {started.returncode}\n{stderr}"
        status = b.status(name)
        assert status["step"] < 100 and "SIGUSR1" in status["reason"], status
        b.tool(["checkpoint", "verify", b.work / name])


def blocks_usr1(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"SigBlk:\t([0-9a-f]+)", text).group(1), 16) >> (signal.SIGUSR1 - 1) & 1 == 1


def can_trace():
    return shutil.which("strace") and subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=["count", "nothing_else", "early_signal"])
    for name in ("bin", "work", "source", "mpiexec", "hello"):
        parser.add_argument("--" + name, required=True)
    arguments = parser.parse_args()
    if arguments.scenario != "early_signal" and not can_trace():
        print("skipped: strace is not here or may not trace (Debian package strace; ptrace must be permitted)")
        return 125
    globals()[arguments.scenario](Traced(arguments))
    print(f"{arguments.scenario}: holds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
