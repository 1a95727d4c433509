#!/usr/bin/env python3
"""Writes tests/model/data/autocast.json: how far torch.autocast on the CPU is from fp64, for the stored cases of gpt2.py and model_families.py.

  python3 tests/oracles/autocast.py        needs torch, transformers, numpy, safetensors

Per case and dtype: the loss under autocast, and the relative L2 error of every gradient of the fp32 weights, which a faithful
implementation may have as well.
"""
import json
import pathlib

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import gpt2
import model_families

PATH = pathlib.Path(__file__).resolve().parent.parent / "model" / "data" / "autocast.json"
SCALES = {"bf16": (torch.bfloat16, 1.0), "fp16": (torch.float16, 1024.0)}
PER_FAMILY = 2  # of the first cases


def gpt2_model(case, dtype):
    config = GPT2Config(**gpt2.COMMON, **case["config"])
    config.reorder_and_upcast_attn &= dtype != torch.float64
    config._attn_implementation = "eager"
    model = GPT2LMHeadModel(config)
    values = gpt2.weights(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(values[name])
    return model.to(dtype).train(), dict(model.named_parameters())


def gradients(model, named, ids, autocast, scale):
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        logits = model(input_ids=ids, use_cache=False).logits
        upcast = logits if logits.dtype == torch.float64 else logits.float()
        loss = torch.nn.functional.cross_entropy(upcast[:, :-1].reshape(-1, upcast.shape[-1]), ids[:, 1:].reshape(-1))
    (loss * scale).backward()
    return loss.item(), {n: p.grad.double().numpy() / scale for n, p in named.items()}


def entry(build, ids):
    with model_families.fp64_stays():
        loss, exact = gradients(*build(torch.float64), ids, None, 1.0)
    out = {}
    for name, (dtype, scale) in SCALES.items():
        got, found = gradients(*build(torch.float32), ids, dtype, scale)
        errors = {n: float(np.linalg.norm(found[n] - g) / max(np.linalg.norm(g), 1e-30)) for n, g in exact.items()}
        out[name] = dict(scale=scale, loss=got, gradient_errors=errors)
        print(f"  {name}: loss {got:.6f}, exact {loss:.6f}; gradients off by up to {max(e for e in errors.values() if e < 1):.1e}")
    return out


def main():
    torch.set_num_threads(1)
    stored = {"gpt2": {}}
    for case in gpt2.CASES[:3]:
        print("gpt2", case["name"])
        stored["gpt2"][case["name"]] = entry(lambda dtype: gpt2_model(case, dtype), gpt2.tokens(case))
    for family, cases in model_families.FAMILIES.items():
        stored[family] = {}
        for case in cases[:PER_FAMILY]:
            print(family, case["name"])
            stored[family][case["name"]] = entry(lambda dtype: model_families.build(family, case, dtype)[:2], model_families.tokens(case, 0))
    PATH.write_text(json.dumps({"torch": torch.__version__, "families": stored}) + "\n")


if __name__ == "__main__":
    main()
