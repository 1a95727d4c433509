"""Network namespaces with an address each as hosts: start, training, loss of the link between them, loss of a host, a slow link."""
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

from scenarios.recovery import Supervised
from scenarios.verification import named_after
from support import launcher_options, wait_for, zero


# A host has memory for files of its own. The last line of the script keeps a connection to a killed host, as ssh does: nothing tells it that the host is lost.
SCRIPT = """#!/bin/sh
host=$1; shift
mkdir -p "/dev/shm/$host"
ip netns exec "$host" unshare --uts --mount sh -c 'hostname "$1"; mount --bind "/dev/shm/$1" /dev/shm; shift; exec sh -c "$*"' - "$host" "$@"
[ $? -lt 128 ] || exec sleep 1000
"""


class Hosts:
    """Namespaces with host names of their own: A and B, joined by a virtual cable, or more of them at a switch. Open MPI starts its daemons by a script instead of ssh."""

    def __init__(self, b, letters="ab"):
        self.b, self.names = b, [f"tessera{os.getpid()}{letter}" for letter in letters]
        self.devices = [f"t{os.getpid()}{letter}" for letter in letters]
        self.switch = f"tessera{os.getpid()}switch"
        if not launcher_options(b.mpiexec):
            self.skip("Hydra starts ranks on other hosts by ssh")
        self.needed("unshare", "--uts", "--mount", "true")
        self.needed("ip", "netns", "add", self.names[0])

    def skip(self, reason):
        print(f"SKIPPED: {reason}")
        raise SystemExit(77)

    def needed(self, *words):
        try:
            tried = subprocess.run(words, capture_output=True, text=True)
        except OSError as error:
            self.skip(f"two hosts need {words[0]}: {error}")
        if tried.returncode != 0:
            self.skip(f"network namespaces cannot be made here: {' '.join(words[:3])}: {tried.stderr.strip()}")

    def ip(self, *words):
        return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout

    def __enter__(self):
        for name in self.names[1:]:
            self.ip("netns", "add", name)
        if len(self.names) == 2:
            self.cable(*zip(self.names, self.devices))
        else:
            self.ip("netns", "add", self.switch)
            try:
                self.ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
            except subprocess.CalledProcessError as error:
                self.__exit__()
                self.skip(f"no virtual switch can be made here: {error.stderr.strip()}")
            self.ip("-n", self.switch, "link", "set", "bridge", "up")
            for name, device in zip(self.names, self.devices):
                self.cable((name, device), (self.switch, device + "s"))
                self.ip("-n", self.switch, "link", "set", device + "s", "master", "bridge", "up")
        for number, (name, device) in enumerate(zip(self.names, self.devices)):
            self.ip("-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", device)
            self.ip("-n", name, "link", "set", device, "up")
            self.ip("-n", name, "link", "set", "lo", "up")
        self.agent = self.b.work / "start_on_host.sh"
        self.agent.write_text(SCRIPT)
        self.agent.chmod(0o755)
        return self

    def __exit__(self, *_):
        for name in self.names:
            for pid in self.processes(name):
                self.kill(pid)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            shutil.rmtree(f"/dev/shm/{name}", ignore_errors=True)
        subprocess.run(["ip", "netns", "del", self.switch], capture_output=True)

    def cable(self, one, other):
        """Joins two namespaces, each with the name of its device."""
        self.ip("link", "add", one[1], "netns", one[0], "type", "veth", "peer", "name", other[1], "netns", other[0])

    def link(self, state):
        self.ip("-n", self.names[0], "link", "set", self.devices[0], state)

    def slow(self, host, rate):
        """What the host sends leaves it at this rate."""
        self.needed("tc", "-n", self.names[host], "qdisc", "add", "dev", self.devices[host], "root", "tbf", "rate", rate, "burst", "64kb", "latency", "400ms")

    def processes(self, name, program=""):
        """Process ids on a host; those of a program only when it is named."""
        found = []
        for pid in self.ip("netns", "pids", name).split():
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text().startswith(program):
                    found.append(int(pid))
            except OSError:
                continue
        return found

    def kill(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def start(self, words, ranks=2):
        """Ranks on each host."""
        return self.open(self.b.mpiexec, *launcher_options(self.b.mpiexec), "-H", ",".join(f"{name}:{ranks}" for name in self.names), *self.network(),
                         str(self.b.bin / "tessera-train"), *words)

    def supervise(self, words, *options):
        """`tessera run` on host A, with two ranks on each host."""
        hostfile = self.b.work / "hostfile"
        hostfile.write_text("".join(f"{name} slots=2\n" for name in self.names))
        return self.open(str(self.b.bin / "tessera"), "run", "--hostfile", str(hostfile), "--launcher_options=" + " ".join(self.network()), *options, "--", *words)

    def network(self):
        return ["--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "btl_tcp_if_include", "10.77.0.0/24", "--mca", "plm_rsh_agent", str(self.agent)]

    def open(self, *words):
        """Starts a program on host A."""
        with open(self.b.work / "log.txt", "w") as log:
            return subprocess.Popen([str(self.agent), self.names[0], shlex.join(words)], env=self.b.environment(), stdout=log, stderr=log)

    def finish(self, words):
        job = self.start(words)
        assert job.wait(timeout=120) == 0, self.log()
        return self.log()

    def log(self):
        return (self.b.work / "log.txt").read_text()

    def running(self, run):
        """A training that has saved, and continues until something ends it."""
        job = self.start(self.words(run, max_steps=100000))
        wait_for(lambda: (self.b.work / run / "checkpoints/latest").exists(), 60)
        return job

    def words(self, run, **more):
        return self.b.common(run, **{**dict(deepspeed=self.b.config("ds.json", zero(3)), save_strategy="steps", save_steps=4, save_total_limit=3,
                                            per_device_train_batch_size=4, node_timeout=3), **more})


def _ends(hosts, name, since):
    """Waits until no rank of the host is left."""
    wait_for(lambda: not hosts.processes(name, "tessera-train"), 45)
    print(f"{name}: no rank is left {time.monotonic() - since:.1f} s later")


def two_hosts_lose_their_link(b):
    """The bits of two simulated nodes. Then the link goes down: the ranks of both hosts end, and the run resumes once it is back."""
    with Hosts(b) as hosts:
        log = hosts.finish(hosts.words("hosts", max_steps=4))
        assert "ZeRO stage 3 on 4 ranks (2 nodes)" in log, log
        b.train(4, hosts.words("simulated", max_steps=4), nodes="2,2")
        assert b.losses("hosts") == b.losses("simulated"), (b.losses("hosts"), b.losses("simulated"))
        job = hosts.running("run")
        hosts.link("down")
        began = time.monotonic()
        for name in hosts.names:
            _ends(hosts, name, began)
        status = b.status("run")
        assert status["state"] == "failed" and status["exit_code"] == 69 and status["suspect_rank"] in (0, 2), (status, hosts.log())
        hosts.link("up")
        job.kill()
        job.wait()
        for name in hosts.names:
            for pid in hosts.processes(name):
                hosts.kill(pid)
        b.tool(["checkpoint", "verify", b.work / "run"])
        step = int((b.work / "run/checkpoints/latest").read_text()[5:])
        assert "resuming from" in hosts.finish(hosts.words("run", max_steps=step + 1))


def two_hosts_lose_one(b):
    """All processes of a host end without a message, and its link with them: the other host's ranks name it, and resume without it."""
    with Hosts(b) as hosts:
        job = hosts.running("run")
        hosts.link("down")
        for pid in hosts.processes(hosts.names[1]):
            hosts.kill(pid)
        _ends(hosts, hosts.names[0], time.monotonic())
        status = b.status("run")
        assert status["state"] == "failed" and status["exit_code"] == 69 and status["suspect_rank"] == 2, (status, hosts.log())
        assert "node" in hosts.log() and "heartbeat" in hosts.log(), hosts.log()
        step = int((b.work / "run/checkpoints/latest").read_text()[5:])
        job.kill()
        done = b.train(2, hosts.words("run", max_steps=step + 1, per_device_train_batch_size=8))
        assert "resuming from" in done.stderr, done.stderr


def a_supervised_run_survives_a_lost_link(b):
    """The link between the hosts goes down in a step, and is back later: the run continues on one host, then on both, with the bytes of an undisturbed one."""
    with Hosts(b) as hosts:
        run = Supervised(b, 240)
        run.flags.update(node_timeout=3, memory_save_steps=5)
        hosts.finish(run.words("reference", 4, memory_save_steps=None))
        supervisor = hosts.supervise(run.words("run", 4))
        wait_for(lambda: run.steps("run") >= 10, 60)
        hosts.link("down")
        wait_for(lambda: run.count("run") == 1 and run.history("run")["ranks"] == 2 and run.steps("run") >= 60, 90)
        hosts.link("up")
        hosts.kill(hosts.processes(hosts.names[0], "tessera-train")[0])
        wait_for(lambda: run.count("run") == 2 and run.history("run")["ranks"] == 4, 90)
        assert supervisor.wait(timeout=120) == 0, hosts.log()
        assert run.result("run") == run.result("reference"), f"the disturbed run differs from the undisturbed one\n{hosts.log()}"
        for failure in run.history("run")["failures"]:
            print(f"step {failure['step']}, {failure['kind']}: {failure['lost_seconds']}")


def three_hosts_name_the_slow_link(b):
    """One host sends slowly from some step on. It is named in the log, status.json and metrics.jsonl."""
    with Hosts(b, "abc") as hosts:
        run = Supervised(b)
        job = hosts.start(hosts.words("run", max_steps=100000, save_strategy="no"), ranks=1)
        wait_for(lambda: run.steps("run") >= 30, 60)
        first = run.steps("run")
        hosts.slow(1, "10mbit")
        wait_for(lambda: named_after(b, first), 120)
        named = named_after(b, first)
        print(f"slow from step {first}, named after step {named['step']}: {named['stragglers']}")
        assert [(s["rank"], s["node"], s["slow"]) for s in named["stragglers"]] == [(1, hosts.names[1], "network")], named
        assert named["step"] <= first + 30, (first, named)
        wait_for(lambda: b.status("run").get("stragglers"), 10)
        assert f"the network of node {hosts.names[1]} is" in hosts.log(), hosts.log()
        job.terminate()
        job.wait(timeout=60)
