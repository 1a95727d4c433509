#!/usr/bin/env python3
"""Peer of bench.attention: scaled_dot_product_attention of PyTorch on the same shapes, causal, forward and backward.

    attention_torch.py [rows=4] [sequence=256] [heads=12] [head_dim=64] [dropout=0] [repeats=40] [dtype=fp32]

Prints one JSON line with the best times; OMP_NUM_THREADS sets the threads."""
import json
import sys
import time

import torch

arguments = sys.argv[1:] + ["4", "256", "12", "64", "0", "40", "fp32"][len(sys.argv) - 1:]
values = [float(v) for v in arguments[:6]]
dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[arguments[6]]
rows, sequence, heads, head_dim, repeats = (int(values[i]) for i in (0, 1, 2, 3, 5))
dropout = values[4]
columns = heads * head_dim
qkv = torch.randn(rows, sequence, 3 * columns, dtype=dtype, requires_grad=True)
dout = torch.randn(rows, heads, sequence, head_dim, dtype=dtype)
forward = backward = float("inf")
for _ in range(repeats):
    start = time.perf_counter()
    q, k, v = (part.view(rows, sequence, heads, head_dim).transpose(1, 2) for part in qkv.split(columns, 2))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
    middle = time.perf_counter()
    out.backward(dout)
    forward, backward = min(forward, middle - start), min(backward, time.perf_counter() - middle)
    qkv.grad = None
print(json.dumps({"program": f"torch {torch.__version__}", "threads": torch.get_num_threads(), "dtype": arguments[6], "dropout": dropout,
                  "forward_ms": round(1e3 * forward, 3), "backward_ms": round(1e3 * backward, 3)}))
