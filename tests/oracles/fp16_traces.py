#!/usr/bin/env python3
"""Writes fp16_traces.json: the loss scale and the skipped steps of real DeepSpeed fp16 runs on 1, 2 and 4 CPU ranks at stages 0 to 3.

    python3 tests/oracles/fp16_traces.py      needs torch and deepspeed; the stored file was made with torch 2.15, deepspeed 0.19.8

Each rank's loss is (w * c).sum(), so that its gradient is c times the loss scale, rounded to fp16; c differs by step, micro-step and rank.
DeepSpeed's stage 0 does not multiply the loss by the scale although its step divides by it; here the loss is multiplied for it.
"""
import json
import os
import pathlib
import random

import torch
import torch.distributed
import torch.multiprocessing

STEPS = 24
SCALERS = {
    "hysteresis": dict(initial_scale_power=6, loss_scale_window=2, hysteresis=2, min_loss_scale=1),
    "consecutive": dict(initial_scale_power=5, loss_scale_window=3, hysteresis=3, consecutive_hysteresis=True, min_loss_scale=1),
    "minimum": dict(initial_scale_power=6, loss_scale_window=2, hysteresis=1, min_loss_scale=32),
    "static": dict(loss_scale=32.0),
}
VARIANTS = {
    "prescale": dict(prescale_gradients=True),
    "predivide": dict(gradient_predivide_factor=2.0),
    "sum": dict(gradient_allreduce_op="sum"),
    "fp32": dict(communication_data_type="fp32"),
    "all_reduce": dict(zero=dict(reduce_scatter=False)),
    "all_reduce_predivide": dict(zero=dict(reduce_scatter=False), gradient_predivide_factor=2.0),
    "all_reduce_prescale": dict(zero=dict(reduce_scatter=False), prescale_gradients=True),
}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(8))

    def forward(self, c):
        return (self.w.float() * c).sum()


def cases():
    out = []
    for stage in range(4):
        for scaler in SCALERS:
            out.append(dict(stage=stage, scaler=scaler, gas=1))
        out.append(dict(stage=stage, scaler="hysteresis", gas=2))
        for variant in VARIANTS:
            refused = stage >= 2 and variant in ("prescale", "predivide") or stage == 3 and variant in ("sum",)
            if refused or stage in (0, 3) and variant.startswith("all_reduce"):
                continue
            out.append(dict(stage=stage, scaler="hysteresis", gas=1, variant=variant))
    return out


def coefficients(seed, gas, world):
    """Mostly below the threshold at a scale of 2^5, now and then above it on one rank or in their sum. One sign per step: gloo and
    NCCL add in fp16, where a sum of both signs may overflow on the way to a small result; Tessera adds in fp32."""
    rng = random.Random(seed)
    steps = []
    for _ in range(STEPS):
        size = rng.choice([2**8, 2**10, 2**10, 2**11, 2**12])
        alike = rng.random() < 0.5
        size *= rng.choice([-1, 1])
        first = rng.uniform(0.5, 1.0) * size
        steps.append([[round(first if alike else rng.uniform(0, 1) * size, 2) for _ in range(world)] for _ in range(gas)])
    return steps


def train(deepspeed, rank, case, steps):
    config = dict(train_micro_batch_size_per_gpu=1, gradient_accumulation_steps=case["gas"], gradient_clipping=0, zero_allow_untested_optimizer=True,
                  optimizer=dict(type="SGD", params=dict(lr=1e-3)), fp16=dict(enabled=True, **SCALERS[case["scaler"]]))
    variant = dict(VARIANTS.get(case.get("variant"), {}))
    config["zero_optimization"] = dict(stage=case["stage"], **variant.pop("zero", {}))
    config.update(variant)
    engine = deepspeed.initialize(model=Model(), config=config)[0]
    optimizer, scales, skips = engine.optimizer, [], ""
    for step in steps:
        scale = float(optimizer.loss_scale_config.cur_scale if case["stage"] == 0 else optimizer.loss_scale)
        before = engine.skipped_steps
        try:
            for micro in step:
                loss = engine(torch.tensor(micro[rank]))
                engine.backward(loss * scale if case["stage"] == 0 else loss)
                engine.step()
        except Exception as error:
            assert "minimum" in str(error), error
            return dict(scales=scales, skipped=skips, ends=True)
        scales.append(scale)
        skips += "o" if engine.skipped_steps > before else "."
    return dict(scales=scales, skipped=skips, ends=False)


def worker(rank, world, port, queue):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu")
    torch.set_num_threads(1)
    import deepspeed
    from deepspeed.accelerator import get_accelerator
    get_accelerator().is_fp16_supported = lambda: True  # torch computes in fp16 on a CPU; DeepSpeed asks the processor
    deepspeed.init_distributed("gloo", verbose=False)
    out = []
    for number, case in enumerate(cases()):
        steps = coefficients(1000 * world + number, case["gas"], world)
        out.append(dict(world=world, **case, **train(deepspeed, rank, case, steps), coefficients=steps))
    if rank == 0:
        queue.put((deepspeed.__version__, out))
    torch.distributed.barrier()


def main():
    context, stored, version = torch.multiprocessing.get_context("spawn"), [], ""
    for port, world in ((29811, 1), (29812, 2), (29813, 4)):
        queue = context.SimpleQueue()
        processes = [context.Process(target=worker, args=(rank, world, port, queue)) for rank in range(world)]
        for process in processes:
            process.start()
        version, of_world = queue.get()
        stored += of_world
        for process in processes:
            process.join()
    path = pathlib.Path(__file__).with_suffix(".json")
    text = json.dumps({"deepspeed": version, "scalers": SCALERS, "cases": stored}, separators=(",", ":"))
    path.write_text(text.replace('},{"world"', '},\n{"world"') + "\n")


if __name__ == "__main__":
    main()
