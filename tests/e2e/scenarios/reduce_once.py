"""--reduce_once: stages 2 and 3 with one reduction of gradients per optimizer step."""
import json

from support import close, zero

FLAGS = dict(max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=4)


def _status(b, run):
    return json.loads((b.work / run / "status.json").read_text())


def reducing_once_per_step_has_the_bits_of_stage_1(b):
    b.train(2, b.common("stage1", deepspeed=b.config("ds1.json", zero(1)), **FLAGS))
    for stage in (2, 3):
        ds = b.config(f"ds{stage}.json", zero(stage))
        b.train(2, b.common(f"each{stage}", deepspeed=ds, **FLAGS))
        log = b.train(2, b.common(f"once{stage}", deepspeed=ds, reduce_once=True, **FLAGS)).stderr
        assert "gradients reduced in fp32 once per step" in log, log
        assert b.losses(f"once{stage}") == b.losses("stage1"), stage
        assert (b.work / f"once{stage}/model.safetensors").read_bytes() == (b.work / "stage1/model.safetensors").read_bytes(), stage
        close(b.losses(f"once{stage}"), b.losses(f"each{stage}"), 2e-5, f"stage {stage}")


def reducing_once_per_step_is_planned(b):
    """Gradients take the planned memory, and bytes of the plan do not grow with the micro-steps."""
    ds = b.config("ds.json", {"zero_optimization": {"stage": 2}})
    words = ["--model_type", "gpt2", "--config_overrides", "n_embd=256,n_layer=4,n_head=4,n_positions=64,vocab_size=4096", "--block_size", "64",
             "--per_device_train_batch_size", "1", "--gradient_checkpointing", "false", "--deepspeed", ds, "--use_cpu"]
    plans = {}
    for name, steps, more in (("each2", 2, []), ("each4", 4, []), ("once2", 2, ["--reduce_once"]), ("once4", 4, ["--reduce_once"])):
        b.tool(["plan", "--gpus_per_node", 2, "--json", b.work / "plan.json", "--", *words, "--gradient_accumulation_steps", steps, *more])
        (plans[name],) = json.loads((b.work / "plan.json").read_text())["choices"]
    wire = {name: p["wire"]["intra_node"] + p["wire"]["inter_node"] for name, p in plans.items()}
    assert wire["each4"] > 1.5 * wire["each2"] > 1.5 * wire["once2"] == 1.5 * wire["once4"], wire
    gradients = {name: p["host"]["gradients"] for name, p in plans.items()}
    assert gradients["once4"] == gradients["once2"] == 2 * gradients["each4"], gradients
    run = [w for w in b.common("run", config_overrides=None, model_type=None, block_size=None, per_device_train_batch_size=None, max_steps=2)] + words[:-1]
    b.train(2, run + ["--gradient_accumulation_steps", "4", "--reduce_once"])
    used = _status(b, "run")["memory"]["host"]
    assert abs((plans["once4"]["host"]["total"] + plans["once4"]["saving"]) / used["peak"] - 1) < 0.01, (plans["once4"], used)


def reducing_once_per_step_leaves_a_device_once(b):
    """Offload from a simulated device: gradients leave it in the last micro-step."""
    for stage in (2, 3):
        offload = {"zero_optimization": {"stage": stage, "offload_optimizer": {"device": "cpu"}}}
        ds = b.config(f"ds{stage}.json", dict(zero(stage), **offload))
        for run, more in ((f"each{stage}", {}), (f"once{stage}", {"reduce_once": True})):
            b.train(2, b.common(run, deepspeed=ds, device_memory="1GiB", **more, **FLAGS))
        close(b.losses(f"once{stage}"), b.losses(f"each{stage}"), 2e-5, f"stage {stage}")


def reducing_once_per_step_with_codes_is_refused(b):
    ds = b.config("ds.json", dict(zero(3), zero_optimization={"stage": 3, "zero_quantized_gradients": True}))
    done = b.train(2, b.common("run", deepspeed=ds, reduce_once=True, **FLAGS), expect=78, nodes="1,1")
    assert "--reduce_once with zero_quantized_gradients" in done.stderr, done.stderr
