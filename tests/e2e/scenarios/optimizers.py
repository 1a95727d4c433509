"""Optimizers by the names of DeepSpeed and transformers."""
import json
import math
import shutil

from support import close, refused, zero


def optimizers_resume_on_other_ranks(b):
    """Each optimizer keeps its states by name, and continues on another number of ranks and stage as one process does."""
    for kind, rate, params, states in (("Lion", 1e-3, {"betas": [0.9, 0.99]}, ["exp_avg"]),
                                       ("Adagrad", 5e-2, {"initial_accumulator_value": 0.1}, ["sum"]),
                                       ("RMSprop", 1e-3, {"momentum": 0.5, "centered": True, "eps": 1e-3}, ["square_avg", "momentum_buffer", "grad_avg"]),
                                       ("Adamax", 1e-2, {"weight_decay": 0.01}, ["exp_avg", "exp_inf"]),
                                       ("Lamb", 1e-2, {"weight_decay": 0.01, "max_coeff": 10}, ["exp_avg", "exp_avg_sq"])):
        section = {"optimizer": {"type": kind, "params": {"lr": "auto", **params}}}
        words = dict(learning_rate=rate, max_steps=4, save_strategy="steps", save_steps=2)
        b.train(1, b.common(f"{kind}_full", max_steps=4, learning_rate=rate, per_device_train_batch_size=8, deepspeed=b.config("full.json", zero(0, **section))))
        b.train(2, b.common(kind, per_device_train_batch_size=4, deepspeed=b.config("first.json", zero(2, **section)), **words))
        manifest = json.loads((b.work / kind / "checkpoints/step_00000002/manifest.json").read_text())
        assert manifest["states"] == ["fp32", *states], manifest["states"]
        shutil.rmtree(b.work / kind / "checkpoints/step_00000004")
        b.train(1, b.common(kind, per_device_train_batch_size=8, deepspeed=b.config("second.json", zero(3, **section)), **words))
        close(b.losses(kind), b.losses(f"{kind}_full"), 1e-5, kind)
        assert b.losses(kind)[-1] < b.losses(kind)[0], f"{kind} learns nothing"


def optimizers_of_flags(b):
    b.train(1, b.common("flags", max_steps=2, optim="rmsprop", optim_args="alpha=0.9,centered=true", learning_rate=1e-3))
    b.train(1, b.common("json", max_steps=2, learning_rate=1e-3, deepspeed=b.config("ds.json", zero(0, optimizer={
        "type": "rmsprop", "params": {"alpha": 0.9, "centered": True}}))))
    assert b.losses("flags") == b.losses("json")
    refused(b, 64, b.common("wrong", optim="rmsprop", optim_args="alpah=0.9"), "RMSprop has no parameter \"alpah\"; did you mean alpha?")
    refused(b, 78, b.common("wrong", optim="adagrad", optim_args="eps=-1"), "eps is -1; it must be positive")
    refused(b, 64, b.common("wrong", optim="galore_adamw"), "low-rank gradient projections are not implemented")
    refused(b, 78, b.common("wrong", optim_args="beta1=0.5", deepspeed=b.config("ds.json", zero(0, optimizer={"type": "Lion"}))),
            "move its values to optimizer.params")


def one_bit_optimizers_warm_up_as_adam(b):
    adam = zero(0, optimizer={"type": "AdamW", "params": {"lr": "auto", "bias_correction": False}})
    one_bit = zero(0, optimizer={"type": "OneBitAdam", "params": {"lr": "auto", "freeze_step": 4, "cuda_aware": False, "comm_backend_name": "nccl"}})
    words = dict(max_steps=4, learning_rate=1e-3, per_device_train_batch_size=4)
    b.train(2, b.common("adam", deepspeed=b.config("adam.json", adam), **words))
    b.train(2, b.common("one_bit", deepspeed=b.config("one_bit.json", one_bit), **words))
    assert b.losses("one_bit") == b.losses("adam")
    for kind in "OneBitAdam", "OneBitLamb":
        sharded = zero(2, optimizer={"type": kind, "params": {"lr": "auto"}})
        refused(b, 78, b.common("sharded", deepspeed=b.config("sharded.json", sharded), **words), "1-bit optimizers are not compatible with ZeRO")
    wrong = zero(0, optimizer={"type": "OneBitLamb", "params": {"lr": "auto", "factor_min": 5}})
    refused(b, 78, b.common("wrong", deepspeed=b.config("wrong.json", wrong), **words), "factor_min is 5 and factor_max is 4; factor_min must not be larger")
    for params in {}, {"var_freeze_step": 4}:
        removed = zero(0, optimizer={"type": "ZeroOneAdam", "params": {"lr": "auto", **params}})
        refused(b, 78, b.common("removed", deepspeed=b.config("removed.json", removed), **words), "use OneBitAdam or AdamW")


