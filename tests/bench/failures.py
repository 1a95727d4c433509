#!/usr/bin/env python3
"""Failures injected into a run under `tessera run`: what each costs, and whether the last bytes are those of an undisturbed run.

Kills of a rank, of all ranks in the same instant, of ranks that start or restore, stopped ranks, and damage to the newest checkpoint
before a kill, drawn by a seed; and kills in a save, at an evaluation, and of `tessera run` itself, which is started again. The ranks are
parts of this machine as nodes, so that the world also shrinks and grows. With --memory checkpoints are also in the memory of the nodes; then
a kill may take the memory of a node (memory) or of all nodes (memories) with it, or a copy is damaged (copy).

    failures.py --bin build/host/bin [--failures 20] [--seed 1] [--nodes 1,1] [--work DIR] [--memory 5]
                [--kinds rank,all,stop,start,damage,saving,evaluation,supervisor,memory,memories,copy]

Exit code 1: the bytes differ, or a failure cost more than --limit seconds. Needs only Python's standard library."""
import argparse
import collections
import json
import os
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from scenarios.memory_saves import generations, held, lose_memory, memory_directory  # noqa: E402
from scenarios.recovery import Supervised, kill  # noqa: E402
from support import Bench, damage, damage_shard, wait_for  # noqa: E402

SECONDS_BETWEEN = 0.3  # longest time of training between two failures
STEPS_OF_EVALUATION = 50
STEPS_BETWEEN = 50  # a run that completes its steps before all failures has fewer of them


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Injector:
    """Draws when and how ranks fail."""

    def __init__(self, run, start, seed, kinds):
        self.run, self.start, self.dice, self.kinds = run, start, random.Random(seed), kinds
        self.supervisor = start()
        self.counts = collections.Counter()

    def running(self):
        return self.supervisor.poll() is None

    def injure_memory(self, kind):
        """Removes the memory of a node, or damages a copy in its newest checkpoint. All ranks have been killed."""
        memory = memory_directory(self.supervisor)
        nodes = range(len(self.run.nodes.split(",")))
        node = self.dice.choice(nodes)
        if kind == "memories" and memory:
            for each in nodes:
                lose_memory(memory, each)
        elif kind == "memory" and memory:
            lose_memory(memory, node)
        elif complete := generations(memory, node):
            directory = memory / f"node{node}/step_{complete[-1]:08}"
            shard = self.dice.choice(sorted(directory.glob("shard_*.h5")))
            damage_shard(directory, "flipped", int(shard.stem[6:]))

    def saves(self):
        """Checkpoints that are being written, or were when ranks were killed."""
        return set((self.run.b.work / "run/checkpoints").glob("step_*.tmp.*"))

    def wait_for_moment(self, kind):
        """Until the ranks do what they are to fail in."""
        if kind == "start":
            wait_for(lambda: not self.running() or self.run.ranks(self.supervisor), 60)
            time.sleep(self.dice.uniform(0, 0.3))
            return
        goal = self.run.steps("run") + self.dice.randrange(1, 8)
        if kind == "evaluation":
            goal = -(-goal // STEPS_OF_EVALUATION) * STEPS_OF_EVALUATION
        wait_for(lambda: not self.running() or (self.run.steps("run") >= goal and self.run.ranks(self.supervisor)), 120)
        if kind == "saving":
            before = self.saves()
            wait_for(lambda: not self.running() or self.saves() - before, 120, every=0.001)
        elif kind != "evaluation":
            time.sleep(self.dice.uniform(0, SECONDS_BETWEEN))

    def inject(self):
        """One failure, and the wait until `tessera run` has noticed it."""
        before = self.run.count("run")
        kind = self.dice.choice(self.kinds)
        self.wait_for_moment(kind)
        ranks = self.run.ranks(self.supervisor)
        if not ranks or not self.running():
            return
        if kind == "damage":
            steps = sorted((self.run.b.work / "run/checkpoints").glob("step_????????"))
            if len(steps) > 1:
                damage(self.run.b, "run", int(steps[-1].name[5:]), "flipped", rank=0)
        if kind == "supervisor":
            self.supervisor.kill()
            self.supervisor.wait()
            wait_for(lambda: not any(os.path.exists(f"/proc/{rank}") for rank in ranks), 60)
            self.supervisor = self.start()
        elif kind in ("memory", "memories", "copy"):
            with held(self.supervisor):
                kill(ranks)
                wait_for(lambda: not self.run.ranks(self.supervisor), 60)
                self.injure_memory(kind)
        else:
            victims = ranks if kind in ("all", "start", "saving") else [self.dice.choice(ranks)]
            kill(victims, signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
        self.counts[kind] += 1
        if kind != "supervisor":
            wait_for(lambda: not self.running() or self.run.count("run") > before, 60)


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--work", default="failures")
    parser.add_argument("--source", default=str(pathlib.Path(__file__).resolve().parents[2]))
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--failures", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", default="1,1")
    parser.add_argument("--kinds", default="rank,all,stop,start,damage")
    parser.add_argument("--memory", default="0", help="--memory_save_steps of the run; 0: checkpoints are on disk only")
    parser.add_argument("--limit", type=float, default=0.0, help="seconds that a failure may cost; 0: any")
    return parser.parse_args()


def main():
    arguments = arguments_of()
    run = Supervised(Bench(arguments), steps=60 + STEPS_BETWEEN * arguments.failures)
    run.flags["eval_steps"] = STEPS_OF_EVALUATION
    run.nodes = arguments.nodes
    began = time.monotonic()
    run.reference(len(arguments.nodes.split(",")), timeout=6 * 3600)
    undisturbed = time.monotonic() - began
    injector = Injector(run, lambda: run.start("run", arguments.nodes, "--hang_timeout", "2", "--max_restarts", "50", memory_save_steps=arguments.memory),
                        arguments.seed, arguments.kinds.split(","))
    while injector.running() and sum(injector.counts.values()) < arguments.failures:
        injector.inject()
    said = run.finish(injector.supervisor, timeout=6 * 3600)
    history = run.history("run")
    assert injector.counts and history["failures"], f"the run ended before a rank was hit:\n{said[-5000:]}"
    costs = [sum(failure["lost_seconds"].values()) for failure in history["failures"]]
    parts = {name: sum(f["lost_seconds"][name] for f in history["failures"]) / len(costs) for name in history["lost_seconds"]}
    print(f"{len(costs)} failures ({dict(injector.counts)}), seed {arguments.seed}, nodes {arguments.nodes}, {os.cpu_count()} cores")
    print(f"seconds lost per failure: median {percentile(costs, .5):.2f}, 90 % {percentile(costs, .9):.2f}, 99 % {percentile(costs, .99):.2f}, most {max(costs):.2f}")
    print("of them on average: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in parts.items()))
    print(f"goodput {100 * history['goodput']:.1f} % of {history['elapsed_seconds']:.0f} s; the undisturbed run took {undisturbed:.0f} s")
    print(f"worlds: {dict(collections.Counter(f['ranks'] for f in history['failures']))}")
    same = run.result("run") == run.expected
    print("the last bytes are those of the undisturbed run" if same else f"THE LAST BYTES DIFFER\n{said[-5000:]}")
    return 0 if same and (arguments.limit == 0 or max(costs) <= arguments.limit) else 1


if __name__ == "__main__":
    sys.exit(main())
