"""Models of real sizes; minutes and gigabytes, label `slow`. Registered by name in CMakeLists.txt."""
import json
import math
import os
import resource
import struct

from support import zero

GIB = 1 << 30


def zero_weights(directory, width, layers, vocabulary, positions):
    """A GPT-2 directory whose weights are a hole in a file: every logit is zero. Returns the bytes of the weights."""
    shapes = {"transformer.wte.weight": [vocabulary, width], "transformer.wpe.weight": [positions, width], "transformer.ln_f.weight": [width],
              "transformer.ln_f.bias": [width]}
    for layer in range(layers):
        name = f"transformer.h.{layer}."
        for part, shape in (("ln_1.weight", [width]), ("ln_1.bias", [width]), ("attn.c_attn.weight", [width, 3 * width]),
                            ("attn.c_attn.bias", [3 * width]), ("attn.c_proj.weight", [width, width]), ("attn.c_proj.bias", [width]),
                            ("ln_2.weight", [width]), ("ln_2.bias", [width]), ("mlp.c_fc.weight", [width, 4 * width]),
                            ("mlp.c_fc.bias", [4 * width]), ("mlp.c_proj.weight", [4 * width, width]), ("mlp.c_proj.bias", [width])):
            shapes[name + part] = shape
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = dict(dtype="F32", shape=shape, data_offsets=[at, at + size])
        at += size
    text = json.dumps(header).encode()
    directory.mkdir()
    with open(directory / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + at)
    (directory / "config.json").write_text(json.dumps(dict(model_type="gpt2", n_embd=width, n_layer=layers, n_head=16, vocab_size=vocabulary,
                                                           n_positions=positions)))
    return at


def model_larger_than_a_rank(b, limit=4 * GIB):
    """Under a limit on the address space that one rank's copy of the weights exceeds, four ranks of stage 3 load and evaluate the model."""
    if "TESSERA_SANITIZE" in os.environ:
        print("SKIPPED: the address sanitizer needs more address space")
        raise SystemExit(77)
    bytes_of_weights = zero_weights(b.work / "model", width=2048, layers=22, vocabulary=4096, positions=64)
    assert bytes_of_weights > limit, bytes_of_weights
    b.text.write_text(b.text.read_text()[:4000])

    def evaluate(ranks, stage, expect):
        words = b.common("run", model_type=None, config_overrides=None, model_name_or_path=b.work / "model", train_file=None, do_train=None,
                         do_eval=True, validation_file=b.text, max_steps=None, learning_rate=None, logging_steps=None, save_strategy=None,
                         train_sampling_strategy=None, per_device_train_batch_size=None, deepspeed=b.config("ds.json", zero(stage)),
                         overwrite_output_dir=True)
        return b.train(ranks, words, expect=expect, timeout=900, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))

    refusal = evaluate(2, 0, 70).stderr
    assert "for weights on each of 2 ranks" in refusal and "address space limit" in refusal, refusal
    evaluate(4, 3, 0)
    loss = json.loads((b.work / "run/eval_results.json").read_text())["eval_loss"]
    assert abs(loss - math.log(4096)) < 1e-5, loss


def gpt2_xl_step(b, sequence=128):
    """One step of gpt2-xl from random weights: stage 3 on two ranks, bf16, recomputation; master weights and moments on a drive, for 6 GiB."""
    swap = dict(device="nvme", nvme_path=str(b.work / "swap"))
    (b.work / "swap").mkdir()
    block = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True, "offload_optimizer": swap}
    done = b.train(2, b.common("run", config_overrides="n_embd=1600,n_layer=48,n_head=25", block_size=sequence, max_steps=1,
                               per_device_train_batch_size=1, gradient_checkpointing=True, learning_rate=1e-4,
                               deepspeed=b.config("ds.json", zero(3, bf16={"enabled": True}, zero_optimization=block))), timeout=2400)
    print(done.stderr)
    assert "1,557,611,200 parameters" in done.stderr
    (loss,) = b.losses("run")
    assert abs(loss - math.log(50257)) < 0.5, loss
    for file in (b.work / "run").glob("model*.safetensors"):
        file.unlink()
