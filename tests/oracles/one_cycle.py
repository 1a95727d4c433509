#!/usr/bin/env python3
"""Writes one_cycle.json: beta1 of the optimizer steps 1 to 26 under DeepSpeed's OneCycle with cycle_momentum, and beta2.

    python3 tests/oracles/one_cycle.py      needs torch and deepspeed; the stored file was made with deepspeed 0.19.8
"""
import json
import pathlib

import deepspeed
import torch
from deepspeed.runtime.lr_schedules import OneCycle

CASES = [
    {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 10},
    {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-2, "cycle_first_step_size": 4, "cycle_second_step_size": 7, "decay_step_size": 3,
     "cycle_min_mom": 0.85, "cycle_max_mom": 0.95, "decay_mom_rate": 1e-3},
    {"cycle_min_lr": 1e-3, "cycle_max_lr": 0.1, "cycle_first_step_size": 9, "cycle_second_step_size": 6, "cycle_first_stair_count": 3,
     "cycle_second_stair_count": 2, "decay_step_size": 2, "cycle_max_mom": 0.92},
]


def run(params):
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], betas=(0.9, 0.999))
    schedule, betas = OneCycle(optimizer, **params), []
    for _ in range(26):
        betas.append(optimizer.param_groups[0]["betas"])
        schedule.step()
    return {"params": params, "beta1": [b[0] for b in betas], "beta2": betas[0][1]}


path = pathlib.Path(__file__).with_suffix(".json")
path.write_text(json.dumps({"deepspeed": deepspeed.__version__, "cases": [run(p) for p in CASES]}).replace("}, {", "},\n{") + "\n")
