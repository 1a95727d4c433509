"""Autocast and the cast model, master weights, the averaging keys, and what changes the loss."""
import array

from support import close, refused, safetensors, zero


def sixteen_bit_flags_mean_autocast(b):
    """Without DeepSpeed and FSDP as in the Trainer: fp32 weights. Every way trains about the same."""
    words = dict(max_steps=4, learning_rate=1e-3, per_device_train_batch_size=4)
    ways = {
        "fp32": ({}, "fp32 weights; ZeRO"),
        "bf16": (dict(bf16=True), "fp32 weights, bf16 products; ZeRO"),
        "fp16": (dict(fp16=True), "fp32 weights, fp16 products; ZeRO"),
        "dtype": (dict(dtype="bfloat16"), "bf16 weights; ZeRO"),
        "fsdp": (dict(bf16=True, fsdp="full_shard"), "bf16 weights; ZeRO"),
        "cast": (dict(bf16=True, deepspeed=b.config("cast.json", zero(2, bf16={"enabled": "auto"}))), "bf16 weights; ZeRO"),
        "autocast": (dict(deepspeed=b.config("autocast.json", zero(3, torch_autocast={"enabled": True, "dtype": "float16"}))), "fp32 weights, fp16 products; ZeRO"),
        "amp": (dict(deepspeed=b.config("amp.json", zero(0, amp={"enabled": True}))), "fp32 weights, fp16 products; ZeRO"),
    }
    for name, (more, text) in ways.items():
        done = b.train(2, b.common(name, **words, **more))
        assert text in done.stdout + done.stderr, (name, done.stdout + done.stderr)
        close(b.losses(name), b.losses("fp32"), 2e-3, name)
    b.train(1, b.common("evaluation", **dict(words, do_train=None, do_eval=True, fp16_full_eval=True, max_steps=None)))
    refused(b, 64, b.common("wrong", fp16_full_eval=True, bf16=True), "the training precision is bf16", "without --do_train")
    refused(b, 78, b.common("wrong", deepspeed=b.config("both.json", zero(1, torch_autocast={"enabled": True}, bf16={"enabled": True}))),
            "torch_autocast.enabled is true, and so is bf16")
    refused(b, 78, b.common("wrong", deepspeed=b.config("o3.json", zero(0, amp={"enabled": True, "opt_level": "O3"}))), "use O2")


def averaging_keys_do_what_they_say(b):
    """In fp32 only the sum changes the numbers; where a reduce-scatter divides, the other keys are refused as by DeepSpeed."""
    def words(name, stage, **keys):
        return b.common(name, max_steps=3, learning_rate=1e-2, max_grad_norm=0, optim="sgd", per_device_train_batch_size=4,
                        deepspeed=b.config(f"{name}.json", zero(stage, **keys)))
    b.train(2, words("plain", 1))
    for name, stage, keys in (("prescaled", 0, {"prescale_gradients": True}), ("predivided", 1, {"gradient_predivide_factor": 2.0})):
        b.train(2, words(name, stage, **keys))
        close(b.losses(name), b.losses("plain"), 1e-6, name)
    b.train(2, words("sum", 2, gradient_allreduce_op="sum"))
    norm, norms = b.metrics("plain")[0]["grad_norm"], b.metrics("sum")[0]["grad_norm"]
    close([norms], [2 * norm], 1e-5, "the norm of the sum of two ranks")
    refused(b, 78, words("wrong", 2, prescale_gradients=True), "prescale_gradients is true at stage 2", "remove it")
    refused(b, 78, words("wrong", 3, gradient_predivide_factor=2.0), "gradient_predivide_factor is 2 at stage 3")
    refused(b, 78, words("wrong", 3, gradient_allreduce_op="sum"), "gradient_allreduce_op is sum at stage 3", "use a lower stage")


def losses_with_smooth_labels_and_noise(b):
    words = dict(max_steps=3, learning_rate=1e-3, per_device_train_batch_size=4)
    b.train(1, b.common("plain", **words))
    b.train(1, b.common("smooth", label_smoothing_factor=0.1, **words))
    assert b.losses("smooth")[0] != b.losses("plain")[0]
    b.train(2, b.common("smooth2", label_smoothing_factor=0.1, **{**words, "per_device_train_batch_size": 2}))
    close(b.losses("smooth2"), b.losses("smooth"), 1e-5, "smooth labels on two ranks")
    b.train(1, b.common("noise", neftune_noise_alpha=5, **words))
    b.train(2, b.common("noise2", neftune_noise_alpha=5, **{**words, "per_device_train_batch_size": 2}))
    assert b.losses("noise")[0] != b.losses("plain")[0]
    close(b.losses("noise2"), b.losses("noise"), 1e-5, "noise on two ranks")
    refused(b, 64, b.common("wrong", label_smoothing_factor=2), "label_smoothing_factor")


def one_cycle_moves_the_betas(b):
    def words(name, params, **more):
        section = {"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-3, "cycle_max_lr": 1e-2, "cycle_first_step_size": 2, **params}}, **more}
        return b.common(name, max_steps=5, save_strategy="steps", save_steps=2, per_device_train_batch_size=4, deepspeed=b.config(f"{name}.json", zero(1, **section)))
    done = b.train(2, words("cycled", {}))
    assert "beta2 is 0.99" in done.stdout + done.stderr
    b.train(2, words("constant", {"cycle_momentum": False}))
    close(b.losses("cycled")[:2], b.losses("constant")[:2], 1e-6, "the first update is the gradient's sign for any betas")
    difference = abs(b.losses("cycled")[4] / b.losses("constant")[4] - 1)
    assert difference > 1e-5, difference
    refused(b, 78, words("wrong", {"cycle_max_mom": 1.5}), "beta1 of step", "cycle_max_mom")


def master_weights_start_as_asked(b):
    """A run without updates exports its initial master weights: rounded to bf16 under DeepSpeed, else as they were."""
    def all_are_bf16(name, **more):
        b.train(2, b.common(name, max_steps=1, learning_rate=0, **more))
        return all(not any(x & 0xFFFF for x in array.array("I", data)) for _, _, data in safetensors(b.work / name / "model.safetensors").values())
    cast = b.config("cast.json", zero(1, bf16={"enabled": True}))
    assert all_are_bf16("deepspeed", deepspeed=cast)
    assert not all_are_bf16("file", deepspeed=cast, master_weights="file")
    assert not all_are_bf16("dtype", dtype="bfloat16")
    assert all_are_bf16("rounded", dtype="bfloat16", master_weights="rounded")
    assert not all_are_bf16("autocast", bf16=True)
