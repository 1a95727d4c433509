#!/usr/bin/env python3
"""Writes one_bit.json: weights that OnebitAdam and OnebitLamb of DeepSpeed 0.14.5 reach on 2 and 4 ranks, from gradients that a formula gives.

    pip download --no-deps --no-binary :all: deepspeed==0.14.5, unpack it
    python3 tests/oracles/one_bit.py deepspeed-0.14.5      needs torch, numpy, and any DeepSpeed for its other modules (0.19.8 has no such optimizers)

The optimizers and CompressedBackend run as they are; ranks are threads, whose collectives are done here, and numpy packs the bits. The first call of step()
only prepares buffers in DeepSpeed, but counts as a step: the script takes the count back.
"""
import importlib.util
import json
import os
import pathlib
import sys
import threading
import types

os.environ["TORCHDYNAMO_DISABLE"] = "1"
import numpy as np
import torch
from deepspeed.ops import op_builder

STEPS, SHOWN = 20, (10, 20)
CASES = [
    dict(algorithm="OneBitAdam", sizes=[128, 256], lr=1e-2, weight_decay=0.1, betas=[0.9, 0.95], params=dict(freeze_step=5)),
    dict(algorithm="OneBitLamb", sizes=[128, 256], lr=1e-2, weight_decay=0.1, betas=[0.9, 0.95],
         params=dict(freeze_step=5, coeff_beta=0.6, max_coeff=3.0, factor_max=1.2, factor_threshold=0.05)),
    dict(algorithm="OneBitLamb", sizes=[128, 256], lr=1e-2, weight_decay=0.0, betas=[0.9, 0.95], params=dict(freeze_step=5, coeff_beta=0.8)),
]


def number(*indices):
    """In (-1, 1), with the same bits in every program."""
    x = 1
    for i in indices:
        x = (x * 48271 + (i + 1) * 69621) % 2147483647
        x = x * x % 2147483647
    return (x % 65521) / 32760.5 - 1.0


class Ranks(threading.local):
    rank = 0


class Collectives:
    """In the place of deepspeed.comm: the ranks are threads."""

    def __init__(self, size):
        self.size, self.own, self.barrier, self.slots = size, Ranks(), threading.Barrier(size), [None] * size

    def exchange(self, value):
        self.slots[self.own.rank] = value
        self.barrier.wait()
        out = list(self.slots)
        self.barrier.wait()
        return out

    def all_to_all_single(self, received, sent, group=None):
        received.copy_(torch.stack([t[self.own.rank] for t in self.exchange(sent.clone())]))

    def all_gather(self, received, sent, group=None):
        for out, value in zip(received, self.exchange(sent.clone())):
            out.copy_(value)

    def is_initialized(self):
        return True

    def new_group(self, ranks):
        return None

    def get_rank(self, group=None):
        return self.own.rank

    def get_world_size(self, group=None):
        return self.size


class Packer:
    @staticmethod
    def packbits(values, numel, rank):
        return torch.from_numpy(np.packbits((values >= 0).numpy()))

    @staticmethod
    def unpackbits(packed, numel, rank):
        return torch.from_numpy(np.unpackbits(packed.numpy())).float() * 2 - 1


def module(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def classes(source):
    runtime = pathlib.Path(source) / "deepspeed/runtime"
    if not hasattr(op_builder, "PackbitsBuilder"):
        op_builder.PackbitsBuilder = object
    backend = module(runtime / "comm/compressed.py", "deepspeed.runtime.comm.compressed")
    sys.modules["deepspeed.runtime.comm.compressed"] = backend
    adam, lamb = (module(runtime / f"fp16/onebit/{name}.py", f"onebit_{name}") for name in ("adam", "lamb"))
    return [backend, adam, lamb], {"OneBitAdam": adam.OnebitAdam, "OneBitLamb": lamb.OnebitLamb}


def run(case, ranks, modules, optimizers):
    dist = Collectives(ranks)
    modules[0].CompressedBackend.__init__ = lambda self, mpu=None: self.__dict__.update(world_group=None, rank=dist.own.rank, size=ranks, packer=Packer)
    for loaded in modules:
        loaded.dist = dist
    shown = {}

    def train(rank):
        dist.own.rank = rank
        weights = [torch.nn.Parameter(torch.tensor([number(7, p, i) for i in range(n)], dtype=torch.float32)) for p, n in enumerate(case["sizes"])]
        engine = types.SimpleNamespace(mpu=None, local_rank=0, enable_backward_allreduce=True)
        optimizer = optimizers[case["algorithm"]](weights, deepspeed=engine, comm_backend_name="compressed", lr=case["lr"], betas=tuple(case["betas"]),
                                                  weight_decay=case["weight_decay"], **case["params"])
        for w in weights:
            w.grad = torch.zeros_like(w)
        optimizer.step()
        for w in weights:
            optimizer.state[w]["step"] = 0
        for t in range(1, STEPS + 1):
            for p, w in enumerate(weights):
                own = [[number(t, r, p, i) + 0.5 * number(3, p, i) for i in range(w.numel())] for r in range(ranks)]
                own = torch.tensor(own, dtype=torch.float32)
                w.grad = own.mean(0) if engine.enable_backward_allreduce else own[rank].clone()
            optimizer.step()
            if t in SHOWN and rank == 0:
                shown[t] = [w.tolist() for w in weights]

    threads = [threading.Thread(target=train, args=(r,)) for r in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [{"step": t, "weights": [[float(f"{x:.9g}") for x in w] for w in shown[t]]} for t in SHOWN]


def main():
    modules, optimizers = classes(sys.argv[1])
    cases = [dict(case, ranks=ranks, shown=run(case, ranks, modules, optimizers)) for case in CASES for ranks in (2, 4)]
    text = json.dumps({"cases": cases}).replace('{"algorithm"', '\n{"algorithm"').replace('{"step"', '\n  {"step"')
    (pathlib.Path(__file__).parent / "one_bit.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
