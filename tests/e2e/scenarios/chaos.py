"""Seeded chaos: jobs are killed, stopped, given full or failing disks, damaged files and changed arguments, and are queued again.

After each round two things hold. The best checkpoint of the run is not worse than before: the newest step that verifies never
decreases, except by the damage that the round itself did. Exit code 0 means that the model was trained: all steps were
taken, the losses are those of an undisturbed run, and so is the model.
TESSERA_CHAOS_ROUNDS and TESSERA_CHAOS_SEED choose how many rounds and which."""
import json
import os
import random
import shutil
import signal
import subprocess
import time

from support import damage, ranks_of, safetensors, zero

STEPS = 150
RUN = "run"


class Chaos:
    """One run directory, the reference it must reach, and the dice."""

    def __init__(self, b, seed):
        self.b = b
        self.dice = random.Random(seed)
        self.run = b.work / RUN
        self.settings = dict(max_steps=STEPS, save_strategy="steps", save_steps=5, save_total_limit=3, per_device_train_batch_size=4)
        self.config = {stage: b.config(f"stage{stage}.json", zero(stage)) for stage in (1, 2, 3)}
        b.train(2, b.common("reference", deepspeed=self.config[2], **self.settings))
        self.losses = {m["step"]: m["loss"] for m in b.metrics("reference") if "loss" in m}
        assert len(self.losses) == STEPS
        self.model = safetensors(b.work / "reference/model.safetensors")
        self.counts = {}

    def words(self, **more):
        chosen = dict(async_save=self.dice.choice(("on", "off")), checkpoint_ranks_per_file=self.dice.choice((1, 2)),
                      deepspeed=self.config[2], **self.settings)
        chosen.update(more)
        return self.b.common(RUN, **chosen)

    def job(self, words, faults=None, event=None, environment=None):
        """Starts two ranks; event(ranks) happens at a random moment, most often a stop where the round has no event of its own.
        Returns the exit code and what was said."""
        if not event and not faults and self.dice.random() < 0.7:
            event = lambda ranks: [os.kill(pid, signal.SIGUSR1) for pid in ranks]
        surroundings = dict(self.b.faulty(faults) if faults else self.b.environment(), **(environment or {}))
        started = subprocess.Popen(self.b.command(2, words), env=surroundings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if event:
            time.sleep(self.dice.uniform(0.2, 3.0))
            event(ranks_of(started.pid))
        said = started.communicate(timeout=120)[1]
        return started.returncode, said

    def intact(self):
        """Steps whose checkpoints verify, each one by itself."""
        found = []
        for directory in sorted((self.run / "checkpoints").glob("step_????????")):
            verified = subprocess.run([str(self.b.bin / "tessera"), "checkpoint", "verify", str(directory)], capture_output=True)
            if verified.returncode == 0:
                found.append(int(directory.name[5:]))
        return found

    def finished(self):
        status = self.run / "status.json"
        return status.exists() and json.loads(status.read_text()).get("state") == "done"

    # what can happen to a job; each returns the exit code, what was said, and the exit codes that are right

    def undisturbed(self):
        return *self.job(self.words(), event=lambda ranks: None), {0}

    def queued_again(self):
        """Starts a run again as Slurm does: the same command with a restart count, also with the flag that the guides' commands carry."""
        words = self.words(overwrite_output_dir=self.dice.random() < 0.5 and self.run.exists() and not self.finished())
        return *self.job(words, environment={"SLURM_RESTART_COUNT": "1"}), {0, 75, 138}

    def killed(self):
        if self.dice.random() < 0.6:
            faults = f"path={self.run}/,rank={self.dice.randrange(2)},nth={self.dice.randrange(1, 200)},do=kill"
            return *self.job(self.words(), faults=faults), None
        victims = self.dice.choice((1, 2))
        return *self.job(self.words(), event=lambda ranks: [os.kill(pid, signal.SIGKILL) for pid in ranks[:victims]]), None

    def stopped(self):
        number = self.dice.choice((signal.SIGUSR1, signal.SIGTERM, signal.SIGINT))
        return *self.job(self.words(), event=lambda ranks: [os.kill(pid, number) for pid in ranks]), {0, 75, 128 + number}

    def full_disk(self):
        faults = f"call={self.dice.choice(('write', 'reserve', 'mkdir'))},path={self.run}/,rank={self.dice.randrange(2)},nth={self.dice.randrange(1, 60)},do=ENOSPC"
        return *self.job(self.words(max_save_failures=self.dice.choice((0, 1))), faults=faults), {0, 74}

    def failing_disk(self):
        faults = (f"call={self.dice.choice(('write', 'fsync', 'rename', 'open', 'unlink'))},path={self.run}/,rank={self.dice.randrange(2)},"
                  f"nth={self.dice.randrange(1, 60)},times={self.dice.choice((1, 5))},do={self.dice.choice(('EIO', 'EACCES', 'EROFS'))}")
        return *self.job(self.words(max_save_failures=self.dice.choice((0, 3))), faults=faults), {0, 65, 74, 77}

    def damaged(self):
        """Damage to the newest checkpoint while an older one is intact, then the same command."""
        steps = self.intact()
        if len(steps) >= 2:
            directory = self.run / f"checkpoints/step_{steps[-1]:08}"
            kind = self.dice.choice(("flipped", "truncated", "removed", "manifest", "latest"))
            if kind == "manifest":
                (directory / "manifest.json").write_text("{")
            elif kind == "latest":
                (self.run / "checkpoints/latest").write_text("step_09999999\n")
            else:
                damage(self.b, RUN, steps[-1], kind, rank=0)
        self.best = self.intact()[-1:]
        return *self.job(self.words()), {0, 75, 138}

    def changed_layout(self):
        """Another stage: the same losses to rounding, so the comparison of bits ends with this run."""
        self.exact = False
        return *self.job(self.words(deepspeed=self.config[self.dice.choice((1, 3))])), {0, 75, 138}

    def wrong_arguments(self):
        wrong = self.dice.choice(({"learning_rate": "fast"}, {"train_file": "/nowhere"}, {"deepspeed": "/nowhere.json"}, {"save_steps": -1}))
        return *self.job(self.words(**wrong)), {64, 65, 74, 78}

    def tools(self):
        """Programs that may be run on a run directory between jobs."""
        if self.intact():
            for words in (["checkpoint", "ls", self.run], ["checkpoint", "prune", "--keep", "2", self.run]):
                done = subprocess.run([str(self.b.bin / "tessera")] + [str(w) for w in words], capture_output=True, text=True)
                assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return 0, "", {0}

    def begin(self):
        shutil.rmtree(self.run, ignore_errors=True)
        self.exact = True
        self.best = []
        self.unwritten = 0  # records of metrics.jsonl that a failing disk refused, as a warning said

    def round(self, number, told):
        if number == 0 or self.finished():
            self.begin()
        self.best = self.intact()[-1:]
        names = ("killed", "killed", "stopped", "stopped", "full_disk", "failing_disk", "damaged", "queued_again", "queued_again", "wrong_arguments", "tools",
                 "changed_layout", "undisturbed")
        name = self.dice.choice(names)
        self.counts[name] = self.counts.get(name, 0) + 1
        code, said, right = getattr(self, name)()
        self.unwritten += 5 * said.count("a metrics record could not be written")  # at most 5 calls fail, with one warning or more
        told = f"round {number} ({name}), exit code {code}; again with {told}\n{said}"
        print(f"round {number}: {name}, exit code {code}, best step before {self.best}", flush=True)
        assert right is None or code in right, f"{told}\nright would be one of {sorted(right)}"
        after = self.intact()
        assert not self.best or (after and after[-1] >= self.best[0]), f"the best checkpoint was step {self.best}, now these verify: {after}; {told}"
        if code == 0 and name != "tools":
            self.trained(told)

    def trained(self, told):
        losses = {m["step"]: m["loss"] for m in self.b.metrics(RUN) if "loss" in m}
        assert len(losses) >= STEPS - self.unwritten and set(losses) <= set(self.losses), f"{len(losses)} of {STEPS} steps are in metrics.jsonl; {told}"
        worst = max(abs(loss - self.losses[step]) / self.losses[step] for step, loss in losses.items())
        assert worst == 0 if self.exact else worst < 1e-5, f"losses differ by {worst}; {told}"
        assert not self.exact or safetensors(self.run / "model.safetensors") == self.model, f"the model differs; {told}"


def chaos(b):
    rounds, seed = int(os.environ.get("TESSERA_CHAOS_ROUNDS", "10")), int(os.environ.get("TESSERA_CHAOS_SEED", "1"))
    trial = Chaos(b, seed)
    for number in range(rounds):
        trial.round(number, f"TESSERA_CHAOS_SEED={seed} TESSERA_CHAOS_ROUNDS={rounds}")
    print(f"{rounds} rounds: {trial.counts}")
