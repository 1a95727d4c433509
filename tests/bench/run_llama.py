#!/usr/bin/env python3
"""A Llama-shaped model of 100 million parameters: training in fp32 and bf16 and generation, next to PyTorch and transformers on the same cores.

    run_llama.py --bin build/host/bin [--threads 2] [--rounds 3] [--steps 3] [--only fp32,bf16,generation]

Programs run in turn (A B A B ...), one JSON line a ratio. A training step is 4 x 256 tokens, forward, backward, clipping and AdamW, by tessera-train (the
median of `seconds` in metrics.jsonl without the first step) and by transformers' LlamaForCausalLM with SDPA and fused AdamW; bf16 there is autocast.
Needs torch, transformers, safetensors."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from run_generation import model_directory, with_tessera, with_transformers

HERE = pathlib.Path(__file__).resolve().parent
GLIBC = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592"  # PyTorch's best: no page faults in each step
ROWS, LENGTH = 4, 256


def trained_by_tessera(a, work, dtype):
    output = work / "trained"
    words = [a.bin / "tessera-train", "--model_name_or_path", work, "--train_file", work / "text.txt", "--block_size", LENGTH, "--do_train", "--max_steps",
             a.steps + 1, "--per_device_train_batch_size", ROWS, "--save_strategy", "no", "--logging_steps", 1, "--validation_split_percentage", 0, "--output_dir",
             output, "--overwrite_output_dir", "--threads", a.threads] + (["--bf16"] if dtype == "bf16" else [])
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(a.threads)))
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return ROWS * LENGTH / statistics.median(s["seconds"] for s in steps[1:] if "seconds" in s)


def trained_by_torch(a, dtype):
    done = subprocess.run([sys.executable, str(HERE / "training_torch.py"), "--rows", str(ROWS), "--length", str(LENGTH), "--steps", str(a.steps), "--threads",
                           str(a.threads), "--dtype", dtype, "--llama"], capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(a.threads), GLIBC_TUNABLES=GLIBC))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])["tokens_per_second"]


def report(metric, ours, theirs):
    ratios = [x / y for x, y in zip(ours, theirs)]
    print(json.dumps({"metric": metric, "value": round(statistics.median(ours) / statistics.median(theirs), 3), "num": round(statistics.median(ours), 2),
                      "den": round(statistics.median(theirs), 2), "rounds": len(ratios), "spread": [round(min(ratios), 3), round(max(ratios), 3)]}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    for name, default in (("threads", len(os.sched_getaffinity(0))), ("rounds", 3), ("steps", 3), ("new_tokens", 64)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--only", default="fp32,bf16,generation")
    a = parser.parse_args()
    import torch
    import transformers
    torch.set_num_threads(a.threads)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        model = model_directory(work, "float32")
        (work / "text.txt").write_text("".join("".join(f"w{(7 * i + k) % 64}" for k in range(32)) + "\n" for i in range(ROWS * LENGTH // 4)))
        for dtype in ("fp32", "bf16"):
            if dtype in a.only.split(","):
                ours, theirs = [], []
                for _ in range(a.rounds):
                    ours.append(trained_by_tessera(a, work, dtype))
                    theirs.append(trained_by_torch(a, dtype))
                report(f"training tokens/s of a Llama-shaped model over PyTorch, {dtype}", ours, theirs)
        if "generation" in a.only.split(","):
            with_transformers(model, 1, 32, 4)
            ours, theirs = [], []
            for _ in range(a.rounds):
                theirs.append(with_transformers(model, 1, 32, a.new_tokens))
                ours.append(with_tessera(a.bin / "tessera-train", work, 1, 32, a.new_tokens, a.threads, "float32"))
            report("greedy tokens/s with a key/value cache over transformers", ours, theirs)


if __name__ == "__main__":
    main()
