"""Kills, lost ranks, full disks, memory."""
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

from support import TINY, launcher_kills_ranks, zero, safetensors, rank_of, ranks_of, wait_for, refused


def killed_at_any_moment(b):
    """Jobs of two ranks killed at chosen calls or moments, started again each time; at the end it is as if nothing had happened.
    TESSERA_CRASH_ROUNDS and TESSERA_CRASH_SEED choose how often and when."""
    rounds, seed = int(os.environ.get("TESSERA_CRASH_ROUNDS", "4")), int(os.environ.get("TESSERA_CRASH_SEED", "1"))
    dice = random.Random(seed)
    settings = dict(max_steps=24, save_strategy="steps", save_steps=2, per_device_train_batch_size=4, deepspeed=b.config("ds.json", zero(2)))
    b.train(2, b.common("whole", **settings))
    run, kills = b.work / "killed", 0
    for number in range(rounds):
        words = b.common("killed", async_save=dice.choice(("on", "off")), checkpoint_ranks_per_file=dice.choice((1, 2)), **settings)
        told = f"round {number}; again with TESSERA_CRASH_SEED={seed} TESSERA_CRASH_ROUNDS={rounds}"
        if dice.random() < 0.7:
            faults = f"path={run}/checkpoints,rank={dice.randrange(2)},nth={dice.randrange(1, 160)},do=kill"
            code = subprocess.run(b.command(2, words), env=b.faulty(faults), capture_output=True, timeout=120).returncode
        else:
            started = subprocess.Popen(b.command(2, words), env=b.environment(), stderr=subprocess.DEVNULL)
            time.sleep(dice.uniform(0.3, 2.5))
            for pid in ranks_of(started.pid):
                os.kill(pid, signal.SIGKILL)
            code = started.wait(timeout=60)
        kills += code != 0
        if (run / "checkpoints/latest").exists():
            verified = subprocess.run([str(b.bin / "tessera"), "checkpoint", "verify", str(run)], capture_output=True, text=True)
            assert verified.returncode == 0, f"{told}\n{verified.stdout}{verified.stderr}"
        if code == 0:
            assert b.losses("killed") == b.losses("whole"), told
            shutil.rmtree(run)
    if run.exists():
        (run / "status.json.tmp.another-1-0").write_text("{")  # killed while it wrote this
    b.train(2, b.common("killed", **settings))
    assert not list(run.glob("*.tmp.*")), list(run.iterdir())
    assert b.losses("killed") == b.losses("whole"), f"losses differ after {kills} kills; TESSERA_CRASH_SEED={seed} TESSERA_CRASH_ROUNDS={rounds}"
    assert safetensors(run / "model.safetensors") == safetensors(b.work / "whole/model.safetensors")
    left = [p.name for p in (run / "checkpoints").iterdir() if ".tmp." in p.name or p.name.startswith(".")]
    assert kills > 0 and not left, f"{kills} kills, left behind: {left}"
    print(f"{kills} of {rounds} jobs were killed")


def failing_disk(b):
    settings = dict(max_steps=6, save_strategy="steps", save_steps=2, per_device_train_batch_size=4)
    b.train(2, b.common("whole", **settings))
    done = b.train(2, b.common("once", async_save="on", **settings), faults="call=write,path=step_00000002,rank=1,do=EIO")
    for part in ("saving step 2 failed", "rank 1 (host", "shard_00001.h5", "Input/output error", "training continues"):
        assert part in done.stderr, f"'{part}' is not said:\n{done.stderr}"
    assert not (b.work / "once/checkpoints/step_00000002").exists() and b.losses("once") == b.losses("whole")
    b.tool(["checkpoint", "verify", b.work / "once"])
    for mode in ("on", "off"):
        words = b.common(f"flush_{mode}", async_save=mode, max_save_failures=0, **settings)
        done = b.train(2, words, expect=74, faults="call=fsync,path=step_00000004,rank=0,do=EIO")
        assert "cannot flush to disk" in done.stderr and "step_00000004" in done.stderr, done.stderr
        status = b.status(f"flush_{mode}")
        assert status["exit_code"] == 74 and status["last_checkpoint"] == "step_00000002" and status["save"]["state"] == "failed", status
        b.train(2, words)
        assert b.losses(f"flush_{mode}") == b.losses("whole")
    b.train(2, b.common("cut", **settings), faults="call=write,path=checkpoints,do=short;call=read,do=short;call=write,path=shard_,nth=5,times=3,do=EINTR")
    b.tool(["checkpoint", "verify", b.work / "cut"])
    assert b.losses("cut") == b.losses("whole")
    done = b.train(2, b.common("sealed", **settings), expect=74, faults=f"path={b.work}/sealed,do=EROFS")
    assert "Read-only file system" in done.stderr and "sealed" in done.stderr, done.stderr


def out_of_memory(b):
    refused(b, 70, b.common("x", config_overrides=TINY.replace("n_embd=32", "n_embd=65536").replace("n_layer=2", "n_layer=96")), "TiB for weights", "ZeRO stage")


def full_disk(b):
    """A file system of its own that is too small for the second checkpoint; needs the right to mount."""
    b.needs_mounts("checkpoint.interrupted and failing_disk cover failing writes")
    script = r'''
mount -t tmpfs -o size=6m tmpfs "$1" || exit 99
cd "$1" && shift && "$@" >out 2>err; code=$?
cat err >&2; cat status.json; ls checkpoints
exit $code'''
    small = b.work / "small"
    small.mkdir()
    words = b.common("small", overwrite_output_dir=True, max_steps=4, save_strategy="steps", save_steps=1, max_save_failures=1)
    done = subprocess.run(["unshare", "-m", "bash", "-c", script, "bash", str(small)] + b.command(2, words), env=b.environment(), capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 74, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "No space left" in done.stderr or "free" in done.stderr, done.stderr
    assert '"exit_code": 74' in done.stdout and "step_00000001" in done.stdout and ".tmp." not in done.stdout, done.stdout


def lost_rank(b):
    for victim in (1, 0):
        name = f"run{victim}"
        words = b.common(name, max_steps=100000, save_strategy="steps", save_steps=5, per_device_train_batch_size=1)
        started = subprocess.Popen(b.command(3, words), env=b.environment(), stderr=subprocess.PIPE, text=True)
        wait_for(lambda: (b.work / name / "checkpoints/latest").exists(), 60)
        pids = ranks_of(started.pid)
        rank_pid = next(p for p in pids if rank_of(p) == victim)
        killed = time.monotonic()
        os.kill(rank_pid, signal.SIGKILL)
        _, stderr = started.communicate(timeout=60)
        seconds = time.monotonic() - killed
        print(f"rank {victim} killed: the job ended {seconds:.1f} s later with {started.returncode}")
        assert seconds < 30 and started.returncode != 0
        status = b.status(name)
        if launcher_kills_ranks(b.mpiexec):
            assert status["state"] in ("running", "saving") and "it was killed" in b.tool(["doctor", "--why", b.work / name]).stdout, status
            newest = int((b.work / name / "checkpoints/latest").read_text()[5:])
            b.tool(["checkpoint", "verify", b.work / name])
            done = b.train(2, b.common(name, max_steps=newest + 2, per_device_train_batch_size=1))
            assert "resuming from" in done.stderr, done.stderr
            continue
        assert status["state"] == "failed" and status["exit_code"] == 69 and status["suspect_rank"] == victim, status
        record = (b.work / name / f"flight_record/rank_{(victim + 1) % 3:05d}.txt").read_text()
        assert "has ended" in record and " done " in record, record
        b.tool(["checkpoint", "verify", b.work / name])
