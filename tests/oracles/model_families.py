#!/usr/bin/env python3
"""Stored vectors for the model families, from transformers' models on the CPU.

  python3 tests/oracles/model_families.py [FAMILY ...]     writes tests/model/data/families/FAMILY.{json,bin} and FAMILY.default.json

Weights and tokens are not stored: both sides compute them from unit() of gpt2.py. The stream of a parameter is the hash of its name in
save_pretrained's files. Per case the files hold
  loss            mean of the token losses over rows * (sequence - 1) predictions
  last_logits     logits of the last position, [rows, vocab]
  gradients       of that mean, per parameter
  trajectory      losses of ten AdamW steps, each on the next batch
  bf16, fp16      of cases that ask for it: as in gpt2.py
All are of a run in fp64, whose parts that transformers computes in fp32 (norms, softmax) are computed in fp64 as well.
Needs torch, transformers, numpy, safetensors.
"""
import contextlib
import dataclasses
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

import gpt2

DATA = pathlib.Path(__file__).resolve().parent.parent / "model" / "data" / "families"
STEPS = 10
ADAMW = dict(lr=5e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
FP16_LOSS_SCALE = 1024.0

SMALL = dict(vocab_size=37, bos_token_id=0, eos_token_id=0, pad_token_id=None)
GPT2_LIKE = dict(SMALL, n_positions=12, n_embd=16, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
LLAMA_LIKE = dict(SMALL, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  max_position_embeddings=16)
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8)

PHI3_LONG = dict(LLAMA_LIKE, num_hidden_layers=1, original_max_position_embeddings=8,
                 rope_parameters=dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.25], long_factor=[1.5, 3.0]))

FAMILIES = {
    "gpt_bigcode": [
        dict(name="multi_query", rows=2, sequence=12, config=GPT2_LIKE),
        dict(name="multi_head", rows=2, sequence=9, config=dict(GPT2_LIKE, multi_query=False, n_inner=24)),
        dict(name="untied_unscaled", rows=1, sequence=7,
             config=dict(GPT2_LIKE, n_layer=1, tie_word_embeddings=False, scale_attn_weights=False, layer_norm_epsilon=1e-3)),
    ],
    "llama": [
        dict(name="grouped", rows=2, sequence=16, sixteen_bit=True, config=LLAMA_LIKE),
        dict(name="biases_tied", rows=3, sequence=9,
             config=dict(LLAMA_LIKE, num_key_value_heads=4, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-3)),
        dict(name="multi_query_wide_heads", rows=1, sequence=8, config=dict(LLAMA_LIKE, num_hidden_layers=1, num_key_value_heads=1, head_dim=6)),
        dict(name="llama3_rope", rows=2, sequence=16, config=dict(LLAMA_LIKE, rope_parameters=LLAMA3_ROPE)),
        dict(name="linear_rope", rows=1, sequence=16, config=dict(LLAMA_LIKE, num_hidden_layers=1, rope_parameters=dict(rope_type="linear", rope_theta=100.0, factor=3.0))),
        dict(name="dynamic_rope", rows=1, sequence=16, config=dict(LLAMA_LIKE, num_hidden_layers=1, rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, factor=2.0))),
        dict(name="yarn_rope", rows=1, sequence=16,
             config=dict(LLAMA_LIKE, num_hidden_layers=1,
                         rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=4))),
    ],
    "mistral": [
        dict(name="window", rows=2, sequence=16, config=dict(LLAMA_LIKE, sliding_window=5)),
        dict(name="no_window", rows=1, sequence=8, config=dict(LLAMA_LIKE, num_hidden_layers=1, sliding_window=None, head_dim=6)),
    ],
    "qwen2": [
        dict(name="biases", rows=2, sequence=12, config=LLAMA_LIKE),
        dict(name="window_of_upper_layers", rows=1, sequence=16,
             config=dict(LLAMA_LIKE, use_sliding_window=True, sliding_window=5, max_window_layers=1, tie_word_embeddings=True)),
    ],
    "qwen3": [
        dict(name="head_norms", rows=2, sequence=12, config=dict(LLAMA_LIKE, head_dim=8)),
        dict(name="biases_tied", rows=1, sequence=9,
             config=dict(LLAMA_LIKE, num_hidden_layers=1, head_dim=4, attention_bias=True, tie_word_embeddings=True)),
    ],
    "gpt_neox": [
        dict(name="parallel", rows=2, sequence=12,
             config=dict(SMALL, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16,
                         rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25))),
        dict(name="sequential", rows=1, sequence=9,
             config=dict(SMALL, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=4, max_position_embeddings=16,
                         use_parallel_residual=False, hidden_act="gelu_new", attention_bias=False, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=1.0))),
    ],
    "starcoder2": [
        dict(name="window", rows=2, sequence=16, config=dict(LLAMA_LIKE, sliding_window=5, initializer_range=0.02)),
        dict(name="no_bias_untied", rows=1, sequence=9, config=dict(LLAMA_LIKE, num_hidden_layers=1, use_bias=False, tie_word_embeddings=False)),
    ],
    "phi": [
        dict(name="partial_rotary", rows=2, sequence=12, config=dict(LLAMA_LIKE, num_attention_heads=2, num_key_value_heads=2)),
        dict(name="grouped", rows=1, sequence=9,
             config=dict(LLAMA_LIKE, num_hidden_layers=1,
                         rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=1.0))),
    ],
    "phi3": [
        dict(name="fused", rows=2, sequence=12, config=dict(LLAMA_LIKE, original_max_position_embeddings=16)),
        dict(name="short_longrope", rows=1, sequence=8, config=PHI3_LONG),
        dict(name="long_longrope", rows=2, sequence=16, config=PHI3_LONG),
        dict(name="window_tied", rows=1, sequence=16,
             config=dict(LLAMA_LIKE, num_hidden_layers=1, original_max_position_embeddings=16, sliding_window=5, tie_word_embeddings=True)),
    ],
    "olmo2": [
        dict(name="norms_after", rows=2, sequence=12, config=LLAMA_LIKE),
        dict(name="biases", rows=1, sequence=9, config=dict(LLAMA_LIKE, num_hidden_layers=1, num_key_value_heads=4, attention_bias=True)),
    ],
    "gemma": [
        dict(name="wide_heads", rows=2, sequence=12, config=dict(LLAMA_LIKE, head_dim=8)),
        dict(name="biases", rows=1, sequence=9, config=dict(LLAMA_LIKE, num_hidden_layers=1, num_key_value_heads=1, head_dim=4, attention_bias=True)),
    ],
    "gemma2": [
        dict(name="capped_window", rows=2, sequence=16,
             config=dict(LLAMA_LIKE, head_dim=8, sliding_window=5, query_pre_attn_scalar=9, final_logit_softcapping=3.0, attn_logit_softcapping=2.0)),
        dict(name="uncapped", rows=1, sequence=9,
             config=dict(LLAMA_LIKE, num_hidden_layers=1, head_dim=4, sliding_window=5, final_logit_softcapping=None, attn_logit_softcapping=None)),
    ],
}


