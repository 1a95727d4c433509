#!/usr/bin/env python3
"""Writes muon.json: 15 steps of DeepSpeed's Muon in fp32 on a wide, a tall and a square matrix, and of its AdamW on a vector.

    python3 tests/oracles/muon.py      needs torch, deepspeed (on a CPU without fp16 products its iterations run in fp32)
"""
import json
import os
import pathlib

os.environ["TORCHDYNAMO_DISABLE"] = "1"
import torch
from deepspeed.runtime.zero.muon import original_muon
from deepspeed.runtime.zero.muon.muon_optimizer import MuonWithAuxAdam

SIZE, STEPS = 36, 15
CASES = [
    dict(shape=[4, 9], ns_method="gram", lr=2e-2, weight_decay=0.0, momentum=0.95),
    dict(shape=[9, 4], ns_method="gram", lr=2e-2, weight_decay=0.1, momentum=0.95),
    dict(shape=[6, 6], ns_method="standard", lr=1e-2, weight_decay=0.01, momentum=0.8),
    dict(shape=[36], lr=1e-3, weight_decay=0.1, betas=[0.9, 0.95], eps=1e-10),
    dict(shape=[36], lr=1e-2, weight_decay=0.0, betas=[0.8, 0.99], eps=1e-8),
]


def main():
    original_muon.ns_compute_dtype = lambda method="gram": torch.float32
    torch.manual_seed(20261125)
    start = torch.randn(SIZE)
    gradients = torch.randn(STEPS, SIZE)
    out = {"start": start.tolist(), "gradients": gradients.tolist(), "cases": []}
    for values in CASES:
        shape = values["shape"]
        group = {k: v for k, v in values.items() if k != "shape"}
        group["betas"] = group.get("betas", (0.9, 0.95))

        def run(rounded):
            weight = torch.nn.Parameter(start.reshape(shape).clone())
            matrix = {k: v for k, v in group.items() if k != "betas"}
            optimizer = MuonWithAuxAdam([dict(matrix if len(shape) > 1 else group, params=[weight], use_muon=len(shape) > 1)])
            for gradient in gradients:
                weight.grad = gradient.to(rounded).float().reshape(shape).clone()  # Muon writes to it
                optimizer.step()
            return weight.detach().flatten().tolist(), optimizer.state[weight]

        weight, state = run(torch.float32)
        # weights of 16-bit training: the gradients are rounded, weights and states are not
        halves = {f"weight_{name}": run(dtype)[0] for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16))}
        zeros = [0.0] * SIZE
        first = state.get("momentum_buffer", state.get("exp_avg"))
        second = state["exp_avg_sq"].flatten().tolist() if "exp_avg_sq" in state else zeros
        stored = {k: v for k, v in values.items() if k != "ns_method"}
        out["cases"].append({"algorithm": "Muon", **stored, "weight": weight, **halves,
                             "states": {"exp_avg": first.flatten().tolist(), "exp_avg_sq": second}})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('],"', '],\n"').replace("],[", "],\n[") + "\n")


main()
