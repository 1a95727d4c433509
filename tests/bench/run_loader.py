#!/usr/bin/env python3
"""The share of a training step in which it waits for its samples, with and without threads that load ahead.

  python3 tests/bench/run_loader.py --bin build/host/bin --text FILE [--ranks 1] [--steps 60] [--workers 0 1 2] [--cold]

Trains a GPT-2 of 8 million parameters with blocks of 512 tokens and adds up data_seconds and seconds of metrics.jsonl, without the first two steps.
--cold drops the token file from the page cache before each run, so that samples come from the disk.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    tokenizer = pathlib.Path(__file__).resolve().parents[2] / "configs/gpt2-8m"
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        subprocess.run([arguments.bin / "tessera", "tokenize", tokenizer, "--file", arguments.text, "--output", work / "train.bin"], check=True, capture_output=True)
        print(f"{'workers':>7} {'seconds per step':>17} {'waiting per step':>17} {'share':>8}")
        for workers in arguments.workers:
            if arguments.cold:
                with open(work / "train.bin", "rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            out = work / f"out{workers}"
            subprocess.run(["mpirun", "--oversubscribe", "--allow-run-as-root", "-np", str(arguments.ranks), arguments.bin / "tessera-train", "--config_name",
                            tokenizer / "config.json", "--tokenizer_name", tokenizer, "--train_file", work / "train.bin", "--block_size", "512", "--do_train",
                            "--per_device_train_batch_size", "2", "--max_steps", str(arguments.steps), "--save_strategy", "no", "--report_to", "none",
                            "--dataloader_num_workers", str(workers), "--output_dir", out], check=True, capture_output=True)
            steps = [step for step in map(json.loads, (out / "metrics.jsonl").read_text().splitlines()) if "data_seconds" in step][2:]
            seconds, waiting = (sum(step[name] for step in steps) / len(steps) for name in ("seconds", "data_seconds"))
            print(f"{workers:7} {seconds * 1e3:14.2f} ms {waiting * 1e6:14.1f} us {100 * waiting / seconds:7.4f}%", flush=True)


if __name__ == "__main__":
    main()
