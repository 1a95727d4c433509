"""What operators of a cluster meet: signals during a save, ranks that exit, closed output, file times, permissions."""
import contextlib
import os
import signal
import stat
import subprocess
import time

from support import launcher_kills_ranks, rank_of, ranks_of, wait_for


def start(b, name, **more):
    """A long job of two ranks with its first checkpoint on disk, and the process ids of its ranks by rank."""
    words = b.common(name, max_steps=100000, save_strategy="steps", save_steps=5, per_device_train_batch_size=1, save_total_limit=2, **more)
    started = subprocess.Popen(b.command(2, words), env=b.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: (b.work / name / "checkpoints/latest").exists(), 60)
    return started, sorted(ranks_of(started.pid), key=rank_of)


def second_signal_during_a_save(b):
    """The second TERM, a second or more after the first, ends a job whose step or save hangs; the checkpoint before it resumes."""
    started, ranks = start(b, "run", async_save="off")
    os.kill(ranks[1], signal.SIGSTOP)  # rank 0 now waits for it and cannot save
    os.kill(ranks[0], signal.SIGTERM)
    time.sleep(1.5)
    os.kill(ranks[0], signal.SIGTERM)
    time.sleep(0.5)
    with contextlib.suppress(ProcessLookupError):  # its launcher may have killed it
        os.kill(ranks[1], signal.SIGCONT)
    said = started.communicate(timeout=60)[0]
    assert started.returncode not in (0, 75), said
    b.tool(["checkpoint", "verify", b.work / "run"])
    status = b.status("run")
    assert status["state"] not in ("running", "saving", "done") and status["exit_code"] not in (0, 75), status
    newest = (b.work / "run/checkpoints/latest").read_text().strip()
    done = b.train(2, b.common("run", max_steps=int(newest[5:]) + 2, per_device_train_batch_size=1))
    assert f"resuming from {b.work / 'run/checkpoints' / newest}" in done.stderr.replace("'", ""), done.stderr


def rank_that_exits(b):
    """A rank that ends by itself, without MPI's knowledge, is a lost rank."""
    words = b.common("run", max_steps=100000, save_strategy="steps", save_steps=5, per_device_train_batch_size=1)
    done = subprocess.run(b.command(2, words), env=b.faulty(f"path={b.work}/run/checkpoints,rank=1,nth=120,do=exit"), capture_output=True, text=True, timeout=60)
    status = b.status("run")
    if launcher_kills_ranks(b.mpiexec):
        assert done.returncode != 0 and status["state"] in ("running", "saving"), f"{done.returncode}\n{status}\n{done.stderr}"
        b.tool(["checkpoint", "verify", b.work / "run"])
        return
    assert done.returncode != 0 and status["state"] == "failed" and status["exit_code"] == 69 and status["suspect_rank"] == 1, f"{done.returncode}\n{status}\n{done.stderr}"
    b.tool(["checkpoint", "verify", b.work / "run"])


def closed_output(b):
    """A reader of the log that goes away, closed descriptors and a full device do not end a run."""
    words = b.common("open", max_steps=6)
    b.train(1, words)
    program = [str(b.bin / "tessera-train")]
    for name, tail in (("pipe", "2>&1 | head -n 1"), ("closed", ">&- 2>&-"), ("full", ">/dev/full 2>&1"), ("no_input", "<&-")):
        done = subprocess.run(["bash", "-o", "pipefail", "-c", f'"$@" {tail}', "bash"] + program + b.common(name, max_steps=6), env=b.environment(),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        assert done.returncode == 0, f"{name}: {done.returncode}\n{done.stderr}"
        assert b.losses(name) == b.losses("open") and b.status(name)["state"] == "done", name


def wrong_file_times(b):
    """Steps, not file times, decide which checkpoint is the newest and which ones are pruned."""
    words = dict(save_strategy="steps", save_steps=2, save_total_limit=2, per_device_train_batch_size=4)
    b.train(2, b.common("run", max_steps=4, **words))
    checkpoints = b.work / "run/checkpoints"
    for age, step in ((0, 2), (30 * 365 * 86400, 4)):
        for path in [checkpoints / f"step_{step:08}", *(checkpoints / f"step_{step:08}").iterdir()]:
            os.utime(path, (time.time() + 86400 - age,) * 2)
    (checkpoints / "latest").unlink()
    done = b.train(2, b.common("run", max_steps=6, **words))
    assert "step_00000004" in done.stderr, done.stderr
    assert sorted(p.name for p in checkpoints.glob("step_*")) == ["step_00000004", "step_00000006"]
    b.train(2, b.common("straight", max_steps=6, **words))
    assert b.losses("run")[4:] == b.losses("straight")[4:] or len(b.losses("run")) == 6


def permissions_follow_umask(b):
    """No file is more open than the umask allows; in a directory with the setgid bit all files have its group."""
    shared = b.work / "shared"
    shared.mkdir()
    group = 54321 if os.geteuid() == 0 else os.getgroups()[0]
    os.chown(shared, -1, group)
    shared.chmod(0o2770)
    for name, mask in (("private", 0o077), ("team", 0o007)):
        words = b.common(f"shared/{name}", max_steps=2, save_strategy="steps", save_steps=1)
        done = subprocess.run(b.command(2, words), env=b.environment(), capture_output=True, text=True, umask=mask, timeout=60)
        assert done.returncode == 0, done.stderr
        b.tool(["checkpoint", "verify", shared / name])
        for path in (shared / name).rglob("*"):
            status = path.lstat()
            allowed = stat.S_IMODE(status.st_mode) & 0o777 & mask == 0
            assert allowed and status.st_gid == group, f"{path}: mode {status.st_mode:o}, group {status.st_gid}, umask {mask:03o}"
            wanted = (0o777 if path.is_dir() else 0o666) & ~mask & 0o770
            assert name != "team" or status.st_mode & wanted & 0o060 == 0o060, f"{path}: mode {status.st_mode:o} hides the file from the group"
