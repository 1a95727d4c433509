#!/usr/bin/env python3
"""End-to-end scenarios: the real programs on small models. Usage: e2e.py SCENARIO --bin DIR --work DIR --source DIR --mpiexec PROGRAM

A scenario is a function below; it fails by an AssertionError. Needs nothing but Python's standard library."""
import argparse
import json
import math
import os
import pathlib
import pickle
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import zipfile

TINY = "n_embd=32,n_layer=2,n_head=2,vocab_size=4096,n_positions=64,resid_pdrop=0.0,embd_pdrop=0.0,attn_pdrop=0.0"


class Bench:
    """Where programs, sources and the scenario's own files are."""

    def __init__(self, arguments):
        self.bin = pathlib.Path(arguments.bin).resolve()
        self.work = pathlib.Path(arguments.work).resolve()
        self.source = pathlib.Path(arguments.source).resolve()
        self.mpiexec = arguments.mpiexec
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.text = self.work / "text.txt"
        self.text.write_text(corpus(4000))

    def config(self, name, document):
        path = self.work / name
        path.write_text(json.dumps(document))
        return str(path)

    def common(self, output, **flags):
        """The flags of a small training; None removes one."""
        chosen = dict(model_type="gpt2", config_overrides=TINY, tokenizer_name=str(self.source / "configs/gpt2-8m"), train_file=str(self.text),
                      block_size=32, output_dir=str(self.work / output), do_train=True, per_device_train_batch_size=8, max_steps=6,
                      learning_rate=1e-2, logging_steps=1, save_strategy="no", seed=7, train_sampling_strategy="sequential")
        chosen.update(flags)
        words = []
        for name, value in chosen.items():
            if value is True:
                words.append("--" + name)
            elif value is not None and value is not False:
                words += ["--" + name, str(value)]
        return words

    def command(self, ranks, words):
        launch = [self.mpiexec, "-n", str(ranks), "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]
        return launch + [str(self.bin / "tessera-train")] + words

    def environment(self):
        return dict(os.environ, OMP_NUM_THREADS="1", OMP_PROC_BIND="false")

    def faulty(self, faults):
        """An environment in which chosen calls fail: tests/support/faults.cpp."""
        return dict(self.environment(), TESSERA_FAULTS=faults, LD_PRELOAD=str(self.bin.parent / "tests/bin/libtessera_faults.so"))

    def train(self, ranks, words, expect=0, faults=None, **options):
        environment = self.faulty(faults) if faults else self.environment()
        done = subprocess.run(self.command(ranks, words), env=environment, capture_output=True, text=True, timeout=240, **options)
        assert done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done

    def tool(self, words, expect=0, program="tessera"):
        done = subprocess.run([str(self.bin / program)] + [str(w) for w in words], env=self.environment(), capture_output=True, text=True, timeout=120)
        assert done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{words}\n{done.stdout}\n{done.stderr}"
        return done

    def metrics(self, output):
        with open(self.work / output / "metrics.jsonl") as lines:
            return [json.loads(line) for line in lines]

    def losses(self, output):
        return [m["loss"] for m in self.metrics(output) if "loss" in m]

    def status(self, output):
        return json.loads((self.work / output / "status.json").read_text())


def corpus(lines):
    """English-like text that a small model can learn: sentences from a fixed grammar, the same on every machine."""
    subjects = ["the hacker", "a system", "the old kernel", "every user", "some daemon"]
    verbs = ["reads", "breaks", "rewrites", "forgets", "compiles"]
    objects = ["the manual", "a large file", "its own code", "the network", "nothing at all"]
    state, out = 12345, []
    for _ in range(lines):
        words = []
        for choice in (subjects, verbs, objects):
            state = (state * 1103515245 + 12345) % 2**31
            words.append(choice[(state >> 16) % len(choice)])
        out.append(" ".join(words) + ".")
    return "\n".join(out) + "\n"


def close(a, b, relative, what):
    assert len(a) == len(b) and a, f"{what}: {len(a)} and {len(b)} values"
    worst = max(abs(x - y) / max(abs(y), 1e-30) for x, y in zip(a, b))
    print(f"{what}: largest relative difference {worst:.2e}, allowed {relative:.0e}")
    assert worst <= relative, f"{what}: {worst:.3e} > {relative:.0e}\n{a}\n{b}"


def zero(stage, **more):
    return dict({"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
                 "gradient_clipping": "auto"}, **more)


def safetensors(path):
    """{name: (dtype, shape, bytes)} by the format's definition."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {n: (e["dtype"], e["shape"], data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]]) for n, e in header.items()}


# --- training ---------------------------------------------------------------------------------------------------------------------

def stages_agree(b):
    reference = None
    for stage in range(4):
        config = b.config(f"ds{stage}.json", zero(stage))
        b.train(2, b.common(f"s{stage}", per_device_train_batch_size=4, deepspeed=config))
        losses = b.losses(f"s{stage}")
        reference = reference or losses
        close(losses, reference, 1e-6, f"stage {stage} against stage 0")
    assert reference[-1] < reference[0] - 0.5, "the model learns nothing"


def rank_counts_agree(b):
    for stage in (2, 3):
        config = b.config(f"ds{stage}.json", zero(stage))
        for ranks in (1, 2, 3, 4):
            b.train(ranks, b.common(f"n{ranks}", per_device_train_batch_size=12 // ranks, deepspeed=config))
            close(b.losses(f"n{ranks}"), b.losses("n1"), 1e-6, f"stage {stage}: {ranks} ranks against one")
            if ranks > 1:
                shutil.rmtree(b.work / f"n{ranks}")
        shutil.rmtree(b.work / "n1")


def batch_layouts_agree(b):
    for sampling in ("sequential", "random"):
        for ranks, rows, accumulation in ((1, 8, 1), (2, 4, 1), (4, 1, 2), (1, 2, 4)):
            name = f"{sampling}_{ranks}_{rows}_{accumulation}"
            b.train(ranks, b.common(name, per_device_train_batch_size=rows, gradient_accumulation_steps=accumulation, train_sampling_strategy=sampling))
            close(b.losses(name), b.losses(f"{sampling}_1_8_1"), 2e-6, name)


def mixed_precision(b):
    b.train(1, b.common("fp32"))
    for dtype in ("bf16", "fp16"):
        for stage in (0, 2, 3):
            section = {"enabled": True} if dtype == "bf16" else {"enabled": True, "initial_scale_power": 12}
            config = b.config(f"{dtype}{stage}.json", zero(stage, **{dtype: section}))
            name = f"{dtype}_{stage}"
            b.train(2, b.common(name, per_device_train_batch_size=4, deepspeed=config, **{dtype: True}))
            close(b.losses(name), b.losses("fp32"), 2e-2, f"{dtype} stage {stage} against fp32")


def checkpointed_activations(b):
    for name, on in (("plain", None), ("recomputed", True)):
        b.train(2, b.common(name, per_device_train_batch_size=4, gradient_checkpointing=on, config_overrides=TINY.replace("pdrop=0.0", "pdrop=0.1")))
    assert b.losses("plain") == b.losses("recomputed"), "activation checkpointing changes the losses"


def learns(b):
    b.train(2, b.common("run", per_device_train_batch_size=4, max_steps=60, do_eval=True, eval_on_start=True, eval_strategy="steps", eval_steps=30))
    evals = [m["eval_loss"] for m in b.metrics("run") if "eval_loss" in m]
    print("evaluation losses", evals)
    assert len(evals) == 3 and evals[-1] < 2.0 < evals[0]
    results = json.loads((b.work / "run/all_results.json").read_text())
    assert math.isclose(results["perplexity"], math.exp(results["eval_loss"]), rel_tol=1e-9) and "train_loss" in results
    assert b.status("run")["state"] == "done" and b.status("run")["exit_code"] == 0
    b.tool(["plot", b.work / "run"])
    assert "<polyline" in (b.work / "run/loss.svg").read_text()


def evaluation_is_exact(b):
    values = []
    for ranks in (1, 2, 3, 4):
        b.train(ranks, b.common(f"e{ranks}", do_train=None, do_eval=True, per_device_eval_batch_size=5))
        values.append(json.loads((b.work / f"e{ranks}/eval_results.json").read_text())["eval_loss"])
    close(values, values[:1] * 4, 1e-6, "evaluation on 1, 2, 3 and 4 ranks")


def memory_follows_the_formula(b):
    for stage in range(4):
        config = b.config(f"ds{stage}.json", zero(stage, bf16={"enabled": True}))
        done = b.train(2, b.common(f"m{stage}", config_overrides=TINY.replace("n_embd=32", "n_embd=128"), per_device_train_batch_size=4,
                                   deepspeed=config, bf16=True, max_steps=1))
        assert "stage formula" in done.stderr, done.stderr


# --- checkpoints ------------------------------------------------------------------------------------------------------------------

def resume_is_bit_identical(b):
    for stage in (0, 2, 3):
        config = b.config("ds.json", zero(stage))
        dropout = TINY.replace("pdrop=0.0", "pdrop=0.1")
        whole = b.common("whole", max_steps=8, save_strategy="steps", save_steps=4, per_device_train_batch_size=4, deepspeed=config,
                         config_overrides=dropout, train_sampling_strategy="random")
        b.train(2, whole)
        shutil.copytree(b.work / "whole", b.work / "again")
        shutil.rmtree(b.work / "again/checkpoints/step_00000008")
        words = [w.replace(str(b.work / "whole"), str(b.work / "again")) for w in whole]
        done = b.train(2, words)
        assert "step_00000004" in done.stderr, done.stderr
        assert b.losses("again") == b.losses("whole"), f"stage {stage}: losses differ after the resume"
        first, second = (safetensors(b.work / d / "model.safetensors") for d in ("whole", "again"))
        assert first == second, f"stage {stage}: weights differ after the resume"
        shutil.rmtree(b.work / "whole")
        shutil.rmtree(b.work / "again")


def background_saves_change_nothing(b):
    """Losses, checkpoints and model are bitwise equal for synchronous saves and saves in the background."""
    manifests = {}
    for stage, extra in ((0, {}), (2, {"bf16": True}), (3, {})):
        config = b.config("ds.json", zero(stage, **({"bf16": {"enabled": True}} if extra else {})))
        for mode in ("off", "on"):
            name = f"{mode}{stage}"
            b.train(2, b.common(name, max_steps=12, save_strategy="steps", save_steps=4, per_device_train_batch_size=4, deepspeed=config, async_save=mode, **extra))
            manifests[mode] = [json.loads((b.work / name / f"checkpoints/step_{step:08}/manifest.json").read_text()) for step in (4, 8, 12)]
            save = b.status(name)["save"]
            assert save["state"] == "done" and save["step"] == 12 and 0 < save["stall_seconds"] <= save["seconds"], save
            records = [m for m in b.metrics(name) if "checkpoint" in m]
            assert [m["step"] for m in records] == [4, 8, 12] and all(m["save_bytes"] > 4 * 100_000 for m in records), records
        assert b.losses(f"on{stage}") == b.losses(f"off{stage}"), f"stage {stage}: saves in the background change the losses"
        for on, off in zip(manifests["on"], manifests["off"]):
            for field in ("step", "tensors", "shards", "trainer_state", "tokens_seen"):
                assert on[field] == off[field], f"stage {stage}, step {on['step']}: {field} differs"
        assert safetensors(b.work / f"on{stage}/model.safetensors") == safetensors(b.work / f"off{stage}/model.safetensors")


def damage(b, run, step, kind, rank=1):
    """Flips a bit of, cuts, or removes a shard. Returns its name."""
    directory = b.work / run / f"checkpoints/step_{step:08}"
    shard = directory / f"shard_{rank:05}.h5"
    if kind == "removed":
        shard.unlink()
    elif kind == "truncated":
        os.truncate(shard, shard.stat().st_size - 100)
    else:
        piece = next(p for t in json.loads((directory / "manifest.json").read_text())["tensors"] for p in t["pieces"] if p["shard"] == rank)
        data = bytearray(shard.read_bytes())
        data[piece["file_offsets"][1] + 7] ^= 16
        shard.write_bytes(data)
    return shard.name


def resume_passes_over_damage(b):
    """`auto` resumes from the newest complete checkpoint, even if only reading finds the damage; a damaged one that is named is an error."""
    words = b.common("run", max_steps=9, save_strategy="steps", save_steps=3, per_device_train_batch_size=4)
    b.train(2, words)
    losses = b.losses("run")
    for step, kind, given in ((9, "flipped", "9"), (6, "truncated", str(b.work / "run/checkpoints/step_00000006"))):
        shard = damage(b, "run", step, kind)
        refused(b, 65, words + ["--resume_from_checkpoint", given], shard, f"step_{step:08}")
    done = b.train(2, words + ["--resume_from_checkpoint", "auto"])
    assert "step_00000009 is damaged" in done.stderr and "exp_avg of tensor" in done.stderr, done.stderr
    assert "resuming from" in done.stderr and "step_00000003" in done.stderr, done.stderr
    assert b.losses("run") == losses, "losses differ after going on from an older checkpoint"
    b.tool(["checkpoint", "verify", b.work / "run"])
    damage(b, "run", 9, "removed", rank=0)
    done = b.train(2, words + ["--resume_from_checkpoint", "true"])
    assert "`latest` names step_00000009, which is not complete" in done.stderr and "shard_00000.h5" in done.stderr, done.stderr
    assert b.losses("run") == losses
    for step in (3, 6, 9):
        damage(b, "run", step, "flipped")
    refused(b, 65, words, "there is no other complete checkpoint", "shard_00001.h5")
    refused(b, 74, words + ["--resume_from_checkpoint", "4"], "step_00000004")
    refused(b, 65, b.common("run", config_overrides=TINY.replace("n_embd=32", "n_embd=64")), "another model")


def a_run_keeps_its_name(b):
    words = b.common("run", max_steps=4, save_strategy="steps", save_steps=2, per_device_train_batch_size=4, deepspeed=b.config("ds.json", zero(2)))
    b.train(2, words)
    manifest = lambda run, step: json.loads((b.work / run / f"checkpoints/step_{step:08}/manifest.json").read_text())
    first = manifest("run", 4)
    assert len(first["run_id"]) > 20 and b.status("run")["run_id"] == first["run_id"], first["run_id"]
    assert first["resolved_config"]["arguments"]["max_steps"] == {"value": 4, "origin": "flag"}
    assert first["resolved_config"]["engine"]["stage"]["value"] == 2 and first["resolved_config"]["deepspeed"]["zero_optimization"] == {"stage": 2}
    state = first["trainer_state"]
    assert state["random"]["seed"] == 7 and state["data"]["rounds_done"] == 4 and state["schedule"]["total_steps"] == 4, state
    words[words.index("--max_steps") + 1] = "6"
    b.train(2, words)
    assert manifest("run", 6)["run_id"] == first["run_id"]
    assert b.status("run")["resumed_from"]["step"] == 4
    b.train(2, b.common("other", max_steps=6, save_strategy="steps", save_steps=3, per_device_train_batch_size=4,
                        resume_from_checkpoint=str(b.work / "run/checkpoints/step_00000002")))
    other = manifest("other", 6)
    assert other["run_id"] != first["run_id"] and other["trainer_state"]["resumed_from"]["run_id"] == first["run_id"]
    b.train(2, b.common("other", max_steps=2, save_strategy="steps", save_steps=2, per_device_train_batch_size=4, overwrite_output_dir=True))
    assert manifest("other", 2)["run_id"] not in (first["run_id"], other["run_id"])


def one_job_at_a_time(b):
    words = b.common("run", max_steps=100000, save_strategy="steps", save_steps=5, per_device_train_batch_size=1)
    started = subprocess.Popen(b.command(2, words), env=b.environment(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (b.work / "run/checkpoints/latest").exists(), 60)
    refused(b, 64, words, "in use by process", str(b.work / "run"), "--output_dir")
    status = b.status("run")
    assert status["state"] in ("running", "saving") and "exit_code" not in status, status
    for pid in ranks_of(started.pid):
        os.kill(pid, signal.SIGKILL)
    started.communicate(timeout=60)
    assert (b.work / "run/.lock").exists()
    words[words.index("--max_steps") + 1] = str(b.metrics("run")[-1]["step"] + 5)
    done = b.train(2, words)
    assert "the previous job" in done.stderr and not (b.work / "run/.lock").exists(), done.stderr


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


def model_files_while_training(b):
    """stage3_gather_16bit_weights_on_model_save writes the 16-bit model next to the shards, save_only_model in place of them."""
    config = b.config("ds.json", {**zero(3, bf16={"enabled": True}), "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}})
    settings = dict(max_steps=6, save_strategy="steps", save_steps=2, per_device_train_batch_size=4, bf16=True)
    b.train(2, b.common("beside", deepspeed=config, **settings))
    step = lambda run, number: b.work / run / f"checkpoints/step_{number:08}"
    for number in (2, 6):
        b.tool(["export", b.work / "beside", b.work / f"export{number}", "--tag", number, "--dtype", "bf16"])
        assert safetensors(step("beside", number) / "model.safetensors") == safetensors(b.work / f"export{number}/model.safetensors")
        assert json.loads((step("beside", number) / "config.json").read_text()).get("torch_dtype", "bfloat16") == "bfloat16"
        b.tool(["checkpoint", "verify", step("beside", number)])
    assert safetensors(b.work / "beside/model.safetensors") == safetensors(step("beside", 6) / "model.safetensors")
    alone = b.common("alone", save_only_model=True, save_total_limit=2, deepspeed=b.config("plain.json", zero(3, bf16={"enabled": True})), **settings)
    b.train(2, alone)
    assert sorted(p.name for p in (b.work / "alone/checkpoints").iterdir()) == ["step_00000004", "step_00000006"]
    names = sorted(p.name for p in step("alone", 4).iterdir())
    assert "model.safetensors" in names and "config.json" in names and "tokenizer.json" in names and not [n for n in names if "shard" in n or "manifest" in n], names
    assert safetensors(step("alone", 6) / "model.safetensors") == safetensors(step("beside", 6) / "model.safetensors")
    assert safetensors(b.work / "alone/model.safetensors")["transformer.wte.weight"][0] == "F32"
    evaluate = dict(model_type=None, config_overrides=None, do_train=None, do_eval=True, tokenizer_name=None)
    b.train(2, b.common("evaluated", model_name_or_path=str(step("alone", 6)), **evaluate))
    refused(b, 65, alone + ["--resume_from_checkpoint", str(step("alone", 4))], "--save_only_model", "--model_name_or_path")
    refused(b, 65, alone + ["--resume_from_checkpoint", "6"], "--save_only_model")
    refused(b, 64, alone, "--save_only_model")


def resume_on_other_ranks(b):
    b.train(1, b.common("whole", max_steps=8, per_device_train_batch_size=12))
    for ranks, stage, later_ranks, later_stage in ((2, 2, 3, 3), (4, 3, 1, 0), (3, 1, 2, 2)):
        words = dict(max_steps=8, save_strategy="steps", save_steps=4)
        name = f"r{ranks}{stage}{later_ranks}{later_stage}"
        b.train(ranks, b.common(name, per_device_train_batch_size=12 // ranks, deepspeed=b.config("a.json", zero(stage)), **words))
        shutil.rmtree(b.work / name / "checkpoints/step_00000008")
        b.train(later_ranks, b.common(name, per_device_train_batch_size=12 // later_ranks, deepspeed=b.config("b.json", zero(later_stage)), **words))
        close(b.losses(name), b.losses("whole"), 1e-6, name)


def sgd_resumes_on_other_ranks(b):
    """SGD keeps one state with momentum and none without; checkpoints hold them by name."""
    for name, rate, params, states in (("momentum", 0.05, {"momentum": 0.9, "nesterov": True}, ["fp32", "momentum_buffer"]),
                                       ("plain", 0.3, {"weight_decay": 0.01}, ["fp32"])):
        sgd = {"optimizer": {"type": "SGD", "params": {"lr": "auto", **params}}}
        words = dict(max_steps=6, learning_rate=rate, save_strategy="steps", save_steps=3)
        b.train(1, b.common(f"{name}_full", max_steps=6, learning_rate=rate, per_device_train_batch_size=12, deepspeed=b.config("full.json", zero(0, **sgd))))
        b.train(2, b.common(name, per_device_train_batch_size=6, deepspeed=b.config("first.json", zero(1, **sgd)), **words))
        manifest = json.loads((b.work / name / "checkpoints/step_00000003/manifest.json").read_text())
        assert manifest["states"] == states, manifest["states"]
        b.tool(["checkpoint", "verify", str(b.work / name / "checkpoints/step_00000003")])
        shutil.rmtree(b.work / name / "checkpoints/step_00000006")
        refused(b, 78, b.common(name, per_device_train_batch_size=6, max_steps=6), "exp_avg_sq", "resume with the checkpoint's optimizer")
        b.train(1, b.common(name, per_device_train_batch_size=12, deepspeed=b.config("second.json", zero(3, **sgd)), **words))
        close(b.losses(name), b.losses(f"{name}_full"), 1e-6, name)
        assert b.losses(name)[-1] < b.losses(name)[0], "the model learns nothing"


def shared_shard_files(b):
    """One file per rank, per two ranks, per node: each gives the same model, and training resumes from each on other rank counts."""
    models = []
    for per_file, files in ((None, 3), (2, 2), ("node", 1)):
        name, words = f"files-{per_file}", dict(max_steps=4, save_strategy="steps", save_steps=2, checkpoint_ranks_per_file=per_file)
        b.train(3, b.common(name, per_device_train_batch_size=4, deepspeed=b.config("a.json", zero(2)), **words))
        step = b.work / name / "checkpoints/step_00000002"
        assert len(list(step.glob("shard_*.h5"))) == files, sorted(step.iterdir())
        b.tool(["checkpoint", "verify", step])
        b.tool([step, b.work / f"{name}.safetensors"], program="zero-to-fp32")
        models.append((b.work / f"{name}.safetensors").read_bytes())
        whole = b.losses(name)
        shutil.rmtree(b.work / name / "checkpoints/step_00000004")
        b.train(2, b.common(name, per_device_train_batch_size=6, deepspeed=b.config("b.json", zero(3)), **words))
        close(b.losses(name), whole, 1e-6, name)
    assert models[0] == models[1] == models[2]
    b.tool(["checkpoint", "convert", b.work / "files-2", b.work / "converted", "--tag", "2", "--ranks", 5, "--ranks-per-file", 2, "--compress", "gzip"])
    assert len(list((b.work / "converted").glob("shard_*.h5"))) == 3
    b.tool(["checkpoint", "convert", b.work / "files-2", b.work / "converted"], expect=64)
    b.tool([b.work / "converted", b.work / "converted.safetensors"], program="zero-to-fp32")
    assert (b.work / "converted.safetensors").read_bytes() == models[0]
    b.train(2, b.common("again", per_device_train_batch_size=6, max_steps=4, resume_from_checkpoint=str(b.work / "converted")))
    close(b.losses("again"), whole[2:], 1e-6, "from the converted checkpoint")
    done = b.train(1, b.common("wrong", checkpoint_ranks_per_file="nodes"), expect=64)
    assert "a number of ranks from 1, or node" in done.stderr, done.stderr


def stop_and_go_on(b):
    b.train(2, b.common("whole", max_steps=400, per_device_train_batch_size=4))
    words = b.common("stopped", max_steps=400, per_device_train_batch_size=4)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        started = subprocess.Popen(b.command(2, words), env=b.environment(), stderr=subprocess.PIPE, text=True)
        wait_for(lambda: (b.work / "stopped/metrics.jsonl").exists() and len(b.losses("stopped")) > 3 + seen(b), 60)
        for pid in ranks_of(started.pid):
            os.kill(pid, number)
        _, stderr = started.communicate(timeout=60)
        assert started.returncode == 75, f"exit {started.returncode} after {number}\n{stderr}"
        status = b.status("stopped")
        assert status["state"] == "stopped_early" and status["exit_code"] == 75 and signal.Signals(number).name in status["reason"], status
        b.stopped_at = status["step"]
    b.train(2, words)
    assert b.losses("stopped") == b.losses("whole"), "losses differ after three stops"


def seen(b):
    return getattr(b, "stopped_at", 0)


def ranks_of(launcher):
    """Process ids of tessera-train below an mpiexec."""
    out = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                name, parent = stat[stat.index("(") + 1:stat.rindex(")")], int(stat[stat.rindex(")") + 2:].split()[1])
            except (OSError, ValueError):
                continue
            if parent == launcher and name.startswith("tessera-train"):
                out.append(int(entry.name))
    return sorted(out)


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def second_start_does_nothing(b):
    words = b.common("run", save_strategy="steps", save_steps=3)
    b.train(2, words)
    before = b.losses("run")
    done = b.train(2, words)
    assert "are already done" in done.stderr and b.losses("run") == before, done.stderr


def consolidation(b):
    b.train(3, b.common("run", per_device_train_batch_size=2, save_strategy="steps", save_steps=3))
    for suffix in ("safetensors", "bin", "h5"):
        b.tool([b.work / "run", b.work / f"all.{suffix}"], program="zero-to-fp32")
        assert (b.work / f"all.{suffix}").stat().st_size > 4 * 100_000
    b.tool([b.work / "run", b.work / "early", "--tag", "step_00000003", "--max_shard_size", "200KB"], program="zero-to-fp32")
    assert (b.work / "early/model.safetensors.index.json").exists()
    whole, model = safetensors(b.work / "all.safetensors"), safetensors(b.work / "run/model.safetensors")
    assert whole == model and whole["transformer.wte.weight"][:2] == ("F32", [4096, 32])
    listed = b.tool(["checkpoint", "ls", b.work / "run"]).stdout
    assert "step_00000003" in listed and "step_00000006" in listed and "latest" in listed, listed
    b.tool(["checkpoint", "verify", b.work / "run"])
    assert "structure only" in b.tool(["checkpoint", "verify", b.work / "run", "--quick"]).stdout
    assert json.loads(b.tool(["checkpoint", "info", b.work / "run", "--json"]).stdout)["step"] == 6
    same = json.loads(b.tool(["checkpoint", "diff", b.work / "run", b.work / "all.safetensors", "--tolerance", "0", "--json"]).stdout)
    assert same["max"] == 0 and len(same["tensors"]) == len(whole), same["max"]
    b.tool(["checkpoint", "diff", b.work / "run", b.work / "run", "--tag_b", "3"])
    b.tool(["checkpoint", "diff", b.work / "run", b.work / "run", "--tag_b", "3", "--tolerance", "1e-9"], expect=65)
    b.tool(["checkpoint", "prune", b.work / "run"], expect=64)
    assert "would be removed" in b.tool(["checkpoint", "prune", b.work / "run", "--keep", "1", "--dry-run"]).stdout
    assert (b.work / "run/checkpoints/step_00000003").exists()
    b.tool(["checkpoint", "prune", b.work / "run", "--keep", "1"])
    assert not (b.work / "run/checkpoints/step_00000003").exists() and (b.work / "run/checkpoints/step_00000006").exists()
    step = b.work / "run/checkpoints/step_00000006"
    piece = json.loads((step / "manifest.json").read_text())["tensors"][0]["pieces"][1]
    shard = step / "shard_00001.h5"
    data = bytearray(shard.read_bytes())
    data[piece["file_offsets"][0] + 40] ^= 1
    shard.write_bytes(data)
    assert "shard_00001.h5" in b.tool(["checkpoint", "verify", b.work / "run"], expect=65).stderr
    b.tool([b.work / "run", b.work / "bad.safetensors"], expect=65, program="zero-to-fp32")
    assert not (b.work / "bad.safetensors").exists()
    b.tool([b.work / "nowhere", b.work / "x.bin"], expect=74, program="zero-to-fp32")


def huggingface_round_trip(b):
    b.train(2, b.common("run", per_device_train_batch_size=4, max_steps=20))
    evaluate = dict(model_type=None, config_overrides=None, do_train=None, do_eval=True)
    b.train(2, b.common("eval", model_name_or_path=str(b.work / "run"), tokenizer_name=None, **evaluate))
    b.tool([b.work / "run/config.json", "x"], expect=74, program="zero-to-fp32")
    trained = b.losses("run")[-1]
    loss = json.loads((b.work / "eval/eval_results.json").read_text())["eval_loss"]
    assert abs(loss - trained) < 0.5, (loss, trained)
    config = json.loads((b.work / "run/config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["n_embd"] == 32


def generation(b):
    words = b.common("run", max_steps=80, do_generate=True, prompt="the hacker", max_new_tokens=12, temperature=0, deepspeed=b.config("ds.json", zero(3)))
    texts = [b.train(ranks, words + ["--overwrite_output_dir"]).stdout for ranks in (1, 2)]
    print(texts)
    assert texts[0].startswith("the hacker ") and any(v in texts[0] for v in ("reads", "breaks", "rewrites", "forgets", "compiles"))


def printed_config(b):
    done = b.train(2, b.common("none", deepspeed=b.config("ds.json", zero(2)), per_device_train_batch_size=4) + ["--print_config"])
    shown = json.loads(done.stdout)
    assert shown["stage"] == {"value": 2, "origin": "deepspeed"} and shown["train_batch_size"]["value"] == 8, shown
    assert not (b.work / "none").exists(), "printing the configuration makes an output directory"


def log_files(b):
    b.train(2, b.common("run", log_dir=str(b.work / "logs"), per_device_train_batch_size=4))
    assert sorted(p.name for p in (b.work / "logs").iterdir()) == ["rank_00000.log", "rank_00001.log"]
    assert "ZeRO stage 0 on 2 ranks" in (b.work / "logs/rank_00000.log").read_text()
    done = b.train(1, b.common("none", log_dir=str(b.work / "text.txt")), expect=74)
    assert "--log_dir" in done.stderr and not (b.work / "none/metrics.jsonl").exists(), done.stderr


def run_file(b):
    document = dict(model_type="gpt2", config_overrides=TINY, tokenizer_name=str(b.source / "configs/gpt2-8m"), train_file=str(b.text), block_size=32,
                    output_dir=str(b.work / "file"), do_train=True, per_device_train_batch_size=8, max_steps=3, learning_rate=1e-2, seed=7,
                    save_strategy="no", train_sampling_strategy="sequential", deepspeed=zero(1))
    b.train(1, [b.config("run.json", document)])
    b.train(1, b.common("flags", max_steps=3, deepspeed=b.config("ds.json", zero(1))))
    assert b.losses("file") == b.losses("flags")
    b.train(1, [b.config("run.json", document), "--max-steps", "2", "--output-dir=" + str(b.work / "override")])
    assert len(b.losses("override")) == 2


# --- other programs' files --------------------------------------------------------------------------------------------------------

def goes_on(b, case, ranks, stage, **more):
    """Imports one of DeepSpeed's checkpoints and trains on with its data; the stored losses are those of DeepSpeed going on itself."""
    data = b.source / "tests/checkpoint/data/deepspeed"
    expected = json.loads((data / case / "expected.json").read_text())
    config = json.loads((data / case / "ds_config.json").read_text())
    config["train_micro_batch_size_per_gpu"] = 6 // ranks
    config["zero_optimization"] = {"stage": stage}
    run = f"{case}_{ranks}_{stage}"
    done = b.tool(["import", data / case, b.work / run / "checkpoints"])
    assert "step 3" in done.stdout, done.stdout
    b.tool(["checkpoint", "verify", b.work / run])
    b.train(ranks, b.common(run, model_type=None, config_overrides=None, config_name=str(data / case), train_file=str(data / "text.txt"), validation_file=str(data / "text.txt"),
                            tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow"), block_size=16, max_steps=5, keep_linebreaks="false",
                            per_device_train_batch_size=6 // ranks, learning_rate=5e-3, adam_beta2=0.95, weight_decay=0.01,
                            lr_scheduler_type="constant", deepspeed=b.config(f"{run}.json", config), **more))
    losses = [m["loss"] for m in b.metrics(run) if "loss" in m and m["step"] > 3]
    return losses, expected["losses_after"]


def imported_training_goes_on(b):
    for case, ranks, stage in (("z0_w2", 1, 2), ("z1_w1", 1, 1), ("z1_w1", 2, 3), ("z3_w3", 3, 3), ("z3_w3", 1, 0), ("z2_w2_elastic", 2, 2), ("universal_z3", 2, 2)):
        losses, expected = goes_on(b, case, ranks, stage)
        close(losses, expected, 1e-5, f"{case} on {ranks} ranks in stage {stage} against DeepSpeed going on")


def imported_mixed_precision_goes_on(b):
    losses, expected = goes_on(b, "z2_w2_fp16", 2, 2, fp16=True)
    close(losses, expected, 2e-5, "fp16 against DeepSpeed going on")
    losses, expected = goes_on(b, "universal_z2", 1, 0, fp16=True)
    close(losses, expected, 2e-5, "fp16 from the universal form against DeepSpeed going on")
    losses, expected = goes_on(b, "z2_w2_aligned", 2, 2, bf16=True)
    close(losses, expected, 2e-4, "bf16 against DeepSpeed going on")


def exported_models_load(b):
    data = b.source / "tests/checkpoint/data/deepspeed"
    b.train(1, b.common("run", max_steps=3, save_strategy="steps", save_steps=3))
    b.tool(["export", b.work / "run", b.work / "bf16", "--dtype", "bf16", "--max_shard_size", "200KB"])
    config = json.loads((b.work / "bf16/config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16", config
    assert (b.work / "bf16/tokenizer.json").exists() and (b.work / "bf16/model.safetensors.index.json").exists()
    evaluate = dict(model_type=None, config_overrides=None, do_train=None, do_eval=True, tokenizer_name=None)
    losses = []
    for name in ("run", "bf16"):
        b.train(2, b.common(f"eval_{name}", model_name_or_path=str(b.work / name), **evaluate))
        losses.append(json.loads((b.work / f"eval_{name}/eval_results.json").read_text())["eval_loss"])
    close(losses[1:], losses[:1], 1e-2, "bf16 weights against fp32 weights")
    b.tool(["import", data / "bin_model", b.work / "imported"])
    b.tool(["export", b.work / "imported", b.work / "from_bin"])
    losses = []
    evaluate.update(tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow"), train_file=str(data / "text.txt"), block_size=16)
    for model in (data / "bin_model", b.work / "from_bin"):
        b.train(2, b.common(f"eval_{model.name}", model_name_or_path=str(model), **evaluate))
        losses.append(json.loads((b.work / f"eval_{model.name}/eval_results.json").read_text())["eval_loss"])
    assert losses[0] == losses[1], "pytorch_model.bin and the safetensors made of it differ"
    b.tool(["zero-to-fp32", data / "z3_w2_bf16", b.work / "weights", "--tag", "step3", "--exclude_frozen_parameters", "--safe_serialization", "--debug"])
    assert len(safetensors(b.work / "weights/model.safetensors")) == 14


class Evil:
    """Unpickled by Python, this makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def hostile_pickles(b):
    marker = b.work / "it_ran"
    model = b.work / "model"
    model.mkdir()
    shutil.copy(b.source / "tests/checkpoint/data/deepspeed/bin_model/config.json", model)
    for payload in (Evil(marker), {"transformer.wte.weight": Evil(marker)}):
        with zipfile.ZipFile(model / "pytorch_model.bin", "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(payload, protocol=2))
        refused(b, 65, b.common("x", model_type=None, config_overrides=None, model_name_or_path=str(model), overwrite_output_dir=True,
                                tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow")), "pytorch_model.bin")
        b.tool(["import", model, b.work / "checkpoints"], expect=65)
    assert not marker.exists(), "a pickle ran a command"
    with zipfile.ZipFile(model / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
    assert "compressed" in b.tool(["import", model, b.work / "checkpoints"], expect=65).stderr
    b.tool(["import", b.work / "nowhere", b.work / "checkpoints"], expect=74)
    assert not (b.work / "checkpoints/latest").exists()


# --- errors -----------------------------------------------------------------------------------------------------------------------

def refused(b, code, words, *parts):
    done = b.train(2, words, expect=code)
    for part in parts:
        assert part in done.stderr, f"'{part}' is not said:\n{done.stderr}"


def wrong_arguments(b):
    refused(b, 64, b.common("x") + ["--learning_rat", "1"], "learning_rat", "learning_rate")
    refused(b, 64, b.common("x", learning_rate="fast"), "fast")
    refused(b, 64, b.common("x", per_device_train_batch_size=-1), "-1")
    refused(b, 64, b.common("x", model_type=None, config_overrides=None), "--model_name_or_path")
    refused(b, 64, b.common("x", tokenizer_name=None), "--tokenizer_name")
    assert not (b.work / "x/checkpoints").exists()


def wrong_files(b):
    refused(b, 74, b.common("x", train_file=str(b.work / "missing.txt")), "missing.txt")
    short = b.work / "short.txt"
    short.write_text("too short\n")
    refused(b, 65, b.common("x", train_file=str(short), overwrite_output_dir=True), "block")
    refused(b, 74, b.common("x", tokenizer_name=str(b.work / "no_tokenizer"), overwrite_output_dir=True), "no_tokenizer")
    broken = b.work / "broken"
    broken.mkdir()
    (broken / "tokenizer.json").write_text('{"model": ')
    refused(b, 65, b.common("x", tokenizer_name=str(broken), overwrite_output_dir=True), "tokenizer.json")
    refused(b, 74, b.common("x", model_type=None, config_overrides=None, config_name=str(b.work / "no_config"), overwrite_output_dir=True), "no_config")
    refused(b, 74, b.common("x", deepspeed=str(b.work / "no_ds.json"), overwrite_output_dir=True), "no_ds.json")
    if os.geteuid() != 0:
        (b.work / "locked").mkdir(mode=0o500)
        refused(b, 74, b.common("locked/x"), "locked")
    refused(b, 74, b.common("text.txt/x"), "text.txt")
    model = b.work / "model"
    b.train(1, b.common("model", max_steps=1))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(dict(config, n_embd=64)))
    refused(b, 65, b.common("x", model_type=None, config_overrides=None, model_name_or_path=str(model), overwrite_output_dir=True), "wte", "64")
    tensors = bytearray((model / "model.safetensors").read_bytes())
    (model / "config.json").write_text(json.dumps(config))
    (model / "model.safetensors").write_bytes(tensors[:len(tensors) // 2])
    refused(b, 65, b.common("x", model_type=None, config_overrides=None, model_name_or_path=str(model), overwrite_output_dir=True), "model.safetensors")


def wrong_configurations(b):
    refused(b, 65, b.common("x", config_overrides=TINY.replace("vocab_size=4096", "vocab_size=500")), "500")
    refused(b, 78, b.common("x", config_overrides=TINY.replace("n_head=2", "n_head=5"), overwrite_output_dir=True), "n_head")
    refused(b, 78, b.common("x", deepspeed=b.config("a.json", zero(2, gradient_cliping=1.0)), overwrite_output_dir=True), "gradient_cliping", "gradient_clipping")
    refused(b, 78, b.common("x", deepspeed=b.config("b.json", zero(2, train_batch_size=17)), overwrite_output_dir=True), "17")
    refused(b, 78, b.common("x", deepspeed=b.config("c.json", zero(7)), overwrite_output_dir=True), "7")
    broken = b.work / "broken.json"
    broken.write_text('{"zero_optimization": {')
    refused(b, 65, b.common("x", deepspeed=str(broken), overwrite_output_dir=True), "broken.json")
    refused(b, 78, b.common("x", block_size=100, overwrite_output_dir=True), "100", "64")


def occupied_directory(b):
    occupied = b.work / "occupied"
    occupied.mkdir()
    (occupied / "thesis.txt").write_text("mine")
    refused(b, 64, b.common("occupied"), "occupied", "--overwrite_output_dir")
    b.train(1, b.common("occupied", overwrite_output_dir=True))
    assert (occupied / "thesis.txt").read_text() == "mine"


def diverging_loss(b):
    words = b.common("run", learning_rate=1e30, max_grad_norm=0, max_steps=12, save_strategy="steps", save_steps=1)
    done = b.train(2, words, expect=78)
    assert "diverged" in done.stderr and "learning_rate" in done.stderr, done.stderr
    status = b.status("run")
    assert status["state"] == "failed" and status["exit_code"] == 78
    b.tool(["checkpoint", "verify", b.work / "run"])


def out_of_memory(b):
    refused(b, 70, b.common("x", config_overrides=TINY.replace("n_embd=32", "n_embd=65536").replace("n_layer=2", "n_layer=96")), "bytes", "ZeRO stage")


def full_disk(b):
    """A file system of its own that is too small for the second checkpoint; needs the right to mount."""
    may_mount = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(b.work)], capture_output=True, text=True)
    if may_mount.returncode != 0:
        print(f"SKIPPED: a file system of its own cannot be mounted here ({may_mount.stderr.strip()}); checkpoint.interrupted and failing_disk cover failing writes")
        raise SystemExit(77)
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
        rank_pid = next(p for p in pids if f"OMPI_COMM_WORLD_RANK={victim}\0".encode() in pathlib.Path(f"/proc/{p}/environ").read_bytes())
        killed = time.monotonic()
        os.kill(rank_pid, signal.SIGKILL)
        _, stderr = started.communicate(timeout=60)
        seconds = time.monotonic() - killed
        print(f"rank {victim} killed: the job ended {seconds:.1f} s later with {started.returncode}")
        assert seconds < 30 and started.returncode != 0
        status = b.status(name)
        assert status["state"] == "failed" and status["exit_code"] == 69 and status["suspect_rank"] == victim, status
        b.tool(["checkpoint", "verify", b.work / name])


def help_texts(b):
    text = b.tool(["--help"], program="tessera-train").stdout
    for name in ("--per_device_train_batch_size", "--deepspeed", "--resume_from_checkpoint", "--block_size"):
        assert name in text, f"{name} is not in --help"
    assert max(len(line) for line in text.splitlines()) <= 110
    for program, words in (("tessera", ["--help"]), ("zero-to-fp32", ["--help"]), ("tessera", ["checkpoint", "--help"]), ("tessera-train", ["--version"])):
        assert len(b.tool(words, program=program).stdout) > 40
    b.tool(["checkpoint", "list"], expect=64)
    b.tool([], expect=64)
    b.tool(["onlyone"], expect=64, program="zero-to-fp32")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario")
    for name in ("bin", "work", "source", "mpiexec"):
        parser.add_argument("--" + name, required=True)
    arguments = parser.parse_args()
    scenario = globals()[arguments.scenario]
    scenario(Bench(arguments))
    print(f"{arguments.scenario}: holds")


if __name__ == "__main__":
    sys.exit(main())
