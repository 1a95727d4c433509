#!/usr/bin/env python3
"""What checkpoints in memory and verified steps cost a run without failures: the same training with and without them, in turn (A B C A B C ...).

    recovery_cost.py --bin build/host/bin [--rounds 3] [--steps 200] [--nodes 1,1] [--work DIR] [--mpiexec PROGRAM]

The model is GPT-2 of configs/gpt2-8m (8 million parameters), each rank a simulated node, so that every shard is also sent to another one. The
first steps, in which `--memory_save_steps auto` measures, do not count. One JSON line for each: the ratio of the mean times per step, and that
of each round. Needs only Python's standard library."""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from scenarios.recovery import Supervised  # noqa: E402
from support import Bench, zero  # noqa: E402

SKIPPED = 20  # steps


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--work", default="recovery_cost")
    parser.add_argument("--source", default=str(pathlib.Path(__file__).resolve().parents[2]))
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--nodes", default="1,1")
    return parser.parse_args()


def main():
    a = arguments_of()
    b = Bench(a)
    variants = {"plain": {}, "memory_save_steps auto": dict(memory_save_steps="auto"), "verify_steps 10": dict(verify_steps=10),
                "verify_steps 100": dict(verify_steps=100)}
    run = Supervised(b)
    run.flags.update(config_overrides=None, model_type=None, config_name=str(b.source / "configs/gpt2-8m"), block_size=128, per_device_train_batch_size=4,
                     max_steps=a.steps, save_strategy="no", save_steps=None, save_total_limit=None, eval_strategy="no", eval_steps=None, do_eval=None,
                     reproducible=None, deepspeed=b.config("ds.json", zero(2)))
    ranks = len(a.nodes.split(","))
    seconds = {name: [] for name in variants}
    for _ in range(a.rounds):
        for name, more in variants.items():
            shutil.rmtree(b.work / "run", ignore_errors=True)
            run.finish(run.start("run", a.nodes, **more, gradient_accumulation_steps=1), timeout=3600)
            times = [m["seconds"] for m in b.metrics("run") if "loss" in m and m["step"] > SKIPPED]
            seconds[name].append(sum(times) / len(times))
            if name.startswith("memory"):
                print(json.dumps({"memory_save": b.status("run").get("memory_save")}), flush=True)
    for name in list(variants)[1:]:
        ratios = [x / y for x, y in zip(seconds[name], seconds["plain"])]
        print(json.dumps({"metric": name, "value": round(statistics.median(ratios), 4), "rounds": [round(r, 4) for r in ratios],
                          "seconds_per_step": round(statistics.median(seconds[name]), 4), "plain": round(statistics.median(seconds["plain"]), 4),
                          "ranks": ranks, "cores": os.cpu_count()}), flush=True)


if __name__ == "__main__":
    main()
