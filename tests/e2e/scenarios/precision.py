"""Autocast and the cast model, master weights, the averaging keys, and what changes the loss."""
import array
import shutil

from support import TINY, close, refused, safetensors, zero


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


def fp8_products_train_as_bf16(b):
    """Emulated on the host, in 16-bit weights and under autocast: losses near those of bf16, the same bits at every stage, with recomputation,
    on a simulated device and after a resume. status.json names the products; what fp8 cannot do is refused."""
    shape = TINY.replace("n_embd=32", "n_embd=64")
    words = lambda name, **more: b.common(name, **{**dict(config_overrides=shape, max_steps=60, learning_rate=3e-3, per_device_train_batch_size=4), **more})
    for name, precision in (("weights", dict(dtype="bfloat16")), ("autocast", dict(bf16=True))):
        b.train(1, words(f"bf16_{name}", **precision))
        done = b.train(1, words(f"fp8_{name}", fp8="true", **precision))
        assert "fp8 products in blocks" in done.stderr + done.stdout and "emulated in fp32" in done.stderr + done.stdout, done.stderr
        bf16, fp8 = b.losses(f"bf16_{name}"), b.losses(f"fp8_{name}")
        assert bf16[-1] < 0.9 * bf16[0] and fp8 != bf16, (bf16, fp8)
        close(fp8[-20:], bf16[-20:], 0.02, name)
    products = b.status("fp8_weights")["uses"]["products"]
    in_fp8 = sum(calls for route, calls in products.items() if "fp8" in route)
    assert in_fp8 > 0 and in_fp8 < sum(products.values()), products
    # equal micro-batches have equal bits
    short = dict(fp8="true", dtype="bfloat16", max_steps=6)
    b.train(2, words("stage0", **short))
    for stage in (1, 2, 3):
        b.train(2, words(f"stage{stage}", deepspeed=b.config(f"{stage}.json", zero(stage, bf16={"enabled": "auto"})), master_weights="file", **short))
        close(b.losses(f"stage{stage}"), b.losses("stage0"), 1e-6, f"stage {stage}")
    b.train(2, words("device", device_memory="256MiB", **short))
    close(b.losses("device"), b.losses("stage0"), 1e-3, "a simulated device")
    for name, same, more in (("light", "stage0", {}), ("block", "stage0", {}), ("block", "device", dict(device_memory="256MiB"))):
        b.train(2, words(f"{name}_{same}", recompute=name, **short, **more))
        assert b.losses(f"{name}_{same}") == b.losses(same), (name, same)
    saves = dict(short, save_strategy="steps", save_steps=3)
    b.train(2, words("saved", **saves))
    shutil.rmtree(b.work / "saved/checkpoints/step_00000006")
    b.train(2, words("saved", **saves))
    assert b.losses("saved")[-3:] == b.losses("stage0")[-3:]
    for ranks in (1, 2):
        b.train(ranks, words(f"world{ranks}", reproducible="world", gradient_accumulation_steps=2 // ranks, **short))
    assert b.losses("world1") == b.losses("world2")
    wrong = refused(b, 78, words("wrong", fp8="true"), "--fp8 true with products in fp32", "give --bf16 too")
    assert "emulated" not in wrong.stderr, wrong.stderr
    refused(b, 78, words("wrong", config_overrides=shape.replace("n_embd=64", "n_embd=72"), **short), "has 72 inputs and 216 outputs", "multiples of 16")
