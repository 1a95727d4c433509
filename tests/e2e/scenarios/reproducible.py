"""--reproducible world: the same bits of losses, norms, evaluations and weights on 1, 2, 4 and 8 ranks."""
import shutil
import subprocess

from support import TINY, refused, safetensors, zero

MICRO_BATCHES = 8  # of a step; 37 samples in micro-batches of 2: the last step of an epoch has three of them


def run(b, name, ranks, stage, nodes=None, dtype=None, **more):
    """What a training computes."""
    config = b.config(f"ds{stage}.json", zero(stage, **({"bf16": {"enabled": True}} if dtype else {})))
    flags = dict(reproducible="world", config_overrides=TINY.replace("pdrop=0.0", "pdrop=0.1"), max_steps=7, max_train_samples=37,
                 per_device_train_batch_size=2, gradient_accumulation_steps=MICRO_BATCHES // ranks, deepspeed=config, train_sampling_strategy="random",
                 validation_file=str(b.text), max_eval_samples=13, do_eval=True, eval_strategy="steps", eval_steps=3, per_device_eval_batch_size=2,
                 max_grad_norm=0.5, dataloader_num_workers=0)
    if dtype:
        flags[dtype] = True
    b.train(ranks, b.common(name, **dict(flags, **more)), nodes=nodes)
    return {"numbers": [{k: m[k] for k in ("step", "loss", "grad_norm", "eval_loss") if k in m} for m in b.metrics(name)],
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


def a_resume_on_other_ranks_has_the_same_bits(b):
    saving = dict(save_strategy="steps", save_steps=4)
    expected = run(b, "whole", 1, 0, **saving)
    shutil.rmtree(b.work / "whole/checkpoints/step_00000007", ignore_errors=True)
    done = run(b, "whole", 4, 3, **saving)
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
