"""Saving, stopping and resuming."""
import json
import os
import shutil
import signal
import subprocess

from support import TINY, close, zero, safetensors, seen, ranks_of, wait_for, damage, refused


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


def resume_skips_damaged_checkpoints(b):
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


def stop_and_resume(b):
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


def a_stopped_evaluation_is_repeated(b):
    """A stop in the evaluation after a step saves the step; the resume begins with that evaluation, so that none is missing, and the best one is found."""
    long_text, log = b.work / "validation.txt", b.work / "log"
    long_text.write_text(b.text.read_text() * 12)
    settings = dict(max_steps=8, validation_file=str(long_text), do_eval=True, eval_strategy="steps", eval_steps=4, per_device_eval_batch_size=1,
                    load_best_model_at_end=True, save_strategy="steps", save_steps=4)
    b.train(2, b.common("whole", **settings))
    words = b.common("stopped", **settings)
    for sign in ("step 4/8  loss", "resuming from"):  # the second stop is in the repeated evaluation
        with open(log, "w") as out:
            started = subprocess.Popen(b.command(2, words), env=b.environment(), stderr=out)
        wait_for(lambda: sign in log.read_text(), 60)
        for pid in ranks_of(started.pid):
            os.kill(pid, signal.SIGTERM)
        assert started.wait(timeout=60) == 75 and b.status("stopped")["step"] == 4, log.read_text()
        assert not any("eval_loss" in m for m in b.metrics("stopped")), log.read_text()
    b.train(2, words)
    for numbers in (b.losses, lambda name: [(m["step"], m["eval_loss"]) for m in b.metrics(name) if "eval_loss" in m]):
        assert numbers("stopped") == numbers("whole"), (numbers("stopped"), numbers("whole"))
    assert (b.work / "stopped/model.safetensors").read_bytes() == (b.work / "whole/model.safetensors").read_bytes()


def second_start_does_nothing(b):
    words = b.common("run", save_strategy="steps", save_steps=3)
    b.train(2, words)
    before = b.losses("run")
    done = b.train(2, words)
    assert "are already done" in done.stderr and b.losses("run") == before, done.stderr