def stream_of(name):
    h = 0xCBF29CE484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h & 0x7FFFFFFF


def weight(family, name, shape):
    """Uniform, of a size that makes every term matter; norms' weights around one, or around zero where one is added."""
    w = gpt2.unit(stream_of(name), int(np.prod(shape))) * np.float32(0.25)
    if len(shape) == 1 and name.endswith(".weight") and not family.startswith("gemma"):
        w = w + np.float32(1.0)
    return torch.from_numpy(w.reshape(shape))


def tokens(case, batch):
    u = gpt2.unit(1000 + batch, case["rows"] * case["sequence"]).astype(np.float64)
    ids = np.floor((u + 1.0) / 2.0 * case["config"]["vocab_size"]).astype(np.int64)
    return torch.from_numpy(ids.reshape(case["rows"], case["sequence"]))


@contextlib.contextmanager
def fp64_stays():
    """fp64 tensors ignore requests for fp32, which transformers makes in norms and softmax."""
    to, as_float, softmax = torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax

    def kept(self, *args, **kwargs):
        if self.dtype == torch.float64 and (torch.float32 in args or kwargs.get("dtype") == torch.float32):
            return self
        return to(self, *args, **kwargs)

    torch.Tensor.to = kept
    torch.Tensor.float = lambda self: self if self.dtype == torch.float64 else as_float(self)
    torch.nn.functional.softmax = lambda x, dim=None, dtype=None, **k: softmax(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype)
    try:
        yield
    finally:
        torch.Tensor.to, torch.Tensor.float, torch.nn.functional.softmax = to, as_float, softmax


