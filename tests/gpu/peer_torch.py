#!/usr/bin/env python3
"""Peer of `bench.gpu train`: the same GPT-2 step in PyTorch, compiled, bf16 autocast, SDPA attention, fused AdamW, clipping. One JSON line.

    peer_torch.py LAYERS WIDTH HEADS ROWS LENGTH [STEPS]            77 where torch, transformers or a GPU is missing"""
import json
import sys
import time

try:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as missing:
    print(missing)
    sys.exit(77)

layers, width, heads, rows, length = map(int, sys.argv[1:6])
steps = int(sys.argv[6]) if len(sys.argv) > 6 else 8
if not torch.cuda.is_available():
    print("PyTorch finds no GPU")
    sys.exit(77)
torch.set_float32_matmul_precision("high")
config = GPT2Config(n_layer=layers, n_embd=width, n_head=heads, n_positions=length, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
with torch.device("cuda"):
    model = GPT2LMHeadModel(config)
model.loss_type = "ForCausalLM"
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
tokens = torch.randint(0, config.vocab_size, (rows, length), device="cuda")
run = torch.compile(model)
seconds = []
for step in range(steps + 3):
    torch.cuda.synchronize()
    start = time.perf_counter()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = run(tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    if step >= 3:
        seconds.append(time.perf_counter() - start)
seconds.sort()
median = seconds[len(seconds) // 2]
print(json.dumps({"bench": "train_torch", "torch": torch.__version__, "rows": rows, "length": length, "tokens_per_second": round(rows * length / median),
                  "fastest": round(rows * length / seconds[0]), "peak_bytes": torch.cuda.max_memory_allocated()}))
