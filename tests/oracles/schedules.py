#!/usr/bin/env python3
"""Writes schedules.json: the learning rate that optimizer step k = 1, 2, ... uses, from transformers and DeepSpeed themselves.

    python3 tests/oracles/schedules.py      needs torch, transformers, deepspeed; the stored file was made with 2.15.0, 5.23, 0.19.8
"""
import json
import pathlib

import deepspeed
import torch
import transformers
from deepspeed.runtime import lr_schedules

HF = [
    ("linear", 3e-4, 0, 7, {}), ("linear", 3e-4, 4, 12, {}), ("linear", 1e-3, 5, 5, {}), ("linear", 1e-3, 9, 5, {}),
    ("cosine", 6e-4, 3, 11, {}), ("cosine", 6e-4, 0, 9, {"num_cycles": 1.25}),
    ("cosine_with_restarts", 6e-4, 2, 12, {}), ("cosine_with_restarts", 6e-4, 2, 14, {"num_cycles": 3}),
    ("polynomial", 5e-5, 3, 10, {}), ("polynomial", 1e-3, 0, 10, {"lr_end": 1e-5, "power": 2.5}),
    ("constant", 1e-4, 3, 5, {}), ("constant_with_warmup", 1e-4, 3, 8, {}),
    ("inverse_sqrt", 1e-3, 4, 12, {}), ("inverse_sqrt", 1e-3, 0, 8, {}), ("inverse_sqrt", 1e-3, 2, 8, {"timescale": 7}),
    ("cosine_with_min_lr", 1e-3, 3, 12, {"min_lr": 1e-4}), ("cosine_with_min_lr", 1e-3, 0, 9, {"min_lr_rate": 0.2, "num_cycles": 1.0}),
    ("cosine_warmup_with_min_lr", 1e-3, 3, 12, {"min_lr_rate": 0.1}),
    ("cosine_warmup_with_min_lr", 1e-3, 4, 12, {"min_lr": 2e-4, "warmup_lr_rate": 0.05}),
    ("warmup_stable_decay", 1e-3, 3, 15, {"num_decay_steps": 5}),
    ("warmup_stable_decay", 1e-3, 4, 15, {"num_decay_steps": 6, "num_stable_steps": 3, "warmup_type": "cosine", "decay_type": "1-sqrt", "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", 1e-3, 4, 15, {"num_decay_steps": 4, "warmup_type": "1-sqrt", "decay_type": "linear"}),
]
DEEPSPEED = [
    ("LRRangeTest", {}), ("LRRangeTest", {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 5, "lr_range_test_step_rate": 3.0}),
    ("LRRangeTest", {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 5, "lr_range_test_staircase": True}),
    ("OneCycle", {"cycle_min_lr": 0.01, "cycle_max_lr": 0.1, "cycle_first_step_size": 10, "cycle_momentum": False}),
    ("OneCycle", {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-2, "decay_lr_rate": 1e-3, "cycle_first_step_size": 4,
                  "cycle_second_step_size": 7, "decay_step_size": 3, "cycle_momentum": False}),
    ("OneCycle", {"cycle_min_lr": 1e-3, "cycle_max_lr": 0.1, "decay_lr_rate": 0.1, "cycle_first_step_size": 9, "cycle_second_step_size": 6,
                  "cycle_first_stair_count": 3, "cycle_second_stair_count": 2, "decay_step_size": 2, "cycle_momentum": False}),
    ("OneCycle", {"cycle_min_lr": 1e-3, "cycle_max_lr": 0.1, "cycle_first_step_size": 5, "cycle_second_step_size": 0, "cycle_momentum": False}),
    ("WarmupLR", {"warmup_num_steps": 10}), ("WarmupLR", {"warmup_min_lr": 1e-5, "warmup_max_lr": 2e-3, "warmup_num_steps": 8, "warmup_type": "linear"}),
    ("WarmupLR", {"warmup_num_steps": 1}), ("WarmupDecayLR", {"total_num_steps": 20, "warmup_num_steps": 10}),
    ("WarmupDecayLR", {"total_num_steps": 20, "warmup_min_lr": 0.1, "warmup_max_lr": 0.2, "warmup_num_steps": 15, "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 4, "warmup_num_steps": 6}),
    ("WarmupCosineLR", {"total_num_steps": 20, "warmup_num_steps": 6}),
    ("WarmupCosineLR", {"total_num_steps": 18, "warmup_min_ratio": 0.2, "warmup_num_steps": 5, "cos_min_ratio": 0.1, "warmup_type": "linear"}),
    ("WarmupCosineLR", {"total_num_steps": 8, "warmup_num_steps": 8}),
]
DEEPSPEED_STEPS, DEEPSPEED_LR = 26, 1.5e-3


def rates(optimizer, scheduler, steps):
    out = []
    for _ in range(steps):
        out.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return out


def make_optimizer(lr):
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def main():
    out = {"transformers": transformers.__version__, "deepspeed": deepspeed.__version__, "hf_cases": [], "deepspeed_cases": []}
    for name, lr, warmup, total, kwargs in HF:
        optimizer = make_optimizer(lr)
        scheduler = transformers.get_scheduler(name, optimizer, warmup, total, scheduler_specific_kwargs=kwargs)
        out["hf_cases"].append({"type": name, "learning_rate": lr, "warmup_steps": warmup, "total_steps": total, "kwargs": kwargs,
                                "rates": rates(optimizer, scheduler, total + 2)})
    for name, params in DEEPSPEED:
        optimizer = make_optimizer(DEEPSPEED_LR)
        scheduler = getattr(lr_schedules, name)(optimizer, **params)
        out["deepspeed_cases"].append({"section": {"type": name, "params": params}, "learning_rate": DEEPSPEED_LR,
                                       "rates": rates(optimizer, scheduler, DEEPSPEED_STEPS)})
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, separators=(",", ":")).replace('},{', '},\n{') + "\n")


main()
