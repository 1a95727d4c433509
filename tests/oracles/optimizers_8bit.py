#!/usr/bin/env python3
"""Writes optimizers_8bit.json: 15 steps of bitsandbytes' optimizers with 8-bit states on the CPU, its maps, and every
STRIDE-th weight and dequantized state at the end.

The CPU library of bitsandbytes quantizes through a coarse table: small numbers get other codes than on a GPU. Here the
nearest code is searched, as its CUDA kernels and its PyTorch code do.

    python3 tests/oracles/optimizers_8bit.py      needs torch and bitsandbytes 0.50.2
"""
import json
import pathlib

import bitsandbytes
import torch
from bitsandbytes import functional
from bitsandbytes.backends.cpu import ops as cpu

N, STEPS, STRIDE = 5000, 15, 31
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CASES = [
    ("AdamW8bit", dict(lr=1e-2, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.1)),
    ("AdamW8bit", dict(lr=1e-3, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.0)),
    ("Lion8bit", dict(lr=1e-3, betas=[0.9, 0.99], weight_decay=0.1)),
    ("Lion8bit", dict(lr=1e-3, betas=[0.95, 0.98], weight_decay=0.0)),
    ("RMSprop8bit", dict(lr=1e-3, alpha=0.99, eps=1e-8, weight_decay=0.1)),
    ("RMSprop8bit", dict(lr=1e-3, alpha=0.9, eps=1e-6, weight_decay=0.0)),
]
STATES = {"AdamW8bit": ["exp_avg", "exp_avg_sq"], "Lion8bit": ["exp_avg"], "RMSprop8bit": ["square_avg"]}


def inputs():
    """Exact in fp32, and made by the same integers in the tests."""
    i = torch.arange(N, dtype=torch.int64)
    start = ((i * 7919 % 4093) - 2046).double() / 2048
    gradients = [((i * 104729 + t * 15485863) % 2003 - 1001).double() / 1024 * 2.0 ** -(i % 6).double() for t in range(1, STEPS + 1)]
    return start.float(), [g.float() for g in gradients]


def nearest(values, code, absmax_out, out, blocksize):
    rows = torch.nn.functional.pad(values.flatten(), (0, -values.numel() % blocksize)).view(-1, blocksize)
    absmax = rows.abs().max(dim=1)[0]
    scaled = (rows / absmax.where(absmax > 0, torch.ones(()))[:, None]).flatten()[:values.numel()]
    middle = (code[:-1].double() + code[1:].double()) / 2
    out.copy_(torch.searchsorted(middle, scaled.double()).to(torch.uint8).view(out.shape))
    absmax_out.copy_(absmax)


def run(algorithm, values, rounded):
    start, gradients = inputs()
    weight = torch.nn.Parameter(start.clone())
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    optimizer = getattr(bitsandbytes.optim, algorithm)([weight], **values)
    for gradient in gradients:
        weight.grad = gradient.to(rounded).float()
        optimizer.step()
    return weight.detach(), optimizer.state[weight]


def main():
    cpu._quant_blockwise_fp32_direct = nearest
    maps = {name: functional.create_dynamic_map(signed).tolist() for name, signed in (("signed", True), ("unsigned", False))}
    out = {"bitsandbytes": bitsandbytes.__version__, "torch": torch.__version__, "stride": STRIDE, "numel": N, "steps": STEPS,
           "maps": maps, "cases": []}
    for algorithm, values in CASES:
        weight, state = run(algorithm, values, torch.float32)
        assert state["state1"].dtype == torch.uint8
        states = {}
        for k, name in enumerate(STATES[algorithm], 1):
            absmax = state[f"absmax{k}"]
            dense = functional.dequantize_blockwise(state[f"state{k}"], absmax=absmax, code=state[f"qmap{k}"], blocksize=256)
            states[name] = dense[::STRIDE].tolist()
            states[name + "_absmax"] = absmax.tolist()
        halves = {f"weight_{name}": run(algorithm, values, dtype)[0][::STRIDE].tolist() for name, dtype in HALVES.items()}
        out["cases"].append({"algorithm": algorithm, **values, "weight": weight[::STRIDE].tolist(), **halves, "states": states})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('],"', '],\n"') + "\n")


main()
