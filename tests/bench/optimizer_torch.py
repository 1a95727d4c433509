#!/usr/bin/env python3
"""PyTorch's optimizer step on the sizes of bench.optimizer; one JSON line a metric, seconds are medians of interleaved rounds.

    OMP_NUM_THREADS=2 python3 tests/bench/optimizer_torch.py [elements = 100000000] [rounds = 7]

adamw_*: torch.optim.AdamW on one fp32 tensor.  passes_*: what a trainer runs around it as separate passes: norm, finite check, unscale
and clip, step, and for bf16 gradients the cast in and the cast of the new weights out. adamw_deepspeed: DeepSpeedCPUAdam, where DeepSpeed is
installed and its operator builds (DS_ACCELERATOR=cpu, ninja and g++). TESSERA_BENCH_CLOCK=cpu measures processor time, as in bench.optimizer.
"""
import json
import os
import sys
import time

import torch

try:
    from deepspeed.ops.adam import DeepSpeedCPUAdam
except ImportError:
    DeepSpeedCPUAdam = None

clock = time.process_time if os.environ.get("TESSERA_BENCH_CLOCK") == "cpu" else time.perf_counter


def main():
    n = int(float(sys.argv[1])) if len(sys.argv) > 1 else 100_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    weight = torch.nn.Parameter((torch.arange(n) % 1009).float() * 1e-3 - 0.5)
    weight.grad = weight.detach().clone()
    gradient16, weight16 = weight.detach().bfloat16(), torch.zeros(n, dtype=torch.bfloat16)
    optimizers = {kind: torch.optim.AdamW([weight], lr=1e-6, weight_decay=0.1, **{kind: True}) for kind in ("fused", "foreach")}

    def passes(gradient):
        norm = torch.linalg.vector_norm(gradient, dtype=torch.float32)
        finite = torch.isfinite(gradient).all().item()
        factor = 0.5 * min(1.0, 1.0 / (float(norm) * 0.5 + 1e-6))
        if gradient is not weight.grad:
            weight.grad.copy_(gradient)
        weight.grad.mul_(factor)
        if finite:
            optimizers["fused"].step()

    def fp32_passes():
        passes(weight.grad)

    def bf16_passes():
        passes(gradient16)
        weight16.copy_(weight.detach())

    alternatives = {"adamw_fused": optimizers["fused"].step, "adamw_foreach": optimizers["foreach"].step,
                    "passes_fp32": fp32_passes, "passes_bf16": bf16_passes}
    if DeepSpeedCPUAdam:
        alternatives["adamw_deepspeed"] = DeepSpeedCPUAdam([weight], lr=1e-6, weight_decay=0.1, adamw_mode=True).step
    samples = {name: [] for name in alternatives}
    for index in range(rounds + 1):
        for name, work in alternatives.items():
            begin = clock()
            work()
            if index:
                samples[name].append(clock() - begin)
    for name, times in samples.items():
        times.sort()
        print(json.dumps({"metric": f"torch_{name}", "seconds": times[len(times) // 2], "spread": (times[-1] - times[0]) / times[len(times) // 2],
                          "elements": n, "threads": torch.get_num_threads(), "torch": torch.__version__}), flush=True)


main()
