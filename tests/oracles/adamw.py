#!/usr/bin/env python3
"""Writes adamw.json: weights and moments of torch.optim.AdamW and torch.optim.Adam (the single-tensor CPU code) in fp32.

    python3 tests/oracles/adamw.py      needs torch; the stored file was made with 2.15.0
"""
import json
import pathlib

import torch

N, STEPS = 21, 6
CASES = [
    dict(optimizer="AdamW", lr=1e-3, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.01),
    dict(optimizer="AdamW", lr=6e-4, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.1),
    dict(optimizer="AdamW", lr=5e-2, betas=[0.5, 0.7], eps=1e-3, weight_decay=0.0),
    dict(optimizer="Adam", lr=1e-3, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.0),
    dict(optimizer="Adam", lr=2e-3, betas=[0.9, 0.99], eps=1e-6, weight_decay=0.3),
]


def main():
    torch.manual_seed(20261121)
    start = torch.randn(N)
    gradients = torch.randn(STEPS, N) * torch.logspace(-6, 2, N)  # eight orders of magnitude
    gradients[:, 3] = 0.0
    out = {"torch": torch.__version__, "start": start.tolist(), "gradients": gradients.tolist(), "cases": []}
    for case in CASES:
        weight = torch.nn.Parameter(start.clone())
        settings = {k: v for k, v in case.items() if k != "optimizer"}
        optimizer = getattr(torch.optim, case["optimizer"])([weight], foreach=False, fused=False, **settings)
        for gradient in gradients:
            weight.grad = gradient.clone()
            optimizer.step()
        state = optimizer.state[weight]
        out["cases"].append({**case, "weight": weight.tolist(), "exp_avg": state["exp_avg"].tolist(),
                             "exp_avg_sq": state["exp_avg_sq"].tolist()})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('],"', '],\n"').replace("],[", "],\n[") + "\n")


main()