def one_bit_optimizers_resume_after_the_freeze(b):
    """Losses are equal with and without an end between the parts. One rank continues from the same weights."""
    for kind, rate, params, phases in (("OneBitAdam", 1e-3, {"freeze_step": 2}, ["warm-up", "compressed"]),
                                       ("OneBitLamb", 1e-2, {"freeze_step": 2, "coeff_beta": 0.5}, ["warm-up", "compressed"])):
        section = zero(0, optimizer={"type": kind, "params": {"lr": "auto", **params}})
        words = dict(learning_rate=rate, lr_scheduler_type="constant", per_device_train_batch_size=4, save_strategy="steps", save_steps=6,
                     deepspeed=b.config(f"{kind}.json", section))
        complete = b.train(2, b.common(f"{kind}_complete", max_steps=12, **words))
        b.train(2, b.common(kind, max_steps=6, **words))
        b.train(2, b.common(kind, max_steps=12, **words))
        losses = b.losses(f"{kind}_complete")
        assert b.losses(kind) == losses, kind
        assert losses[-1] < losses[0], f"{kind} learns nothing"
        for phase in phases:
            assert f"on: {phase}" in complete.stdout + complete.stderr, phase
        status = json.loads((b.work / f"{kind}_complete/status.json").read_text())
        assert status["optimizer_phase"] == phases[-1], status
        shutil.rmtree(b.work / kind / "checkpoints/step_00000012")
        b.train(1, b.common(kind, max_steps=7, **{**words, "per_device_train_batch_size": 8}))
        close(b.losses(kind)[6:7], losses[6:7], 1e-5, kind)


def one_bit_optimizers_resume_on_other_ranks(b):
    """1 to 2, 2 to 4 and 4 to 2 ranks: the next step has the same loss, the later ones stay near those of the same ranks, and every state is in the next checkpoint."""
    for kind, rate, params, moves in (("OneBitAdam", 1e-4, {"freeze_step": 2}, ((1, 2), (2, 4), (4, 2))),
                                      ("OneBitLamb", 1e-3, {"freeze_step": 2, "coeff_beta": 0.5}, ((2, 4),))):
        section = b.config(f"{kind}.json", zero(0, optimizer={"type": kind, "params": {"lr": "auto", **params}}))
        for first, second in moves:
            name, other = f"{kind}_{first}", f"{kind}_{first}_to_{second}"
            words = dict(learning_rate=rate, lr_scheduler_type="constant", save_strategy="steps", save_steps=6, deepspeed=section, max_steps=9)
            b.train(first, b.common(name, per_device_train_batch_size=8 // first, **words))
            saved = b.work / name / "checkpoints/step_00000006"
            b.train(second, b.common(other, resume_from_checkpoint=saved, per_device_train_batch_size=8 // second, **words))
            same, changed = b.losses(name)[6:], b.losses(other)
            close(changed[:1], same[:1], 1e-5, other)
            assert len(changed) == 3 and all(math.isfinite(loss) for loss in changed), (other, changed, same)
            states = [json.loads((path / "manifest.json").read_text())["states"] for path in (saved, b.work / other / "checkpoints/step_00000009")]
            assert states[0] == states[1] and {"worker_error", "server_error"} <= set(states[0]), states
