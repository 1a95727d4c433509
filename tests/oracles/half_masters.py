#!/usr/bin/env python3
"""Writes half_masters.json: 15 steps of DeepSpeed's CPU optimizers with parameters of 16 bits, which are the master weights of
fp16_master_weights_and_grads and bf16_master_weights_and_grads, with states in fp32 or (bf16_optimizer_states,
fp32_optimizer_states false) in 16 bits. Weights and states at the end.

    python3 tests/oracles/half_masters.py      needs torch and deepspeed with a compiler (its CPU kernels)
"""
import json
import pathlib

import deepspeed
import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam
from deepspeed.ops.lion import DeepSpeedCPULion

N, STEPS = 37, 15
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
CASES = [
    ("AdamW", dict(lr=1e-2, betas=[0.9, 0.999], eps=1e-8, weight_decay=0.1)),
    ("Adam", dict(lr=1e-2, betas=[0.8, 0.95], eps=1e-6, weight_decay=0.1)),
    ("Lion", dict(lr=1e-2, betas=[0.9, 0.99], weight_decay=0.1)),
]


def values(tensor):
    return [float(x) for x in tensor.float()]


def run(algorithm, params, dtype, state_dtype, start, gradients):
    parameter = torch.nn.Parameter(start.to(dtype))
    if algorithm == "Lion":
        optimizer = DeepSpeedCPULion([parameter], fp32_optimizer_states=state_dtype == torch.float32, **params)
    else:
        optimizer = DeepSpeedCPUAdam([parameter], adamw_mode=algorithm == "AdamW", fp32_optimizer_states=state_dtype == torch.float32, **params)
    for row in gradients:
        parameter.grad = row.to(dtype)
        optimizer.step()
    state = optimizer.state[parameter]
    return values(parameter.data), {k: values(v) for k, v in state.items() if k.startswith("exp_avg")}


def main():
    torch.manual_seed(7)
    start = torch.randn(N) * 0.3
    gradients = torch.randn(STEPS, N) * torch.logspace(-3, 0, N)
    cases = []
    for algorithm, params in CASES:
        for name, dtype in DTYPES.items():
            for states in ("fp32", name):
                weight, state = run(algorithm, params, dtype, torch.float32 if states == "fp32" else dtype, start, gradients)
                cases.append(dict(algorithm=algorithm, **params, dtype=name, state_dtype=states, weight=weight, states=state))
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(dict(made_with=f"deepspeed {deepspeed.__version__}, torch {torch.__version__.split('+')[0]}", start=values(start),
                                    gradients=[values(g) for g in gradients], cases=cases), indent=0) + "\n")


if __name__ == "__main__":
    main()
