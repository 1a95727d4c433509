"""--auto_tune and DeepSpeed's autotuning block."""
import json
import re

FAST = {"enabled": True, "start_profile_step": 2, "end_profile_step": 3, "tuner_num_trials": 4}


def auto_tune_searches_then_trains(b):
    """The search keeps the batch of a step, its files say what ran, and the training uses the fastest."""
    ds = b.config("ds.json", {"autotuning": FAST, "zero_optimization": {"stage": 2}})
    run = b.common("run", per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=2, learning_rate=1e-3, deepspeed=ds,
                   save_strategy="steps", save_steps=2)
    done = b.train(2, run)
    out = b.work / "run"
    tuning, tuned = (json.loads((out / name).read_text()) for name in ("tuning.json", "tuned.json"))
    best = tuning["best"]
    assert "fastest: stage 2" in done.stderr and f"{best['per_device_train_batch_size']} x" in done.stderr, done.stderr
    assert {t["stage"] for t in tuning["trials"]} == {2}, tuning
    assert best["per_device_train_batch_size"] * best["gradient_accumulation_steps"] == 8, best
    assert len(b.losses("run")) == 2, "it trains"
    # the run file repeats that training without a search
    (b.work / "tuned.run.json").write_text(json.dumps(dict(tuned, output_dir=str(b.work / "again"))))
    again = b.train(2, [b.work / "tuned.run.json"])
    assert "auto_tune: " not in again.stderr, again.stderr
    assert not (b.work / "again/tuning.json").exists()
    assert b.losses("again") == b.losses("run")
    # a search is repeated by the same command, but not where the run resumes
    more = b.train(2, [*run, "--max_steps", "4"])
    assert "tuning.json has stage 2" in more.stderr, more.stderr
    assert len(b.losses("run")) == 4


def auto_tune_without_training_only_searches(b):
    run = b.common("run", do_train=None, max_steps=2, deepspeed=b.config("ds.json", {"autotuning": dict(FAST, tuner_num_trials=2)}))
    b.train(1, [*run, "--auto_tune"])
    assert b.status("run")["state"] == "done"
    assert not (b.work / "run/checkpoints").exists() and not (b.work / "run/model.safetensors").exists()
    assert (b.work / "run/tuned.json").exists()
    # DeepSpeed's launcher
    done = b.tool(["launch", "--dry-run", "--num_gpus", "2", "--autotuning", "tune", "run_clm.py", "--do_train"])
    assert "--do_train --auto_tune --do_train false" in done.stderr, done.stderr
    b.tool(["launch", "--dry-run", "--autotuning", "maybe", "run_clm.py"], expect=64)


def auto_tune_names_what_is_wrong(b):
    """Bounds of memory: a candidate that does not fit costs seconds; where none fits the smallest changes are named."""
    run = b.common("run", max_steps=2, do_train=None)
    done = b.train(1, [*run, "--auto_tune", "--host_memory", "1MiB"], expect=78)
    assert "by the plan no configuration fits" in done.stderr and "of host memory per rank" in done.stderr, done.stderr
    assert not (b.work / "run/tuning.json").exists()
    b.train(1, [*run, "--auto_tune", "--tune_minutes", "0"], expect=64)
    wrong = b.config("wrong.json", {"autotuning": {"enabled": True, "end_profile_step": 3}})
    done = b.train(1, [*run, "--deepspeed", wrong, "--auto_tune"], expect=78)
    assert "start_profile_step is 3" in done.stderr, done.stderr
    # on a device of 12 MiB the large micro-batches are left out by the plan, and the run that follows fits
    small = b.common("small", max_steps=1, per_device_train_batch_size=32)
    b.train(1, [*small, "--auto_tune", "--device_memory", "12MiB", "--deepspeed",
                b.config("few.json", {"autotuning": dict(FAST, tuner_num_trials=3)})])
    tuning = json.loads((b.work / "small/tuning.json").read_text())
    assert tuning["admitted"] < tuning["open"], tuning
    assert b.status("small")["memory"]["device"]["peak"] <= 12 << 20


def auto_find_batch_size_halves_the_micro_batch(b):
    """The activations decide before the first step; accumulation stays, so that the batch of a step shrinks with the micro-batch."""
    run = b.common("run", per_device_train_batch_size=32, gradient_accumulation_steps=2, max_steps=2)
    b.train(1, [*run, "--device_memory", "12MiB"], expect=70)
    done = b.train(1, [*run, "--overwrite_output_dir", "--device_memory", "12MiB", "--auto_find_batch_size"])
    said = re.search(r"--auto_find_batch_size: 32 sequences per rank and micro-step do not fit into memory; (\d+) do, so that a step has (\d+) "
                     r"sequences instead of 64", done.stderr)
    assert said, done.stderr
    assert int(said[1]) in (1, 2, 4, 8, 16) and int(said[2]) == 2 * int(said[1]), said[0]
    assert b.status("run")["state"] == "done" and len(b.losses("run")) == 2
    assert b.status("run")["memory"]["device"]["peak"] <= 12 << 20
    roomy = b.common("roomy", per_device_train_batch_size=4, max_steps=1)
    assert "do not fit into memory" not in b.train(1, [*roomy, "--auto_find_batch_size"]).stderr
