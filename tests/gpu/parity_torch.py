#!/usr/bin/env python3
"""Eight steps of a small GPT-2 in tessera-train and in PyTorch, from the same weights on the same batch: the same losses and gradient norms. In fp32, or with
autocast to bf16 (--bf16) on both sides.

    parity_torch.py --bin DIR --device gpu|cpu --precision fp32|bf16 --work DIR            77 where torch or transformers is missing"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

p = argparse.ArgumentParser()
p.add_argument("--bin", required=True)
p.add_argument("--device", required=True)
p.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
p.add_argument("--work", required=True)
a = p.parse_args()
try:
    import torch
    from tokenizers import Tokenizer
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as missing:
    print(missing)
    sys.exit(77)
ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "configs/gpt2-8m"
ROWS, LENGTH, STEPS, RATE = 8, 64, 8, 1e-3
work = pathlib.Path(a.work)
shutil.rmtree(work, ignore_errors=True)
work.mkdir(parents=True)

tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
words = (ROOT / "README.md").read_text().split()
text = " ".join(words)
while len(tokenizer.encode(text).ids) >= (ROWS + 1) * LENGTH:  # exactly one batch, so that the order of the rows does not matter
    words = words[: len(words) - 1]
    text = " ".join(words)
ids = tokenizer.encode(text).ids
if len(ids) < ROWS * LENGTH:
    raise SystemExit(f"the text has {len(ids)} tokens, fewer than {ROWS * LENGTH}")
(work / "text.txt").write_text(text)
batch = torch.tensor(ids[: ROWS * LENGTH]).view(ROWS, LENGTH)

torch.manual_seed(1)
model = GPT2LMHeadModel(GPT2Config(vocab_size=4096, n_positions=LENGTH, n_embd=192, n_layer=4, n_head=6, bos_token_id=0, eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False))
model.loss_type = "ForCausalLM"
model.save_pretrained(work / "start")
command = [str(pathlib.Path(a.bin) / "tessera-train"), "--device", a.device, "--model_name_or_path", str(work / "start"), "--tokenizer_name", str(TOKENIZER),
           "--train_file", str(work / "text.txt"), "--block_size", str(LENGTH), "--output_dir", str(work / "run"), "--do_train", "--max_steps", str(STEPS),
           "--per_device_train_batch_size", str(ROWS), "--learning_rate", str(RATE), "--lr_scheduler_type", "constant", "--logging_steps", "1", "--save_strategy", "no",
           "--max_grad_norm", "1.0"]
command += ["--bf16"] * (a.precision == "bf16") + os.environ.get("TESSERA_TRAIN_ARGUMENTS", "").split()
done = subprocess.run(command, capture_output=True, text=True)
if done.returncode != 0:
    raise SystemExit(f"tessera-train ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
lines = [json.loads(line) for line in (work / "run/metrics.jsonl").read_text().splitlines()]
ours = [(line["loss"], line["grad_norm"]) for line in lines if "grad_norm" in line]

place = "cuda" if a.device == "gpu" else "cpu"
model.to(place).train()
batch = batch.to(place)
optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.0)
worst = 0.0
for step in range(STEPS):
    with torch.autocast(place, dtype=torch.bfloat16, enabled=a.precision == "bf16"):
        loss = model(batch, labels=batch).loss
    loss.backward()
    theirs = loss.item()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    optimizer.step()
    optimizer.zero_grad()
    difference = max(abs(ours[step][0] / theirs - 1.0), 0.1 * abs(ours[step][1] / norm - 1.0))
    worst = max(worst, difference)
    print(f"step {step + 1}: loss {ours[step][0]:.6f} and {theirs:.6f}, gradient norm {ours[step][1]:.5f} and {norm:.5f}")
print(json.dumps({"bench": "parity", "torch": torch.__version__, "device": a.device, "precision": a.precision,
                  "uses": json.loads((work / "run/status.json").read_text()).get("uses"), "steps": STEPS, "largest_relative_difference": round(worst, 8)}))
sys.exit(0 if len(ours) == STEPS and worst < (2e-4 if a.precision == "fp32" else 1e-2) else 1)
