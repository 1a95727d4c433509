#!/usr/bin/env python3
"""Writes adafactor.json: 15 steps of transformers' Adafactor on a matrix and a vector, in fp32, with weights and states.

    python3 tests/oracles/adafactor.py      needs torch, transformers
"""
import json
import pathlib

import torch
import transformers
from transformers.optimization import Adafactor

ROWS, COLUMNS, STEPS = 5, 7, 15
FIXED = dict(lr=1e-2, relative_step=False)
CASES = [
    dict(FIXED, scale_parameter=False),  # as the Trainer constructs it
    dict(FIXED, scale_parameter=False, beta1=0.9, weight_decay=0.1),
    dict(FIXED, scale_parameter=True, clip_threshold=0.5, decay_rate=-0.5, eps=(1e-6, 0.1)),
    dict(lr=None, scale_parameter=True, relative_step=True),
    dict(lr=None, scale_parameter=True, relative_step=True, warmup_init=True, beta1=0.8),
]


HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def run(shape, values, start, gradients):
    weight = torch.nn.Parameter(start.reshape(shape).clone())
    optimizer = Adafactor([weight], **values)
    for gradient in gradients:
        weight.grad = gradient.reshape(shape).clone()
        optimizer.step()
    state = optimizer.state[weight]
    states = {k: v.flatten().tolist() for k, v in state.items() if torch.is_tensor(v) and k != "RMS"}
    if "exp_avg_sq" in states:  # a vector is a matrix with one column
        states["exp_avg_sq_row"] = states.pop("exp_avg_sq")
        states["exp_avg_sq_col"] = [0.0]
    return weight.detach().flatten().tolist(), states


def main():
    torch.manual_seed(20261124)
    start = torch.randn(ROWS * COLUMNS)
    gradients = torch.randn(STEPS, ROWS * COLUMNS) * torch.logspace(-3, 1, ROWS * COLUMNS)
    out = {"transformers": transformers.__version__, "start": start.tolist(), "gradients": gradients.tolist(), "cases": []}
    for values in CASES:
        for shape in ([ROWS, COLUMNS], [ROWS * COLUMNS]):
            weight, states = run(shape, values, start, gradients)
            stored = {k: v for k, v in values.items() if k not in ("eps", "lr")}
            stored["eps1"], stored["eps2"] = values.get("eps", (1e-30, 1e-3))
            # weights of 16-bit training: the gradients are rounded, weights and states are not
            halves = {f"weight_{name}": run(shape, values, start, gradients.to(dtype).float())[0] for name, dtype in HALVES.items()}
            out["cases"].append({"algorithm": "Adafactor", "lr": values["lr"] or 0.0, **stored, "shape": shape,
                                 "weight": weight, **halves, "states": states})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('],"', '],\n"').replace("],[", "],\n[") + "\n")


main()
