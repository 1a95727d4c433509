#!/usr/bin/env python3
"""Writes bf16_attention.json: how far PyTorch's attention of bf16 operands on a CPU, with its gradients, is from the same in double.

    OMP_NUM_THREADS=1 python3 tests/oracles/bf16_attention.py      needs torch and numpy

Numbers are those of numbers() for the operands query, key, value and dout in [T, heads, head_dim]. An error is the root of the mean
square of differences over that of the values."""
import json
import pathlib

import numpy as np
import torch

MASK = np.uint64(2**32 - 1)


def numbers(operand, shape):
    """Multiples of 1/64 in [-2, 2), which bf16 holds, by a hash of operand and index (the finalizer of MurmurHash3)."""
    x = np.arange(np.prod(shape), dtype=np.uint64) + np.uint64(operand << 24)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = ((x ^ (x >> np.uint64(shift))) * np.uint64(factor)) & MASK
    return (((x ^ (x >> np.uint64(16))) >> np.uint64(24)).astype(np.float64) - 128).reshape(shape) / 64


def attention(arrays, dtype):
    q, k, v, dout = (torch.tensor(a, dtype=dtype)[None].transpose(1, 2) for a in arrays)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.backward(dout)
    return [x.detach().double() for x in (out, q.grad, k.grad, v.grad)]


def error(got, want):
    return float((got - want).square().mean().sqrt() / want.square().mean().sqrt())


cases = []
for heads, length, head_dim in ((2, 96, 32), (2, 300, 64), (1, 200, 80), (1, 150, 128)):
    arrays = [numbers(i, (length, heads, head_dim)) for i in range(4)]
    errors = map(error, attention(arrays, torch.bfloat16), attention(arrays, torch.float64))
    cases.append({"heads": heads, "length": length, "head_dim": head_dim,
                  "errors": dict(zip(("out", "dquery", "dkey", "dvalue"), (float(f"{e:.4g}") for e in errors)))})
to = pathlib.Path(__file__).with_suffix(".json")
to.write_text(json.dumps({"torch": torch.__version__, "cases": cases}, indent=1) + "\n")
