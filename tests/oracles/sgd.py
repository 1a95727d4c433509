#!/usr/bin/env python3
"""Writes sgd.json: weights and momentum buffers of torch.optim.SGD (the single-tensor CPU code) in fp32.

    python3 tests/oracles/sgd.py      needs torch
"""
import json
import pathlib

import torch

N, STEPS = 21, 6
CASES = [
    dict(lr=1e-2, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False),
    dict(lr=5e-2, momentum=0.0, dampening=0.0, weight_decay=0.1, nesterov=False),
    dict(lr=1e-2, momentum=0.9, dampening=0.0, weight_decay=0.0, nesterov=False),
    dict(lr=1e-3, momentum=0.9, dampening=0.5, weight_decay=0.3, nesterov=False),
    dict(lr=1e-2, momentum=0.8, dampening=0.0, weight_decay=0.01, nesterov=True),
]


def main():
    torch.manual_seed(20261122)
    start = torch.randn(N)
    gradients = torch.randn(STEPS, N) * torch.logspace(-6, 2, N)  # eight orders of magnitude
    gradients[:, 3] = 0.0
    out = {"torch": torch.__version__, "start": start.tolist(), "gradients": gradients.tolist(), "cases": []}
    for case in CASES:
        weight = torch.nn.Parameter(start.clone())
        optimizer = torch.optim.SGD([weight], foreach=False, fused=False, **case)
        for gradient in gradients:
            weight.grad = gradient.clone()
            optimizer.step()
        buffer = optimizer.state[weight].get("momentum_buffer")
        out["cases"].append({**case, "weight": weight.tolist(),
                             "momentum_buffer": [] if buffer is None else buffer.tolist()})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('],"', '],\n"').replace("],[", "],\n[") + "\n")


main()
