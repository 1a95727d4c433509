#!/usr/bin/env python3
"""Writes grad_scaler.json: the scale after each step of random histories, from torch.amp.GradScaler.

    python3 tests/oracles/grad_scaler.py      needs torch
"""
import json
import pathlib
import random

import torch


def run(interval, history):
    scaler = torch.amp.GradScaler("cpu", growth_interval=interval)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scales = []
    for step in history:
        scaler.scale(weight.sum())
        weight.grad = torch.full_like(weight, float("inf") if step == "o" else 1.0)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return {"interval": interval, "history": history, "scales": scales}


def main():
    random.seed(20261126)
    cases = []
    for interval in (1, 2, 3, 7):
        for probability in (0.0, 0.1, 0.4):
            cases.append(run(interval, "".join("o" if random.random() < probability else "." for _ in range(40))))
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps({"torch": torch.__version__, "cases": cases}, separators=(",", ":")).replace("},{", "},\n{") + "\n")


main()