def build(family, case, dtype, round_to=None):
    """The model, and {name in files: parameter}."""
    config = transformers.AutoConfig.for_model(family, **case["config"])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32)
    with tempfile.TemporaryDirectory() as directory:  # the names in files differ from the modules' for some
        for i, p in enumerate(model.parameters()):
            p.data.fill_(float(i))
        model.save_pretrained(directory)
        files = load_file(pathlib.Path(directory) / "model.safetensors")
        saved = json.loads((pathlib.Path(directory) / "config.json").read_text())
    by_index = {int(t.flatten()[0]): n for n, t in files.items()}
    named = {by_index[i]: p for i, p in enumerate(model.parameters())}
    assert len(named) == len(list(model.parameters())) == len(files)
    for name, p in named.items():
        p.data.copy_(weight(family, name, tuple(p.shape)).to(round_to or torch.float32))
    # rounded tables are not wanted in fp64; the frequencies stay those of fp32
    return model.to(dtype).train(), named, saved


def loss_of(model, ids, dtype):
    logits = model(input_ids=ids, use_cache=False).logits
    upcast = logits if dtype == torch.float64 else logits.float()
    return torch.nn.functional.cross_entropy(upcast[:, :-1].reshape(-1, upcast.shape[-1]), ids[:, 1:].reshape(-1)), logits


def run(family, case, dtype, round_to=None, scale=1.0):
    model, named, saved = build(family, case, dtype, round_to)
    loss, logits = loss_of(model, tokens(case, 0), dtype)
    (loss * scale).backward()
    return loss.item(), logits[:, -1].detach().double().numpy(), {n: p.grad.double().numpy() / scale for n, p in named.items()}, saved


def trajectory(family, case):
    model, _, _ = build(family, case, torch.float64)
    optimizer, losses = torch.optim.AdamW(model.parameters(), **ADAMW), []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, _ = loss_of(model, tokens(case, step), torch.float64)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def sixteen_bit(family, case, dtype, scale):
    loss, _, gradients, _ = run(family, case, dtype, dtype, scale)
    true_loss, _, true_gradients, _ = run(family, case, torch.float64, dtype)
    errors = {n: float(np.linalg.norm(gradients[n] - g) / max(np.linalg.norm(g), 1e-30)) for n, g in true_gradients.items()}
    return dict(loss_error=abs(loss - true_loss) / true_loss, gradient_errors=errors)


def write(family):
    index, blob = [], bytearray()

    def store(array):
        offset = len(blob) // 4
        blob.extend(np.ascontiguousarray(array, dtype="<f4").tobytes())
        return dict(offset=offset, shape=list(array.shape))

    for case in FAMILIES[family]:
        with fp64_stays():
            loss, last, gradients, saved = run(family, case, torch.float64)
            entry = dict(name=case["name"], rows=case["rows"], sequence=case["sequence"], config=saved, loss=loss, last_logits=store(last),
                         gradients={n: store(g) for n, g in sorted(gradients.items())}, trajectory=trajectory(family, case))
        if case.get("sixteen_bit"):
            for name, dtype, scale in (("bf16", torch.bfloat16, 1.0), ("fp16", torch.float16, FP16_LOSS_SCALE)):
                entry[name] = dict(scale=scale, **sixteen_bit(family, case, dtype, scale))
        loss32, _, gradients32, _ = run(family, case, torch.float32)
        worst = max(np.abs(gradients32[n] - g).max() / np.abs(g).max() for n, g in gradients.items() if "bias" not in n)
        print(f"{family}, {case['name']}: loss {loss:.9f}; torch fp32 loss off by {abs(loss32 - loss) / loss:.1e}, gradients by {worst:.1e}; "
              f"{sum(g.size for g in gradients.values())} parameters")
        index.append(entry)
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / f"{family}.json").write_text(json.dumps(index) + "\n")
    (DATA / f"{family}.bin").write_bytes(bytes(blob))
    config = transformers.AutoConfig.for_model(family)
    with tempfile.TemporaryDirectory() as directory:
        config.save_pretrained(directory)
        default = json.loads((pathlib.Path(directory) / "config.json").read_text())
    for derived in ("transformers_version", *(["num_key_value_heads"] if family == "gpt_bigcode" else [])):
        default.pop(derived)
    for field in dataclasses.fields(config):  # those that the class derives from others are None
        if field.name in default and field.name != "rope_parameters" and field.default is not dataclasses.MISSING:
            default[field.name] = field.default
    (DATA / f"{family}.default.json").write_text(json.dumps(default, indent=1) + "\n")


def main():
    torch.set_num_threads(1)
    for family in sys.argv[1:] or FAMILIES:
        write(family)


if __name__ == "__main__":
    main()
