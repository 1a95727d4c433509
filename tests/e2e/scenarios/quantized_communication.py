"""Communication as codes: ZeRO++'s quantized weights and gradients, LoCo."""
import json

from support import zero

_both = {"zero_quantized_weights": True, "zero_quantized_gradients": True}


def _codes(b, name, **more):
    return b.config(f"{name}.json", {**zero(3), "zero_optimization": {"stage": 3, **more}})


def quantized_communication_follows_values(b):
    """Losses of 20 steps within 0.5 % of those of values, each combination with an effect, on two nodes."""
    flags = dict(max_steps=20, per_device_train_batch_size=2, learning_rate=1e-3, lr_scheduler_type="constant")
    b.train(4, b.common("plain", deepspeed=_codes(b, "plain"), **flags), nodes="2,2")
    seen = [b.losses("plain")]
    runs = {"weights": dict(zero_quantized_weights=True), "gradients": dict(zero_quantized_gradients=True), "both": _both,
            "loco": {**_both, "zeropp_loco_param": {"err_beta": 0.8, "reset_T": 8}}}
    for run, keys in runs.items():
        log = b.train(4, b.common(run, deepspeed=_codes(b, run, **keys), **flags), nodes="2,2").stderr
        assert ("weights gathered as int8 codes" in log) == (run != "gradients"), log
        assert ("int8 in nodes, int4 between nodes" in log) == (run != "weights"), log
        assert b.status(run)["uses"]["gradient reduction"].get("error_feedback", False) == (run == "loco"), run
        losses = b.losses(run)
        worst = max(abs(a / c - 1) for a, c in zip(losses, seen[0]))
        assert len(losses) == 20 and losses not in seen and worst < 5e-3, (run, worst, losses)
        print(f"{run}: losses deviate by at most {worst:.2e}")
        seen.append(losses)
    b.train(4, b.common("hpz", deepspeed=_codes(b, "hpz", **_both, zero_hpz_partition_size=2), **flags), nodes="2,2")
    assert b.losses("hpz") == b.losses("both"), "secondary shards hold what was decoded"


def errors_of_quantized_gradients_resume(b):
    """LoCo's errors are a state of the checkpoint: the bits of the run that saved on as many ranks, also on others, and without LoCo."""
    loco = _codes(b, "loco", **_both, zeropp_loco_param={"err_beta": 0.8, "reset_T": 5})
    flags = dict(per_device_train_batch_size=2, learning_rate=1e-3, lr_scheduler_type="constant", save_strategy="steps", save_steps=3)
    b.train(4, b.common("complete", deepspeed=loco, max_steps=8, **flags), nodes="2,2")
    saved = b.work / "complete" / "checkpoints" / "step_00000003"
    manifest = json.loads((saved / "manifest.json").read_text())
    assert "gradient_error" in manifest["states"], manifest["states"]
    resumed = dict(resume_from_checkpoint=saved, max_steps=8, **flags)
    b.train(4, b.common("resumed", deepspeed=loco, **resumed), nodes="2,2")
    assert b.losses("resumed") == b.losses("complete")[3:], (b.losses("resumed"), b.losses("complete"))
    b.train(2, b.common("fewer", deepspeed=loco, **{**resumed, "per_device_train_batch_size": 4}), nodes="1,1")
    values = b.train(2, b.common("values", deepspeed=_codes(b, "values"), **{**resumed, "per_device_train_batch_size": 4}), nodes="1,1").stderr
    assert "no optimizer states" not in values, values
    for run in "fewer", "values":
        worst = max(abs(a / c - 1) for a, c in zip(b.losses(run), b.losses("complete")[3:]))
        assert len(b.losses(run)) == 5 and 0 < worst < 5e-3, (run, worst)


def quantized_gradients_follow_the_nodes(b):
    """One all-to-all where nodes differ, values on one node, and refused below stage 3."""
    flags = dict(max_steps=3, per_device_train_batch_size=2)
    uneven = b.train(3, b.common("uneven", deepspeed=_codes(b, "uneven", **_both), **flags), nodes="2,1").stderr
    assert "one all-to-all over all ranks" in uneven and "reduced as codes (int4)" in uneven, uneven
    one = b.train(2, b.common("one", deepspeed=_codes(b, "one", zero_quantized_gradients=True), **flags)).stderr
    assert "no effect on one node" in one, one
    b.train(2, b.common("one_plain", deepspeed=_codes(b, "one_plain"), **flags))
    assert b.losses("one") == b.losses("one_plain")
    done = b.train(2, b.common("two", deepspeed=b.config("two.json", {**zero(2), "zero_optimization": {"stage": 2, **_both}})), expect=78)
    assert "zero_quantized_weights is true at stage 2" in done.stderr, done.stderr
