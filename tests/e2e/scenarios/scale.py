"""Runs of 64 to 256 ranks on one machine, on one node and on simulated nodes. What they check does not depend on the number of cores."""
import json
import os
import signal
import subprocess

from support import close, launcher_options, rank_of, ranks_of, wait_for, zero


def _needs_plain_programs():
    if os.environ.get("TESSERA_SANITIZE"):
        print("SKIPPED: hundreds of ranks under a sanitizer need more memory than most machines have")
        raise SystemExit(77)


def _nodes(ranks, per_node):
    return ",".join([str(per_node)] * (ranks // per_node))


def _words(b, run, ranks, stage, sequences=0, **more):
    """Every step trains on `sequences` sequences, by default one per rank."""
    settings = dict(max_steps=2, per_device_train_batch_size=(sequences or ranks) // ranks, deepspeed=b.config(f"stage{stage}.json", zero(stage)))
    return b.common(run, **{**settings, **more})


def _weights(b, run):
    return (b.work / run / "model.safetensors").read_bytes()


def _resume_on_fewer(b, run, step, sequences):
    """Ranks of another number and stage continue the checkpoint: 3 as a single rank."""
    for ranks, stage in ((3, 3), (1, 1)):
        name = f"{run}_{ranks}"
        (b.work / name / "checkpoints").mkdir(parents=True)
        (b.work / name / f"checkpoints/step_{step:08}").symlink_to(b.work / run / f"checkpoints/step_{step:08}")
        done = b.train(ranks, _words(b, name, ranks, stage, sequences, max_steps=step + 2))
        assert "resuming from" in done.stderr, done.stderr
    close(b.losses(f"{run}_3")[-2:], b.losses(f"{run}_1")[-2:], 2e-5, f"{run} on 3 ranks and on 1")


def _trains_and_resumes(b, ranks, per_node):
    """Stage 2 on one node and stage 3 on many, against two ranks with the same sequences; a save for three ranks."""
    b.train(2, _words(b, "two", 2, 1, ranks))
    b.train(ranks, _words(b, "one_node", ranks, 2))
    b.train(ranks, _words(b, "nodes", ranks, 3, collectives="two-level", save_strategy="steps", save_steps=2, checkpoint_ranks_per_file="node"),
            nodes=_nodes(ranks, per_node))
    for run in ("one_node", "nodes"):
        close(b.losses(run), b.losses("two"), 2e-5, f"{run}, {ranks} ranks and 2")
    b.tool(["checkpoint", "verify", b.work / "nodes"])
    _resume_on_fewer(b, "nodes", 2, 3 * (ranks // 3))


def ranks_64(b):
    _needs_plain_programs()
    _trains_and_resumes(b, 64, 4)


def ranks_256(b):
    _needs_plain_programs()
    _trains_and_resumes(b, 256, 16)


def stages_on_64_ranks(b):
    """Each stage on 16 nodes: two-level collectives give the bits of flat ones, and the losses are those of two ranks."""
    _needs_plain_programs()
    b.train(2, _words(b, "two", 2, 1, 64))
    for stage in (0, 1, 2, 3):
        for choice in ("flat", "two-level"):
            b.train(64, _words(b, f"{choice}{stage}", 64, stage, collectives=choice), nodes=_nodes(64, 4))
        assert b.losses(f"flat{stage}") == b.losses(f"two-level{stage}") and _weights(b, f"flat{stage}") == _weights(b, f"two-level{stage}"), stage
        close(b.losses(f"flat{stage}"), b.losses("two"), 2e-5, f"stage {stage}, 64 ranks and 2")


def ranks_128_lose_one(b):
    """One rank is killed: the others name it and end together. 64 ranks continue."""
    _needs_plain_programs()
    words = _words(b, "run", 128, 3, max_steps=100000, save_strategy="steps", save_steps=2, save_total_limit=2, collectives="two-level")
    job = subprocess.Popen(b.command(128, words), env=dict(b.environment(), TESSERA_SIMULATED_NODES=_nodes(128, 8)), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (b.work / "run/checkpoints/latest").exists(), 120)
    os.kill(next(p for p in ranks_of(job.pid) if rank_of(p) == 77), signal.SIGKILL)
    _, stderr = job.communicate(timeout=120)
    assert job.returncode != 0 and not ranks_of(job.pid), (job.returncode, stderr)
    if launcher_options(b.mpiexec):  # Hydra kills the others before they can write a status
        status = b.status("run")
        assert status["state"] == "failed" and status["exit_code"] == 69 and status["suspect_rank"] == 77, (status, stderr)
    b.tool(["checkpoint", "verify", b.work / "run"])
    step = int((b.work / "run/checkpoints/latest").read_text()[5:])
    done = b.train(64, _words(b, "run", 64, 2, 128, max_steps=step + 1))
    assert "resuming from" in done.stderr, done.stderr


def ranks_256_stop_at_the_time_limit(b):
    """All ranks save and stop together. 64 ranks continue with the losses of a run without a stop."""
    _needs_plain_programs()
    settings = dict(max_steps=3, save_strategy="steps", save_steps=3, lr_scheduler_type="constant")
    b.train(256, _words(b, "run", 256, 1, time_limit=0.0001, **settings), expect=75)
    stopped = len(b.losses("run"))
    assert 1 <= stopped < 3 and (b.work / f"run/checkpoints/step_{stopped:08}").exists(), stopped
    b.train(64, _words(b, "run", 64, 3, 256, **settings))
    b.train(2, _words(b, "two", 2, 1, 256, **settings))
    close(b.losses("run"), b.losses("two"), 2e-5, "256 ranks, then 64, and 2")


def _calls(b, ranks, stage, **more):
    """{name: (calls, bytes)} of the rank that sends most, of a run of three steps on nodes of 4 ranks."""
    counted = b.work / f"calls{ranks}_{stage}"
    counted.mkdir()
    words = _words(b, f"counted{ranks}_{stage}", ranks, stage, max_steps=3, **more)
    launch = subprocess.run(b.command(ranks, words), capture_output=True, text=True, timeout=240,
                            env=dict(b.environment(), TESSERA_SIMULATED_NODES=_nodes(ranks, 4), TESSERA_MPI_CALLS=str(counted),
                                     LD_PRELOAD=str(b.bin.parent / "tests/bin/libtessera_mpi_calls.so")))
    assert launch.returncode == 0, f"exit {launch.returncode}\n{launch.stdout}\n{launch.stderr}"
    of_ranks = [[line.split() for line in file.read_text().splitlines()] for file in counted.iterdir()]
    assert len(of_ranks) == ranks
    return max(({name: (int(calls), int(sent)) for name, calls, sent in lines} for lines in of_ranks), key=lambda c: sum(sent for _, sent in c.values()))


def messages_per_rank_stay_constant(b):
    """MPI calls and their bytes per rank of a run on 8 and on 32 ranks. TESSERA_SCALE_RANKS="16,256" compares other numbers and prints a table."""
    _needs_plain_programs()
    few, many = (int(n) for n in os.environ.get("TESSERA_SCALE_RANKS", "8,32").split(","))
    for stage, choice in ((2, "flat"), (3, "two-level")):
        a, c = _calls(b, few, stage=stage, collectives=choice), _calls(b, many, stage=stage, collectives=choice)
        print(json.dumps({"stage": stage, "collectives": choice, few: a, many: c}))
        assert set(a) == set(c) and a, (a, c)
        for name in a:
            # The number differs by some calls between runs, the more the slower a run is. Growth with the ranks would be a factor of four.
            assert c[name][0] <= 2 * a[name][0] + 10, f"{name}: {a[name]} on {few} ranks, {c[name]} on {many}"
        assert sum(sent for _, sent in c.values()) <= 1.2 * sum(sent for _, sent in a.values()) + 100 * many, (a, c)
