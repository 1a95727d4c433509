"""`tessera run`: ranks are killed, stopped and lost, and the run ends with the bytes of an undisturbed one, on fewer ranks too."""
import json
import os
import random
import signal
import subprocess

from support import TINY, launcher_options, ranks_of, safetensors, wait_for, zero

STEPS = 60
# times; bytes of the layout; the place in the epoch, whose steps are rounded to the samples of a rank
DROPPED = ("seconds", "data_seconds", "tokens_per_second", "save_seconds", "save_stall_seconds", "save_bytes", "sent_bytes", "epoch", "stragglers")


class Supervised:
    """A training of 8 micro-batches per step under `tessera run`, with its reference."""

    def __init__(self, b, steps=STEPS, stage=3):
        self.b = b
        self.flags = dict(reproducible="world", config_overrides=TINY, max_steps=steps, per_device_train_batch_size=1, deepspeed=b.config("ds.json", zero(stage)),
                          save_strategy="steps", save_steps=5, save_total_limit=2, validation_file=str(b.text), max_eval_samples=4, eval_strategy="steps", eval_steps=20,
                          do_eval=True, dataloader_num_workers=0, comm_timeout=60)

    def words(self, name, ranks, **more):
        return self.b.common(name, **{**self.flags, "gradient_accumulation_steps": 8 // ranks, **more})

    def reference(self, ranks=2, timeout=240):
        self.b.train(ranks, self.words("reference", ranks), timeout=timeout)
        self.expected = self.result("reference")
        return self.expected

    def result(self, name):
        """Everything that the training computed: numbers without times, and the weights."""
        numbers = [{k: v for k, v in m.items() if k not in DROPPED} for m in self.b.metrics(name) if "checkpoint" not in m]
        return numbers, safetensors(self.b.work / name / "model.safetensors")

    def start(self, name, nodes, *options, **more):
        """nodes: ranks of each simulated node, or one number: ranks of this machine."""
        sizes = nodes.split(",")
        ranks = sum(int(size) for size in sizes) if len(sizes) > 1 else int(nodes)
        spares = int(options[options.index("--spares") + 1]) if "--spares" in options else 0
        ranks -= spares * int(sizes[0])
        environment = self.b.environment()
        if len(sizes) > 1:
            environment["TESSERA_SIMULATED_NODES"] = nodes
        else:
            options = (*options, "--ranks_per_node", nodes)
        words = [str(self.b.bin / "tessera"), "run", "--launcher_options=" + " ".join(w for w in launcher_options(self.b.mpiexec) if "root" not in w), *options,
                 "--", *self.words(name, ranks, **more)]
        with open(self.b.work / "supervisor.log", "w") as log:  # a pipe that nobody reads would stop the supervisor
            return subprocess.Popen(words, env=environment, stderr=log, stdout=subprocess.DEVNULL)

    def ranks(self, supervisor):
        """Process ids of the ranks, by launcher: empty while it starts."""
        launchers = subprocess.run(["ps", "-o", "pid=", "--ppid", str(supervisor.pid)], capture_output=True, text=True).stdout.split()
        return [rank for launcher in launchers for rank in ranks_of(int(launcher))]

    def steps(self, name):
        """The newest step in metrics.jsonl; 0: none. Only the end of the file is read: it is asked often."""
        try:
            with open(self.b.work / name / "metrics.jsonl", "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 16384))
                lines = file.read().split(b"\n")[1 if file.tell() > 16384 else 0:-1]
            return max((json.loads(line)["step"] for line in lines), default=0)
        except (OSError, json.JSONDecodeError):
            return 0

    def history(self, name):
        return json.loads((self.b.work / name / "recovery.json").read_text())

    def count(self, name):
        """Failures so far."""
        try:
            return len(self.history(name)["failures"])
        except (OSError, json.JSONDecodeError):
            return 0

    def finish(self, supervisor, code=0, timeout=200):
        supervisor.wait(timeout)
        said = (self.b.work / "supervisor.log").read_text()
        assert supervisor.returncode == code, f"exit {supervisor.returncode}\n{said}"
        return said


def kill(pids, number=signal.SIGKILL):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def a_supervised_run_survives_kills_and_hangs(b):
    """A rank killed, all ranks killed in the same instant, a rank stopped: each costs a restart in place; the bytes are those of the undisturbed run."""
    run = Supervised(b)
    run.reference()
    dice = random.Random(36)
    supervisor = run.start("run", "2", "--hang_timeout", "3")
    for number, goal in enumerate((7, 18, 31, 44)):
        wait_for(lambda: run.steps("run") >= goal and len(run.ranks(supervisor)) == 2, 60)
        ranks = run.ranks(supervisor)
        victims = (ranks[:1], ranks, [dice.choice(ranks)], ranks[1:])[number]
        kill(victims, signal.SIGSTOP if number == 2 else signal.SIGKILL)
        wait_for(lambda: run.count("run") > number, 60)
    said = run.finish(supervisor)
    assert run.result("run") == run.expected, "the disturbed run differs from the undisturbed one"
    history = run.history("run")
    failures = history["failures"]
    assert len(failures) == 4 and "killed by signal 9" in failures[0]["kind"] + said and failures[2]["kind"].startswith("hang"), history
    assert history["exit_code"] == 0 and 0 < history["goodput"] < 1 and sum(history["lost_seconds"].values()) < history["elapsed_seconds"], history
    for failure in failures:
        seconds = sum(failure["lost_seconds"].values())
        print(f"step {failure['step']}, {failure['kind']}: {seconds:.2f} s lost, {failure['lost_seconds']}")
        assert seconds < 12, failure
    assert "failures             4: " in b.tool(["status", b.work / "run"]).stdout
    assert "goodput: " in b.tool(["doctor", "--why", b.work / "run"]).stdout


def a_supervised_run_shrinks_and_grows(b):
    """A simulated node fails three times in a row and is left out: half the ranks, the same global batch. Stopped and started again it has all of them."""
    run = Supervised(b)
    run.reference()
    supervisor = run.start("run", "1,1", "--max_restarts", "9")
    for number, goal in enumerate((6, 9, 12)):
        wait_for(lambda: run.steps("run") >= goal and len(run.ranks(supervisor)) == 2, 60)
        kill(run.ranks(supervisor)[1:])
        wait_for(lambda: run.count("run") > number, 60)
    def one_rank_trains():  # the metrics may have steps of the attempt before
        status = b.status("run")
        return status["world_size"] == 1 and status["state"] == "running" and run.steps("run") >= 20
    wait_for(one_rank_trains, 60)
    assert run.history("run")["ranks"] == 1 and {f["node"] for f in run.history("run")["failures"]} == {"node1"}, run.history("run")
    supervisor.send_signal(signal.SIGTERM)
    run.finish(supervisor, 75)
    assert b.status("run")["state"] == "stopped_early"
    run.finish(run.start("run", "1,1"))
    history = run.history("run")
    assert history["ranks"] == 2 and len(history["failures"]) == 3 and history["exit_code"] == 0, history
    assert run.result("run") == run.expected, "the run that shrank and grew differs from the undisturbed one"


def a_supervised_run_takes_a_spare(b):
    run = Supervised(b)
    run.reference()
    supervisor = run.start("run", "1,1,1", "--spares", "1")
    wait_for(lambda: run.steps("run") >= 8, 60)
    kill(run.ranks(supervisor)[:1])
    said = run.finish(supervisor)
    assert run.result("run") == run.expected
    assert run.history("run")["failures"][0]["node"] == "node0" and run.history("run")["ranks"] == 2, said


def a_supervised_run_stops_where_it_must(b):
    """What another attempt cannot fix ends the run with today's code; so does a step that fails again and again; signals arrive; nothing is left running."""
    run = Supervised(b)
    done = subprocess.run([str(b.bin / "tessera"), "run", "--", *b.common("wrong", learning_rate="fast")], env=b.environment(), capture_output=True, text=True)
    assert done.returncode == 64 and not (b.work / "wrong").exists(), done.stderr
    done = subprocess.run([str(b.bin / "tessera"), "run", "--spares", "1", "--", *b.common("wrong")], env=b.environment(), capture_output=True, text=True)
    assert done.returncode == 64 and "--spares 1" in done.stderr, done.stderr
    supervisor = run.start("data", "1", train_file="/nowhere/text.txt")
    assert "failures 1" in run.finish(supervisor, 74)
    poison = dict(b.environment(), TESSERA_FAULTS=f"path={b.work}/poison/checkpoints,call=mkdir,nth=1,do=kill", LD_PRELOAD=str(b.bin.parent / "tests/bin/libtessera_faults.so"))
    words = [str(b.bin / "tessera"), "run", "--max_restarts", "2", "--", *run.words("poison", 1)]
    done = subprocess.run(words, env=poison, capture_output=True, text=True, timeout=120)
    history = run.history("poison")
    assert done.returncode == 137 and len(history["failures"]) == 2 and "same step" in done.stderr, (done.returncode, history, done.stderr)
    supervisor = run.start("killed", "2", max_steps=100000)
    wait_for(lambda: run.steps("killed") >= 5, 60)
    ranks = run.ranks(supervisor)
    supervisor.kill()
    supervisor.wait()
    wait_for(lambda: not any(os.path.exists(f"/proc/{rank}") for rank in ranks), 20)
