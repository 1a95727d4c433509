"""A run with weights and states on a drive is killed at any system call, or at any instant, while it trains and saves."""
import os
import pathlib
import random
import shutil
import subprocess
import time

from support import ranks_of, safetensors, zero

STEPS = 16


def alive_below(launcher):
    """Processes below @p launcher that have not ended, by name."""
    table = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            stat = (entry / "stat").read_text() if entry.name.isdigit() else ""
        except OSError:
            continue
        if stat:
            state, parent = stat[stat.rindex(")") + 2:].split()[:2]
            table[int(entry.name)] = (int(parent), state, stat[stat.index("(") + 1:stat.rindex(")")])
    below = {launcher}
    for _ in table:
        found = {pid for pid, (parent, _, _) in table.items() if parent in below} - below
        if not found:
            break
        below |= found
    return [table[pid][2] for pid in below - {launcher} if table[pid][1] != "Z"]


class KilledRun:
    """One run directory that is killed and continued until it is done, then begun again."""

    def __init__(self, b, dice):
        self.b, self.dice = b, dice
        self.drive = b.work / "drive"
        self.drive.mkdir()
        self.run = b.work / "run"
        document = zero(3, bf16={"enabled": True}, aio={"block_size": 16384, "queue_depth": 3})
        document["zero_optimization"].update(
            sub_group_size=5000, offload_optimizer={"device": "nvme", "nvme_path": str(self.drive), "buffer_count": 3},
            offload_param={"device": "nvme", "nvme_path": str(self.drive), "buffer_count": 2, "buffer_size": 10000000, "max_in_cpu": 0})
        self.words = dict(bf16=True, deepspeed=b.config("ds.json", document), save_strategy="steps", save_steps=2, save_total_limit=2, max_steps=STEPS,
                          per_device_train_batch_size=4)
        b.train(2, b.common("reference", **self.words))
        self.losses = b.losses("reference")
        self.model = safetensors(b.work / "reference/model.safetensors")
        self.finished = 0

    def command(self):
        return self.b.command(2, self.b.common("run", async_save=self.dice.choice(("on", "off")), **self.words))

    def killed_at_a_call(self):
        """From the moment on at which the run has its directory: also before its first checkpoint."""
        command = self.command()
        at = command.index(str(self.b.bin / "tessera-train"))
        marker = self.dice.choice((self.run, self.run / "checkpoints/latest"))
        stops = self.dice.choice((self.dice.randrange(1, 400), self.dice.randrange(1, 12000)))
        tool = [str(self.b.bin.parent / "tests/bin/tessera_kill_at"), str(self.dice.randrange(2)), str(stops), str(marker)]
        started = subprocess.Popen(command[:at] + tool + command[at:], env=self.b.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        code, said = self.end_of(started)
        if code == 77:
            print("SKIPPED: this system allows no tracing")
            raise SystemExit(77)
        return f"{' '.join(tool[1:3])} after {marker.name}", code, said

    def killed_at_an_instant(self):
        started = subprocess.Popen(self.command(), env=self.b.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        seconds, victims = self.dice.uniform(0.3, 2.0), self.dice.choice((1, 2))
        time.sleep(seconds)
        for pid in ranks_of(started.pid)[:victims]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:  # it has ended by itself, or its launcher has ended it
                pass
        return f"{victims} ranks after {seconds:.3f} s", *self.end_of(started)

    def end_of(self, started):
        """Exit code and standard error. Open MPI's launcher may miss that all ranks have ended when they end together (docs/reference/machines.md); then it is killed."""
        try:
            said = started.communicate(timeout=240)[1]
        except subprocess.TimeoutExpired:
            alive = alive_below(started.pid)
            started.kill()
            said = started.communicate()[1]
            assert not alive, f"these have not ended: {alive}\n{said}"
        return started.returncode, said

    def steps(self):
        """Complete checkpoints."""
        found = []
        for directory in sorted((self.run / "checkpoints").glob("step_????????")):
            verified = subprocess.run([str(self.b.bin / "tessera"), "checkpoint", "verify", str(directory)], capture_output=True)
            if verified.returncode == 0:
                found.append(int(directory.name[5:]))
        return found

    def round(self, number, seed):
        before = self.steps()[-1:]
        kill = self.killed_at_a_call if self.dice.random() < 0.75 else self.killed_at_an_instant
        what, code, said = kill()
        after = self.steps()[-1:]
        told = f"round {number}: {what}, exit code {code}, checkpoint {before} before and {after} after; again with TESSERA_CRASH_SEED={seed}"
        print(told, flush=True)
        told += "\n" + said
        assert not list(self.drive.iterdir()), f"a swap file is left: {told}"
        assert after >= before, f"a checkpoint is lost: {told}"
        if code == 0:
            self.finish(told)
        return code

    def finish(self, told=""):
        assert self.b.losses("run") == self.losses, told
        assert safetensors(self.run / "model.safetensors") == self.model, told
        leftovers = [p.name for p in (self.run / "checkpoints").iterdir() if p.name != "latest" and not p.name.startswith("step_")]
        assert not leftovers and len(self.steps()) == 2, (leftovers, self.steps(), told)
        shutil.rmtree(self.run)
        self.finished += 1


def swaps_killed_at_any_call(b):
    """After each kill: no swap file, no checkpoint lost; the same command continues, and the finished run has the bits of an undisturbed one.
    TESSERA_CRASH_ROUNDS and TESSERA_CRASH_SEED choose how many kills and which."""
    seed = os.environ.get("TESSERA_CRASH_SEED", "1")
    killed = KilledRun(b, random.Random(int(seed)))
    codes = [killed.round(number, seed) for number in range(int(os.environ.get("TESSERA_CRASH_ROUNDS", "6")))]
    assert sum(code != 0 for code in codes) >= len(codes) // 2, codes
    b.train(2, b.common("run", **killed.words))
    killed.finish()
    print(f"{sum(code != 0 for code in codes)} kills, {killed.finished} runs finished")
