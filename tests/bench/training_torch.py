#!/usr/bin/env python3
"""Peer of bench.training: the same GPT-2 step in PyTorch (transformers' GPT2LMHeadModel, SDPA attention, fused AdamW, clipping).

    training_torch.py [--rows 4 --length 256 --dtype fp32 --steps 7 --threads 2]

Prints one JSON line. run_training.py starts it with glibc's malloc thresholds pinned, which favors it."""
import argparse
import json
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--rows", type=int, default=4)
p.add_argument("--length", type=int, default=256)
p.add_argument("--dtype", default="fp32", help="fp32, bf16 (autocast) or bf16-model (all weights bf16, as DeepSpeed casts them)")
p.add_argument("--steps", type=int, default=7)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--compile", action="store_true")
p.add_argument("--llama", action="store_true", help="the Llama-shaped model of run_generation.py")
a = p.parse_args()

torch.set_num_threads(a.threads)
torch.manual_seed(1)
if a.llama:
    from run_generation import SHAPE
    config = LlamaConfig(**SHAPE, use_cache=False)
    model = LlamaForCausalLM(config)
else:
    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    model = GPT2LMHeadModel(config)
model.loss_type = "ForCausalLM"
if a.dtype == "bf16-model":
    model = model.to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
tokens = torch.randint(0, config.vocab_size, (a.rows, a.length))
run = torch.compile(model) if a.compile else model

seconds = []
for step in range(a.steps + 1):
    start = time.perf_counter()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=a.dtype == "bf16"):
        loss = run(tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step > 0:
        seconds.append(time.perf_counter() - start)
seconds.sort()
median = seconds[len(seconds) // 2]
print(json.dumps({"bench": "training_torch", "torch": torch.__version__, "threads": a.threads, "dtype": a.dtype, "compiled": a.compile, "seconds": round(median, 5),
                  "fastest": round(seconds[0], 5), "tokens_per_second": round(a.rows * a.length / median, 2), "loss": round(loss.item(), 5)}))
