"""Numbers that are not finite: gradients, losses, weights. No update uses them, no checkpoint holds them, no run ends with 0 without training."""
import array
import json
import math
import shutil
import struct

from support import TINY, safetensors, zero

VOCABULARY, WIDTH = 4096, 32


def tiny_config(**more):
    chosen = dict(pair.split("=") for pair in TINY.split(","))
    return dict({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "tie_word_embeddings": True},
                **{k: float(v) if "." in v else int(v) for k, v in chosen.items()}, **more)


def floats(data):
    out = array.array("f")
    out.frombytes(data)
    return out


def base_weights(bench):
    """{name: fp32 values} of a small model with random weights, written by a run with learning rate 0."""
    if not (bench.work / "base/model.safetensors").exists():
        bench.train(1, bench.common("base", max_steps=1, learning_rate=0))
    return {n: (shape, floats(data)) for n, (_, shape, data) in safetensors(bench.work / "base/model.safetensors").items()}


def bf16(values):
    """Rounded to nearest even, as bytes."""
    bits = array.array("I", values.tobytes())
    return array.array("H", [(x + 0x7FFF + (x >> 16 & 1)) >> 16 & 0xFFFF for x in bits]).tobytes()


def model(b, name, change=None, dtype="F32"):
    """A Hugging Face directory of the small model after change(weights)."""
    weights = base_weights(b)
    if change:
        change({n: values for n, (_, values) in weights.items()})
    header, data = {}, b""
    for tensor, (shape, values) in weights.items():
        raw = values.tobytes() if dtype == "F32" else bf16(values)
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    directory = b.work / name
    directory.mkdir()
    (directory / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (directory / "config.json").write_text(json.dumps(tiny_config(torch_dtype="float32" if dtype == "F32" else "bfloat16")))
    return str(directory)


def flags(b, output, directory, **more):
    return b.common(output, **{**dict(model_type=None, config_overrides=None, model_name_or_path=directory), **more})


def states(directory):
    """{(tensor, state): values} of a checkpoint, from the places in its manifest."""
    manifest, out = json.loads((directory / "manifest.json").read_text()), {}
    shards = [(directory / s["file"]).read_bytes() for s in manifest["shards"]]
    for tensor in manifest["tensors"]:
        for k, state in enumerate(manifest["states"]):
            values = array.array("f")
            for piece in tensor["pieces"]:
                at = piece["file_offsets"][k]
                values.frombytes(shards[piece["shard"]][at:at + 4 * piece["numel"]])
            out[tensor["name"], state] = values
    return out


def steps_on_disk(b, run):
    return sorted(int(p.name[5:]) for p in (b.work / run / "checkpoints").glob("step_*"))


def all_finite(b, run):
    """Every checkpoint of the run holds finite numbers only and is complete. Returns the steps."""
    steps = steps_on_disk(b, run)
    for step in steps:
        directory = b.work / run / f"checkpoints/step_{step:08}"
        for (tensor, state), values in states(directory).items():
            assert all(map(math.isfinite, values)), f"{state} of {tensor} in {directory}"
        b.tool(["checkpoint", "verify", directory])
    return steps


def skipped(b, run):
    return [m["step"] for m in b.metrics(run) if m.get("skipped")]


def failed(b, run, done, *parts):
    for part in parts:
        assert part in done.stderr, f"'{part}' is not said:\n{done.stderr}"
    status = b.status(run)
    assert status["state"] == "failed" and status["exit_code"] == 78, status
    assert not (b.work / run / "model.safetensors").exists(), "a model that was not trained is exported"


def spoil_gradient(weights):
    """A hidden unit of a layer that is off in the forward pass (GELU of -1e20 is 0) and has a gradient of 0 times infinity."""
    weights["transformer.h.1.mlp.c_fc.bias"][5] = -1e20
    for i in range(WIDTH):
        weights["transformer.h.1.mlp.c_fc.weight"][i * 4 * WIDTH + 5] = 0.0


def infinite_gradients_only(b):
    """The loss is finite, every gradient is not: no dtype and no stage updates the weights."""
    directory = model(b, "spoiled", spoil_gradient)
    for run, ranks, more in (("fp32", 2, {}), ("fp32_zero", 2, dict(deepspeed=b.config("zero.json", zero(3)))), ("bf16", 1, dict(bf16=True))):
        words = flags(b, run, directory, max_steps=20, save_strategy="steps", save_steps=3, save_total_limit=2, **more)
        done = b.train(ranks, words, expect=78)
        failed(b, run, done, "last 11 steps up to step 11", "gradients are not finite", "--max_skipped_steps", "step 1 skipped", "skipped 11")
        assert all(map(math.isfinite, b.losses(run))) and skipped(b, run) == list(range(1, 12))
        for step in all_finite(b, run):
            weights = states(b.work / run / f"checkpoints/step_{step:08}")
            for name, (_, values) in base_weights(b).items():
                changed = "mlp.c_fc" in name and "h.1." in name
                assert changed or weights[name, "fp32"] == values, f"{run}: {name} changed in a skipped step"
    words = flags(b, "limit", directory, max_steps=20, max_skipped_steps=2)
    failed(b, "limit", b.train(1, words, expect=78), "last 3 steps up to step 3")


def rare_token(weights, tokens):
    """Embeddings 3 and 4 are equal for all tokens but @p tokens; a hidden unit sees their difference, times 2^66, and nothing uses it."""
    wte, wpe = weights["transformer.wte.weight"], weights["transformer.wpe.weight"]
    for table in (wte, wpe):
        for row in range(len(table) // WIDTH):
            table[row * WIDTH + 4] = table[row * WIDTH + 3]
    for token in tokens:
        wte[token * WIDTH + 3], wte[token * WIDTH + 4] = -0.5, 0.5
    for i in range(WIDTH):
        for column in (3, 4):
            weights["transformer.h.0.attn.c_proj.weight"][i * WIDTH + column] = 0.0
        weights["transformer.h.0.mlp.c_fc.weight"][i * 4 * WIDTH + 5] = {3: 2.0**66, 4: -2.0**66}.get(i, 0.0)
        weights["transformer.h.0.mlp.c_proj.weight"][5 * WIDTH + i] = 0.0


def rare_token_late_in_the_data(b):
    """Healthy steps, then a token whose gradient is not finite in every batch: the healthy checkpoints stay."""
    vocabulary = json.loads((b.source / "configs/gpt2-8m/tokenizer.json").read_text())["model"]["vocab"]
    tokens = [i for text, i in vocabulary.items() if "@" in text and i < VOCABULARY]
    directory = model(b, "rare", lambda weights: rare_token(weights, tokens))
    text = b.work / "late.txt"
    usual = b.text.read_text().splitlines()
    text.write_text("\n".join(usual[:300] + [line + " @" for line in usual[300:1200]]) + "\n")
    words = flags(b, "run", directory, train_file=str(text), learning_rate=1e-30, max_steps=60, save_strategy="steps", save_steps=1,
                  save_total_limit=2, async_save="on")
    done = b.train(2, words, expect=78)
    late = skipped(b, "run")
    assert len(late) == 11 and late[0] > 3, late
    good = late[0] - 1
    failed(b, "run", done, f"last 11 steps up to step {late[-1]}", f"--resume_from_checkpoint {good}")
    kept = all_finite(b, "run")
    assert kept == [good - 1, good, late[-1] - 1], f"first skipped step {late[0]}, checkpoints {kept}"
    done = b.train(2, words + ["--max_skipped_steps", "12"], expect=78)
    assert f"last 13 steps up to step {late[0] + 12}" in done.stderr, "skips before a resume count:\n" + done.stderr
    assert good in all_finite(b, "run")


def half(**fp16):
    return zero(2, fp16=dict({"enabled": True}, **fp16))


def runs_that_learn_nothing(b):
    """fp16 with a scale, a learning rate or weights that cannot work: 78, the cause, no exported model, no checkpoint that is not finite."""
    words = b.common("static", fp16=True, max_steps=6, deepspeed=b.config("static.json", half(loss_scale=1e30)))
    failed(b, "static", b.train(2, words, expect=78), "all 6 steps were skipped", "static loss scale is 1e+30", "not exported")
    b.train(2, words, expect=78)
    floor = b.config("floor.json", half(initial_scale_power=40, min_loss_scale=2**40))
    done = b.train(2, b.common("floor", fp16=True, max_steps=12, deepspeed=floor), expect=78)
    failed(b, "floor", done, "at optimizer step 2 although the loss scale is already at its minimum", "diverged. Try a lower --learning_rate")
    saved = dict(fp16=True, save_strategy="steps", save_steps=1, save_total_limit=2)
    words = b.common("rate", learning_rate=1e6, max_steps=12, deepspeed=b.config("dynamic.json", half(initial_scale_power=8)), **saved)
    done = b.train(2, words, expect=78)
    failed(b, "rate", done, "is NaN", "--learning_rate", "--resume_from_checkpoint 1")
    assert 1 in all_finite(b, "rate") and len(b.losses("rate")) < 8
    large = model(b, "large", lambda w: w["transformer.h.0.mlp.c_proj.bias"].__setitem__(3, 1e20), dtype="BF16")
    done = b.train(1, flags(b, "large_fp16", large, max_steps=12, **saved), expect=78)
    failed(b, "large_fp16", done, "bf16", "--bf16", "large")
    b.train(1, flags(b, "large_bf16", large, bf16=True, max_steps=2))


def skipped_steps_are_counted(b):
    """A dynamic scale that begins far too high: the first steps are skipped and counted, then the run trains."""
    words = b.common("run", fp16=True, max_steps=24, deepspeed=b.config("high.json", half(initial_scale_power=24)))
    done = b.train(2, words)
    count = len(skipped(b, "run"))
    assert 3 < count < 24 and f"{count} of 24 steps skipped" in done.stderr and f"  skipped {count}" in done.stderr, done.stderr
    assert json.loads((b.work / "run/train_results.json").read_text())["train_loss"] > 0


def not_finite_values_are_named(b):
    """NaN in a model file: each command that reads it says in which tensor, and none ends as if nothing was wrong."""
    directory = model(b, "broken", lambda w: w["transformer.wpe.weight"].__setitem__(7, math.nan))
    name = "transformer.wpe.weight (1 value)"
    saved = dict(save_strategy="steps", save_steps=1)
    for run, part, more in (("fp32", "the loss of step 1 is NaN", saved), ("fp16", "the loss of step 3 is NaN", dict(fp16=True)),
                            ("saved", "the checkpoint of step 1 is not published", dict(fp16=True, **saved))):
        failed(b, run, b.train(2, flags(b, run, directory, max_steps=12, **more), expect=78), name, part)
        assert steps_on_disk(b, run) == []
    run = b.work / "imported"
    done = b.tool(["import", directory, run / "checkpoints"])
    assert name in done.stderr and "not finite" in done.stderr, done.stderr
    checkpoint = run / "checkpoints/step_00000000"
    done = b.tool(["checkpoint", "info", checkpoint])
    assert f"not finite: fp32 of {name}" in done.stdout, done.stdout
    described = json.loads(b.tool(["checkpoint", "info", checkpoint, "--json"]).stdout)
    assert described["nonfinite"] == [{"tensor": "transformer.wpe.weight", "state": "fp32", "count": 1}], described["nonfinite"]
    for words in (["verify", checkpoint], ["verify", checkpoint, "--quick"]):
        done = b.tool(["checkpoint"] + words, expect=65)
        assert f"fp32 of {name}" in done.stderr, done.stderr
    for program, words in (("zero-to-fp32", [checkpoint, b.work / "out.safetensors"]), ("tessera", ["export", checkpoint, b.work / "exported"])):
        done = b.tool(words, expect=65, program=program)
        assert name in done.stderr and "is written" in done.stderr, done.stderr
    assert math.isnan(floats(safetensors(b.work / "out.safetensors")["transformer.wpe.weight"][2])[7])
    done = b.train(2, flags(b, "imported", directory), expect=65)
    assert name in done.stderr and "no other complete checkpoint" in done.stderr, done.stderr
    done = b.train(2, flags(b, "named", directory, resume_from_checkpoint=checkpoint), expect=78)
    assert name in done.stderr, done.stderr
    healthy = b.train(2, b.common("healthy", max_steps=2, save_strategy="steps", save_steps=2))
    assert "not finite" not in healthy.stderr and "all finite when saved" in b.tool(["checkpoint", "info", b.work / "healthy"]).stdout
    large = model(b, "large", lambda w: w["transformer.h.0.mlp.c_proj.bias"].__setitem__(3, 1e20))
    b.tool(["import", large, b.work / "large_run/checkpoints"])
    b.tool([b.work / "large_run", b.work / "large.bin"], program="zero-to-fp32")
    done = b.tool([b.work / "large_run", b.work / "large16.bin", "--dtype", "fp16"], expect=65, program="zero-to-fp32")
    assert "beyond the range of fp16" in done.stderr and "c_proj.bias (1 value)" in done.stderr, done.stderr


def diverging_loss(b):
    """A learning rate that destroys the model ends the run; the checkpoint from before it is untouched, and the run completes from it as if nothing had happened."""
    settings = dict(max_grad_norm=0, max_steps=12, save_strategy="steps", save_steps=1)
    b.train(2, b.common("whole", **settings))
    run = b.work / "run"
    (run / "checkpoints").mkdir(parents=True)
    shutil.copytree(b.work / "whole/checkpoints/step_00000003", run / "checkpoints/step_00000003")
    (run / "checkpoints/latest").write_text("step_00000003\n")
    before = states(run / "checkpoints/step_00000003")
    done = b.train(2, b.common("run", **{**settings, "learning_rate": 1e30, "save_total_limit": 2}), expect=78)
    failed(b, "run", done, "the loss of step 5 is NaN", "diverged", "--learning_rate", "the checkpoint of step 4 is complete")
    assert [m["loss"] is None for m in b.metrics("run") if "loss" in m] == [False, True]
    assert all_finite(b, "run") == [3, 4] and b.status("run")["last_checkpoint"] == "step_00000004"
    assert states(run / "checkpoints/step_00000003") == before
    b.train(2, b.common("run", resume_from_checkpoint=3, **settings))
    assert b.losses("run") == b.losses("whole")[3:]
    assert safetensors(run / "model.safetensors") == safetensors(b.work / "whole/model.safetensors")
