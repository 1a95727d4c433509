"""Runs of a small GPT-2 against the Trainer of transformers and DeepSpeed themselves: tests/oracles/gpt2_runs.py."""
import json
import math
import struct

from support import close, continues, refused, safetensors, zero

LENGTH = 16


def stored_runs(bench):
    return json.loads((bench.source / "tests/oracles/gpt2_runs.json").read_text())


def gpt2_flags(b, name, rows, steps, rate, **more):
    data = b.source / "tests/checkpoint/data/deepspeed"
    return b.common(name, model_type=None, config_overrides=None, model_name_or_path=str(data / "bin_model"), train_file=str(data / "text.txt"), validation_file=str(data / "text.txt"),
                    tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow"), block_size=LENGTH, keep_linebreaks="false", max_steps=steps,
                    per_device_train_batch_size=rows, learning_rate=rate, weight_decay=0.01, lr_scheduler_type="constant", dataloader_drop_last=True, **more)


def autocast_trains_as_the_trainer_does(b):
    """The Trainer divides the sum of the losses by all labels, of which the first of each block is not predicted."""
    stored = stored_runs(b)
    share = (LENGTH - 1) / LENGTH
    for run in stored["trainer"]:
        precision = run["precision"]
        tolerance = {"fp32": 1e-6, "bf16": 5e-5}[precision]
        for ranks in (1, 2):
            name = f"{precision}{ranks}"
            b.train(ranks, gpt2_flags(b, name, stored["rows"] // ranks, len(run["losses"]), stored["rate"], **({precision: True} if precision != "fp32" else {})))
            close([share * loss for loss in b.losses(name)], run["losses"], tolerance, name)
            close([share * m["grad_norm"] for m in b.metrics(name)[:len(run["norms"])]], run["norms"], {"fp32": 1e-4, "bf16": 3e-3}[precision], f"{name} norms")


def fp16_skips_as_deepspeed_does(b):
    """DeepSpeed halves the update of a step on which the scale grows, so that the losses move apart a little."""
    stored = stored_runs(b)
    for run in stored["deepspeed"]:
        ranks, stage = run["ranks"], run["stage"]
        name = f"scaled{ranks}_{stage}"
        config = {"train_micro_batch_size_per_gpu": stored["rows"] // ranks, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
                  "fp16": stored["scaler"], "zero_optimization": {"stage": stage},
                  "optimizer": {"type": "AdamW", "params": {"lr": stored["rate"], "weight_decay": 0.01}}}
        b.train(ranks, gpt2_flags(b, name, stored["rows"] // ranks, len(run["losses"]), stored["rate"], deepspeed=b.config(f"{name}.json", config)))
        steps = [m for m in b.metrics(name) if "loss" in m]
        assert [m["loss_scale"] for m in steps] == run["scales"], (name, [m["loss_scale"] for m in steps], run["scales"])
        assert [int(m["skipped"]) for m in steps] == run["skipped"], (name, [m["skipped"] for m in steps], run["skipped"])
        grows = next(i for i in range(1, len(run["scales"])) if run["scales"][i] > run["scales"][i - 1])
        close(b.losses(name)[:grows], run["losses"][:grows], 2e-5, f"{name} until the scale grows")
        close(b.losses(name), run["losses"], 5e-3, name)


def half_masters_continue_deepspeeds(b):
    """Its AdamW on the CPU rounds to bf16 after each operation, Tessera once per update."""
    for case, ranks, stage in (("bf16_masters_z2_w2", 1, 3), ("bf16_masters_z2_w2", 2, 1), ("bf16_masters_z3_w2", 2, 2), ("bf16_masters_z3_w2", 3, 3)):
        losses, expected = continues(b, case, ranks, stage)
        close(losses, expected, 1e-4, f"{case} on {ranks} ranks in stage {stage} against DeepSpeed continuing")


def imported_cpu_adagrad_continues(b):
    """DeepSpeed's CPUAdagrad lets weight decay into the sum of squares only."""
    losses, expected = continues(b, "adagrad_z2_w2_offload", 2, 1)
    close(losses, expected, 1e-5, "adagrad_z2_w2_offload against DeepSpeed continuing")


def half_masters_resume_anywhere(b):
    """Stages and ranks agree, a resume continues at others, and the weights that are written have 16 bits."""
    bf16 = {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}

    def words(name, stage, rows, **more):
        return b.common(name, per_device_train_batch_size=rows, learning_rate=1e-3, **more,
                        deepspeed=b.config(f"{name}{stage}.json", zero(stage, bf16=bf16)))
    b.train(1, words("single", 1, 8))
    for stage in (2, 3):
        done = b.train(2, words(f"stage{stage}", stage, 4))
        assert "bf16 weights, which are the master weights" in done.stdout + done.stderr, done.stdout + done.stderr
        assert "master weights 0 B" in done.stdout + done.stderr, done.stdout + done.stderr
        close(b.losses(f"stage{stage}"), b.losses("single"), 1e-4, f"stage {stage}")
    b.train(2, words("cut", 2, 4, max_steps=3, lr_scheduler_type="constant", save_strategy="steps", save_steps=3))
    b.tool(["checkpoint", "verify", b.work / "cut"])
    b.train(1, words("cut", 3, 8, lr_scheduler_type="constant", save_strategy="steps", save_steps=3))
    b.train(2, words("full", 2, 4, lr_scheduler_type="constant", save_strategy="steps", save_steps=6))
    close(b.losses("cut"), b.losses("full"), 1e-4, "resumed at stage 3 on one rank")
    assert b.losses("cut")[-1] < b.losses("cut")[0]
    b.tool([b.work / "cut", b.work / "cut.safetensors"], program="zero-to-fp32")
    for name, (dtype, _, data) in safetensors(b.work / "cut.safetensors").items():
        assert dtype == "F32" and not any(data[0::4]) and not any(data[1::4]), f"{name} has more than 16 bits"
    b.tool(["checkpoint", "diff", b.work / "cut", b.work / "cut", "--tag_b", "3", "--tolerance", "1e-9"], expect=65)
    plans = json.loads(b.tool(["estimate", "--num_gpus_per_node", "2", "--json", "--"] + words("estimated", 2, 4)).stdout)
    for plan in plans["plans"]:
        assert plan["stage"] > 0 and plan["master_weights"] == 0, plan
        assert abs(plan["optimizer_state"] / (4 * plans["parameters"] / 2) - 1) < 0.01, plan
    refused(b, 78, words("wrong", 0, 8), "master_weights_and_grads is true at stage 0", "remove the key")


def unit(stream, count):
    """Weights of unit() in tests/oracles/gpt2.py: uniform in [-1, 1) with 24 bits."""
    mask = 2**64 - 1
    for i in range(count):
        z = ((stream << 32) + (i + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
        yield ((z ^ z >> 31) >> 40) * 2.0**-23 - 1.0


def stored_model(b, family, stored):
    """A Hugging Face directory with the weights of tests/oracles/trainer_runs.py."""
    directory = b.work / f"model_{family}"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(stored["config"]))
    header, data = {}, bytearray()
    for name, shape in stored["shapes"].items():
        stream = 0xCBF29CE484222325
        for c in name.encode():
            stream = (stream ^ c) * 0x100000001B3 & (2**64 - 1)
        one = 1.0 if len(shape) == 1 and name.endswith(".weight") else 0.0
        values = [0.5 * struct.unpack("f", struct.pack("f", 0.25 * u + one))[0] for u in unit(stream & 0x7FFFFFFF, math.prod(shape))]
        header[name] = dict(dtype="F32", shape=shape, data_offsets=[len(data), len(data) + 4 * len(values)])
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return directory


def families_train_as_the_trainer_does(b):
    """Ten steps of the default random order, with accumulation, warm-up, weight decay and epochs that end in a short step, on one and two ranks."""
    stored = json.loads((b.source / "tests/oracles/trainer_runs.json").read_text())
    data = b.source / "tests/checkpoint/data/deepspeed"
    for family, of in stored["families"].items():
        directory = stored_model(b, family, of)
        for run in of["runs"]:
            for stage in (0, 2) if run["ranks"] == 1 else (1, 3):
                name = f"{family}{run['ranks']}_{stage}"
                b.train(run["ranks"], b.common(
                    name, model_type=None, config_overrides=None, model_name_or_path=str(directory), train_file=str(data / "text.txt"),
                    validation_file=str(data / "text.txt"), tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow"), block_size=LENGTH,
                    keep_linebreaks="false", max_train_samples=stored["samples"], max_steps=len(run["losses"]), per_device_train_batch_size=stored["rows"],
                    gradient_accumulation_steps=stored["accumulation"], learning_rate=stored["rate"], weight_decay=stored["decay"],
                    warmup_steps=stored["warmup"], seed=stored["seed"], train_sampling_strategy=None, deepspeed=b.config(f"{stage}.json", zero(stage))))
                steps = [m for m in b.metrics(name) if "loss" in m]
                close([m["loss"] for m in steps], run["losses"], 2e-6, f"{name} losses")
                close([m["grad_norm"] for m in steps], run["norms"], 1e-4, f"{name} norms")
                close([m["learning_rate"] for m in steps[1:]], run["rates"][1:], 1e-6, f"{name} learning rates")
