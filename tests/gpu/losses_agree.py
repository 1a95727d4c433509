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
first, second = (json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["loss"] for run in a.runs)
print("losses", first, second)
sys.exit(not (first > 0 and abs(first - second) < a.tolerance * second))
