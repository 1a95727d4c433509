#!/usr/bin/env python3
"""The losses of the last steps of two runs agree.

    losses_agree.py [--tolerance 2e-3] RUN_DIRECTORY RUN_DIRECTORY"""
import argparse
import json
import pathlib
import sys

p = argparse.ArgumentParser()
p.add_argument("--tolerance", type=float, default=2e-3, help="relative")
p.add_argument("runs", nargs=2, type=pathlib.Path)
a = p.parse_args()


def last_loss(run):
    """Loss of the last step; the lines after it sum up the run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line][-1]


first, second = map(last_loss, a.runs)
print("losses", first, second)
sys.exit(not (first > 0 and abs(first - second) < a.tolerance * second))
