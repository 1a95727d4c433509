#!/usr/bin/env python3
"""Stored vectors for tests/model/families/gpt2.test.cpp, from transformers' GPT2LMHeadModel on the CPU.

  python3 tests/oracles/gpt2.py            writes tests/model/data/{gpt2_cases.json, gpt2_cases.bin, gpt2_default_config.json}

Weights and tokens are not stored: both sides compute them from `unit()` below, which is exact in fp32.  Per case the files hold
  loss            mean of the token losses over rows * (sequence - 1) predictions, fp64 run
  last_logits     logits of the last position, [rows, vocab] fp32
  gradients       of that mean, per parameter, fp32 (rounded from an fp64 run)
  bf16, fp16      relative L2 error of every gradient, and relative error of the loss, of torch in that dtype against an fp64 run
                  with the same rounded weights: what a faithful implementation may lose
Needs torch, transformers, numpy.
"""
import json
import pathlib

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

DATA = pathlib.Path(__file__).resolve().parent.parent / "model" / "data"
FP16_LOSS_SCALE = 1024.0

COMMON = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
CASES = [
    dict(name="tied", rows=2, sequence=16, config=dict(vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=4)),
    dict(name="odd_sizes", rows=3, sequence=13,
         config=dict(vocab_size=53, n_positions=20, n_embd=48, n_layer=1, n_head=3, n_inner=40, layer_norm_epsilon=1e-3)),
    dict(name="untied", rows=1, sequence=9,
         config=dict(vocab_size=61, n_positions=12, n_embd=24, n_layer=2, n_head=2, tie_word_embeddings=False,
                     scale_attn_by_inverse_layer_idx=True)),
    dict(name="unscaled", rows=4, sequence=7,
         config=dict(vocab_size=33, n_positions=7, n_embd=16, n_layer=2, n_head=4, scale_attn_weights=False,
                     reorder_and_upcast_attn=True)),
    dict(name="one_head", rows=1, sequence=2, config=dict(vocab_size=2, n_positions=5, n_embd=5, n_layer=1, n_head=1)),
]


def unit(stream, count):
    """float32 in [-1, 1), 24 bits: splitmix64 of (stream << 32) + element."""
    with np.errstate(over="ignore"):
        z = (np.uint64(stream) << np.uint64(32)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-23)) - np.float32(1.0)


def weights(model):
    """Uniform weights of a size that makes every term matter; LayerNorm weights around one."""
    out = {}
    for stream, (name, parameter) in enumerate(model.named_parameters(), start=1):
        w = unit(stream, parameter.numel()) * np.float32(0.25)
        if ".ln_" in name and name.endswith("weight"):
            w = w + np.float32(1.0)
        out[name] = torch.from_numpy(w.reshape(parameter.shape))
    return out


def tokens(case):
    u = unit(1000, case["rows"] * case["sequence"]).astype(np.float64)
    ids = np.floor((u + 1.0) / 2.0 * case["config"]["vocab_size"]).astype(np.int64)
    return torch.from_numpy(ids.reshape(case["rows"], case["sequence"]))


def run(case, dtype, round_to=None, scale=1.0):
    """Loss, last logits and gradients in float64 arrays; weights rounded to round_to first."""
    config = GPT2Config(**COMMON, **case["config"])
    config.reorder_and_upcast_attn &= dtype != torch.float64  # it insists on fp32 scores
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config)
    values = weights(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name].to(round_to or torch.float32))
    model = model.to(dtype).train()
    ids = tokens(case)
    logits = model(input_ids=ids, use_cache=False).logits
    upcast = logits.double() if dtype == torch.float64 else logits.float()
    loss = torch.nn.functional.cross_entropy(upcast[:, :-1].reshape(-1, upcast.shape[-1]), ids[:, 1:].reshape(-1))
    (loss * scale).backward()
    gradients = {n: p.grad.double().numpy() / scale for n, p in model.named_parameters()}
    return loss.item(), logits[:, -1].detach().double().numpy(), gradients


def sixteen_bit(case, dtype, scale):
    loss, _, gradients = run(case, dtype, round_to=dtype, scale=scale)
    true_loss, _, true_gradients = run(case, torch.float64, round_to=dtype)
    errors = {n: float(np.linalg.norm(gradients[n] - g) / max(np.linalg.norm(g), 1e-30)) for n, g in true_gradients.items()}
    return dict(loss_error=abs(loss - true_loss) / true_loss, gradient_errors=errors)


def main():
    torch.set_num_threads(1)
    DATA.mkdir(parents=True, exist_ok=True)
    index, blob = [], bytearray()

    def store(array):
        offset = len(blob) // 4
        blob.extend(np.ascontiguousarray(array, dtype="<f4").tobytes())
        return dict(offset=offset, shape=list(array.shape))

    for case in CASES:
        loss, last, gradients = run(case, torch.float64)
        entry = dict(name=case["name"], rows=case["rows"], sequence=case["sequence"], config={"model_type": "gpt2", **COMMON, **case["config"]},
                     loss=loss, last_logits=store(last), gradients={n: store(g) for n, g in gradients.items()})
        entry["bf16"] = sixteen_bit(case, torch.bfloat16, 1.0)
        entry["fp16"] = dict(scale=FP16_LOSS_SCALE, **sixteen_bit(case, torch.float16, FP16_LOSS_SCALE))
        loss32, _, gradients32 = run(case, torch.float32)
        worst = max(np.abs(gradients32[n] - g).max() / np.abs(g).max() for n, g in gradients.items() if not n.endswith("c_attn.bias"))
        print(f"{case['name']}: loss {loss:.9f}; torch fp32 loss off by {abs(loss32 - loss) / loss:.1e}, gradients by {worst:.1e}")
        index.append(entry)
    (DATA / "gpt2_cases.json").write_text(json.dumps(index, indent=1) + "\n")
    (DATA / "gpt2_cases.bin").write_bytes(bytes(blob))

    default = GPT2Config(architectures=["GPT2LMHeadModel"]).to_dict()
    common = GPT2Config().to_json_string(use_diff=True)
    keep = set(json.loads(common)) - {"transformers_version"} | {"architectures"}
    (DATA / "gpt2_default_config.json").write_text(json.dumps({k: default[k] for k in sorted(keep)}, indent=1) + "\n")
    print(f"{len(blob)} bytes of vectors")


if __name__ == "__main__":
    main()
