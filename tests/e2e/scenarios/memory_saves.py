"""Checkpoints in the memory of nodes under `tessera run`: directories are lost and copies are damaged while ranks are killed, and the run ends with the
bytes of an undisturbed one. Nodes are simulated, so that their directories are next to each other."""
import contextlib
import pathlib
import shutil
import signal

from scenarios.recovery import Supervised, kill
from support import damage_shard, wait_for


def memory_directory(supervisor):
    """The directory that `tessera run` gives its ranks, whose name ends in its process id; None before the first save."""
    return next(pathlib.Path("/dev/shm").glob(f"tessera-run-*-{supervisor.pid}"), None)


def generations(memory, node):
    """Steps of the complete checkpoints of a node, the newest last."""
    return sorted(int(file.parent.name[5:]) for file in memory.glob(f"node{node}/step_*/manifest.json")) if memory else []


@contextlib.contextmanager
def held(supervisor):
    """The supervisor starts nothing meanwhile."""
    supervisor.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        supervisor.send_signal(signal.SIGCONT)


def lose_memory(memory, node):
    shutil.rmtree(memory / f"node{node}", ignore_errors=True)


def damage_copy(memory, node, shard):
    """Flips a bit of the newest copy of a shard that a node has."""
    damage_shard(memory / f"node{node}/step_{generations(memory, node)[-1]:08}", "flipped", shard)


class Injured:
    """A run of two simulated nodes with one rank each, whose ranks are killed while its memory is injured."""

    def __init__(self, b, steps=60, **flags):
        self.run = Supervised(b, steps)
        self.run.flags.update(flags)
        self.run.reference()
        self.supervisor = self.run.start("run", "1,1", "--max_restarts", "9", memory_save_steps=6)
        self.count = 0

    def memory(self):
        return memory_directory(self.supervisor)

    def injure(self, goal, victim, work, complete=1):
        """Kills a rank after a step, and calls work(directory) before the ranks start again. False: fewer checkpoints were in memory (while one is
        written there is one other), so that it was only a kill."""
        def ready():
            return self.run.steps("run") >= goal and len(self.run.ranks(self.supervisor)) == 2 and all(generations(self.memory(), node) for node in (0, 1))
        wait_for(ready, 60)
        with held(self.supervisor):
            kill([self.run.ranks(self.supervisor)[victim]])
            wait_for(lambda: not self.run.ranks(self.supervisor), 60)
            done = all(len(generations(self.memory(), node)) >= complete for node in (0, 1))
            if done:
                work(self.memory())
        self.count += 1
        wait_for(lambda: len(self.run.history("run")["failures"]) >= self.count, 60)
        return done

    def finish(self):
        memory = self.memory()
        said = self.run.finish(self.supervisor)
        assert self.run.result("run") == self.run.expected, f"the disturbed run differs from the undisturbed one\n{said}"
        assert not memory.exists(), "the checkpoints in memory are left"
        return said


def a_lost_node_is_restored_from_the_memory_of_its_partner(b):
    """Nothing is on disk. A node is lost with its memory, copies are damaged, own and partner's copies are mixed, both copies are damaged."""
    job = Injured(b, steps=120, save_strategy="no", save_total_limit=None)
    assert job.injure(14, 1, lambda memory: lose_memory(memory, 1))
    assert job.injure(28, 0, lambda memory: (damage_copy(memory, 0, 0), damage_copy(memory, 1, 1)))
    assert job.injure(42, 1, lambda memory: lose_memory(memory, 0))
    both_copies = any(job.injure(goal, goal // 9 % 2, lambda memory: (damage_copy(memory, 0, 1), damage_copy(memory, 1, 1)), complete=2)
                      for goal in range(54, 110, 9))
    said = job.finish()
    assert both_copies and said.count("in the memory of the nodes") == job.count, said
    assert "a copy in memory is not used" in said and "no undamaged copy is left of shard_00001.h5" in said, said
    assert not list((b.work / "run/checkpoints").glob("step_*")), "a checkpoint is on disk"
    for failure in job.run.history("run")["failures"]:
        print(f"step {failure['step']}: {failure['lost_seconds']}")


def a_run_without_memory_falls_back_to_the_disk(b):
    """Both nodes of a ring lose their memory in the same second; later the newest checkpoint is on disk or in memory."""
    job = Injured(b)
    job.injure(12, 0, lambda memory: (lose_memory(memory, 0), lose_memory(memory, 1)))
    job.injure(30, 1, lambda memory: None)
    said = job.finish()
    assert "resuming from " + str(b.work / "run/checkpoints/step_") in said, said


def memory_restores_on_fewer_nodes(b):
    """A node fails three times in a row, each time with its memory: the other one restores all states on half of the ranks."""
    job = Injured(b, save_strategy="no", save_total_limit=None)
    for goal in (12, 24, 36):
        job.injure(goal, 1, lambda memory: lose_memory(memory, 1))
    said = job.finish()
    assert job.run.history("run")["ranks"] == 1 and said.count("in the memory of the nodes") == 3, said


def memory_saves_need_their_supervisor(b):
    """Without `tessera run` nobody would free the memory; values that are no number of steps are refused, too."""
    done = b.train(1, b.common("alone", memory_save_steps=2), expect=64)
    assert "tessera run" in done.stderr, done.stderr
    assert "auto" in b.train(1, b.common("wrong", memory_save_steps="often"), expect=64).stderr
    run = Supervised(b)
    run.flags.update(save_strategy="no", save_total_limit=None, max_steps=30)
    said = run.finish(run.start("auto", "2", memory_save_steps="auto"))
    saved = b.status("auto")["memory_save"]
    assert saved["interval"] >= 1 and saved["bytes"] > 0, (saved, said)
