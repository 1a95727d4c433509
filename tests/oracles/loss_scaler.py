#!/usr/bin/env python3
"""Writes loss_scaler.json: the scale after each step of random histories, from DeepSpeed's own DynamicLossScaler.

    python3 tests/oracles/loss_scaler.py      needs torch and deepspeed; the stored file was made with deepspeed 0.19.8
"""
import json
import pathlib
import random

import deepspeed
from deepspeed.runtime.fp16 import loss_scaler

loss_scaler.dist.get_rank = lambda: 1  # the scaler asks only to choose who logs


def run(power, window, hysteresis, consecutive, least, history):
    scaler = loss_scaler.DynamicLossScaler(2.0**power, window, least, hysteresis, consecutive)
    scales, ends = [], False
    for step in history:
        try:
            scaler.update_scale(step == "o")
        except Exception:
            ends = True
            break
        scales.append(scaler.cur_scale)
    return {"power": power, "window": window, "hysteresis": hysteresis, "consecutive": consecutive, "min_scale": least,
            "history": history, "scales": scales, "ends": ends, "last_overflow": scaler.last_overflow_iter,
            "left": scaler.cur_hysteresis}


def main():
    random.seed(20261121)
    cases = []
    for number in range(24):
        probability = random.choice([0.05, 0.2, 0.5])
        history = "".join("o" if random.random() < probability else "." for _ in range(40))
        cases.append(run(random.choice([0, 2, 4, 16]), random.choice([1, 2, 3, 7]), random.choice([1, 2, 3]), number % 3 == 0,
                         random.choice([1.0, 1.0, 3.0]), history))
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"deepspeed": deepspeed.__version__, "cases": cases}, separators=(",", ":")).replace("},{", "},\n{") + "\n")


main()
