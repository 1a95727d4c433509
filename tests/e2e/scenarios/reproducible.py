"""--reproducible world: the same bits of losses, norms, evaluations and weights on 1, 2, 4 and 8 ranks."""
import shutil
import subprocess

from support import TINY, refused, safetensors, zero

MICRO_BATCHES = 8  # of a step; 37 samples in micro-batches of 2: the last step of an epoch has three of them


def run(b, name, ranks, stage, nodes=None, dtype=None, scale=None, log=None, **more):
    """What a training computes. scale: members of DeepSpeed's fp16 section; log: a list that gets the messages"""
    config = b.config(f"ds{stage}.json", zero(stage, **({dtype: dict(enabled=True, **(scale or {}))} if dtype else {})))
    flags = dict(reproducible="world", config_overrides=TINY.replace("pdrop=0.0", "pdrop=0.1"), max_steps=7, max_train_samples=37,
                 per_device_train_batch_size=2, gradient_accumulation_steps=MICRO_BATCHES // ranks, deepspeed=config, train_sampling_strategy="random",
                 validation_file=str(b.text), max_eval_samples=13, do_eval=True, eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=2,
                 max_grad_norm=0.5, dataloader_num_workers=0)
    if dtype:
        flags[dtype] = True
    done = b.train(ranks, b.common(name, **dict(flags, **more)), nodes=nodes)
    if log is not None:
        log.append(done.stderr)
    kept = ("step", "loss", "grad_norm", "eval_loss", "loss_scale", "skipped")
    return {"numbers": [{k: m[k] for k in kept if k in m} for m in b.metrics(name)],
            "weights": safetensors(b.work / name / "model.safetensors")}


def any_power_of_two_of_ranks_has_the_same_bits(b):
    expected = run(b, "alone", 1, 0, deepspeed=None)
    assert len([n for n in expected["numbers"] if "grad_norm" in n]) == 7, expected["numbers"]
    assert any("eval_loss" in n for n in expected["numbers"]), expected["numbers"]
    for ranks, stage, nodes, more in ((2, 1, None, {}), (2, 3, None, {}), (4, 0, None, {}), (4, 2, "2,2", {"collectives": "two-level"}),
                                      (2, 0, None, {"deepspeed": None}), (4, 3, "2,2", {"collectives": "flat"}), (8, 1, None, {}), (8, 3, "4,4", {"collectives": "two-level"})):
        name = f"ranks{ranks}stage{stage}"
        assert run(b, name, ranks, stage, nodes, **more) == expected, f"{ranks} ranks, stage {stage}, nodes {nodes}"
        shutil.rmtree(b.work / name)
    plain = [run(b, f"plain{ranks}", ranks, 2, reproducible="run") for ranks in (1, 4)]
    assert plain[0]["weights"] != plain[1]["weights"], "without the option the training depends on the ranks"


def bf16_has_the_same_bits_too(b):
    expected = run(b, "alone", 1, 0, dtype="bf16")
    for ranks, stage in ((2, 2), (4, 1)):
        assert run(b, f"ranks{ranks}", ranks, stage, dtype="bf16") == expected, f"{ranks} ranks, stage {stage}"


def fp16_with_loss_scaling_has_the_same_bits_too(b):
    """A scale that overflows in the first steps and grows later: the same steps are skipped, and all numbers are the same."""
    scale = dict(initial_scale_power=24, loss_scale_window=2, hysteresis=1)
    expected = run(b, "alone", 1, 0, dtype="fp16", scale=scale, max_steps=12)
    steps = [n for n in expected["numbers"] if "loss_scale" in n]
    assert any(n["skipped"] for n in steps) and not all(n["skipped"] for n in steps), steps
    assert any(b["loss_scale"] > a["loss_scale"] for a, b in zip(steps, steps[1:])), steps
    for ranks, stage, nodes, more in ((2, 2, None, {}), (4, 3, "2,2", {}), (4, 1, None, {}), (2, 3, None, {"reduce_once": True})):
        assert run(b, f"ranks{ranks}stage{stage}", ranks, stage, nodes, dtype="fp16", scale=scale, max_steps=12, **more) == expected, (ranks, stage, more)


def a_resume_on_other_ranks_has_the_same_bits(b):
    saving = dict(save_strategy="steps", save_steps=4)
    expected = run(b, "whole", 1, 0, **saving)
    shutil.rmtree(b.work / "whole/checkpoints/step_00000007", ignore_errors=True)
    log = []
    done = run(b, "whole", 4, 3, log=log, **saving)
    assert "resuming from" in log[0] and "step_00000004" in log[0], log
    assert done["weights"] == expected["weights"]
    assert {n["step"]: n for n in done["numbers"] if "grad_norm" in n} == {n["step"]: n for n in expected["numbers"] if "grad_norm" in n}


def the_same_bits_refuse_what_depends_on_the_ranks(b):
    words = b.common("run", reproducible="world", gradient_accumulation_steps=3)
    refused(b, 78, words, "gradient_accumulation_steps is 3", "power of two")
    done = b.train(3, b.common("run", reproducible="world"), expect=78)
    assert "power of two" in done.stderr, done.stderr
    environment = b.environment()
    del environment["OMP_NUM_THREADS"]
    done = subprocess.run(b.command(1, b.common("run", reproducible="world")), env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 78 and "--threads" in done.stderr, done.stderr
    refused(b, 78, b.common("run", reproducible="world", optim="adafactor"), "Adafactor", "AdamW")
