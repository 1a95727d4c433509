"""--recompute: the same losses from fewer kept activations, which estimate and plan know."""
import json
import re

SHAPE = "n_embd=128,n_layer=12,n_head=2,vocab_size=4096,n_positions=64,resid_pdrop=0.1,embd_pdrop=0.1,attn_pdrop=0.0"


def logged_activations(stderr):
    number, unit = re.search(r"activations ([\d.]+) (\w+)", stderr).groups()
    scale = 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit)
    return float(number) * scale, 0.05 * scale


def recomputation_keeps_fewer_activations(b):
    """Equal losses on the host and on a simulated device; the run's bytes are those of estimate and plan."""
    words = lambda name, **more: b.common(name, per_device_train_batch_size=4, config_overrides=SHAPE, block_size=64, bf16=True, max_steps=3, **more)
    estimated = json.loads(b.tool(["estimate", "--num_gpus_per_node", 2, "--json", "--"] + words("estimate") + ["--use_cpu"]).stdout)["plans"]
    estimated = {plan["recompute"]: plan["activations"] for plan in estimated if plan["stage"] == 0}
    assert estimated["block"] < 0.7 * estimated["light"] and estimated["light"] < 0.8 * estimated["none"], estimated
    for how, expected in estimated.items():
        logged, rounding = logged_activations(b.train(2, words(how, recompute=how)).stderr)
        assert abs(logged - expected) <= rounding, (how, logged, expected)
        b.train(1, words(f"{how}_device", recompute=how) + ["--device_memory", "256MiB"])
        assert b.losses(how) == b.losses("none"), how
        assert b.losses(f"{how}_device") == b.losses("none_device"), how
    b.train(2, words("checkpointing", gradient_checkpointing=True))
    assert b.losses("checkpointing") == b.losses("none")
    for given, expected in ((["--recompute", "light"], {"light"}), (["--gradient_checkpointing"], {"block"}), ([], {"none", "light", "block"})):
        b.tool(["plan", "--gpus_per_node", 2, "--json", b.work / "plan.json", "--", "--model_type", "gpt2", "--config_overrides", SHAPE, "--bf16", "--use_cpu", *given])
        assert {choice["recompute"] for choice in json.loads((b.work / "plan.json").read_text())["choices"]} == expected, given


def recomputation_is_refused_with_reasons(b):
    for flags, text in ((["--recompute", "light", "--gradient_checkpointing"], "--recompute light and activation checkpointing"),
                        (["--recompute", "all"], "none, light, block")):
        done = b.train(1, b.common("refused") + flags, expect=64)
        assert text in done.stderr, done.stderr
