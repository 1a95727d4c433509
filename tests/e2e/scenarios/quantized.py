"""Optimizers with states in 8 bits, as users of bitsandbytes name them."""
import json
import shutil

from support import close, refused, zero

# c_attn, c_proj of the MLP and c_fc have more than 4,096 elements
MODEL = "vocab_size=4096,n_positions=64,n_embd=48,n_layer=2,n_head=2"


def quantized_optimizers_resume_on_other_ranks(b):
    """The steps of one process on every number of ranks, also after a resume from fp32 values and through a conversion."""
    for name, rate, states in (("adamw_bnb_8bit", 1e-3, ["exp_avg", "exp_avg_sq"]), ("paged_lion_8bit", 1e-4, ["exp_avg"]), ("rmsprop_bnb_8bit", 1e-3, ["square_avg"])):
        words = dict(optim=name, learning_rate=rate, max_steps=6, config_overrides=MODEL, save_strategy="steps", save_steps=3)
        stage = lambda number: b.config(f"z{number}.json", zero(number))
        b.train(1, b.common(f"{name}_full", per_device_train_batch_size=8, deepspeed=stage(0), **words))
        b.train(2, b.common(name, per_device_train_batch_size=4, deepspeed=stage(2), **words))
        step = b.work / name / "checkpoints/step_00000003"
        manifest = json.loads((step / "manifest.json").read_text())
        assert manifest["states"] == ["fp32", *states], manifest["states"]
        assert [s["name"] for s in manifest["reduced_states"]] == [s + "_absmax" for s in states]
        shutil.rmtree(b.work / name / "checkpoints/step_00000006")
        b.tool(["checkpoint", "convert", step, b.work / f"{name}_converted", "--ranks", 3, "--compress", "gzip"])
        b.tool(["checkpoint", "verify", b.work / f"{name}_converted"])
        b.tool(["checkpoint", "diff", step, b.work / f"{name}_converted"])
        b.train(1, b.common(f"{name}_more", per_device_train_batch_size=8, deepspeed=stage(3), resume_from_checkpoint=b.work / f"{name}_converted", **words))
        b.train(4, b.common(name, per_device_train_batch_size=2, deepspeed=stage(1), **words))
        close(b.losses(name), b.losses(f"{name}_full"), 2e-5, name)
        close(b.losses(f"{name}_more"), b.losses(f"{name}_full")[3:], 2e-5, f"{name}, converted")
        assert b.losses(name)[-1] < b.losses(name)[0], f"{name} learns nothing"
        refused(b, 78, b.common(name, per_device_train_batch_size=8, config_overrides=MODEL, max_steps=8), "_absmax", "resume with the checkpoint's optimizer")


def quantized_optimizers_save_memory(b):
    """Trains the same model and batch with quantized states: three fourths of the moments' bytes less, in the log and in the estimate."""
    big = "vocab_size=4096,n_positions=64,n_embd=128,n_layer=8,n_head=2"
    bytes_of = {}
    for name in ("adamw_torch", "adamw_8bit"):
        words = b.common(name, optim=name, config_overrides=big, max_steps=1)
        b.train(1, words)
        done = b.tool(["estimate", "--json", "--", *words])
        bytes_of[name] = done.stdout
    assert bytes_of["adamw_torch"] != bytes_of["adamw_8bit"]
    states = {}
    for name in bytes_of:
        text = json.loads(bytes_of[name])
        states[name] = max(value for value in found(text, "optimizer_state"))
    assert states["adamw_8bit"] < 0.55 * states["adamw_torch"], states


def found(tree, key):
    """All numbers under @p key."""
    if isinstance(tree, dict):
        return [v for k, v in tree.items() if k == key] + [x for v in tree.values() for x in found(v, key)]
    return [x for v in tree for x in found(v, key)] if isinstance(tree, list) else []


def quantized_optimizers_are_refused_where_unknown(b):
    refused(b, 64, b.common("wrong", optim="adamw_8bit", optim_args="percentile_clipping=95"), "AdamW8bit has no parameter \"percentile_clipping\"")
    refused(b, 64, b.common("wrong", optim="ademamix_8bit"), "not implemented")
    refused(b, 78, b.common("wrong", deepspeed=b.config("ds.json", zero(0, optimizer={"type": "AdamW8bit"}))), "AdamW8bit")
