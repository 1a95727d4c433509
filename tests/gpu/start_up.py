#!/usr/bin/env python3
"""Start-up of tessera-train: seconds from the call of mpirun to its first line, and to its first optimizer step, with a program that only starts and ends
MPI next to it in turns. The 7.5 M model of configs/gpt2-8m, text tokenized on the way. One JSON line.

    start_up.py --bin DIR --hello PROGRAM --device gpu|cpu [--mpiexec mpirun] [--rounds 5]"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import threading
import time

p = argparse.ArgumentParser()
p.add_argument("--bin", required=True)
p.add_argument("--hello", required=True)
p.add_argument("--device", required=True)
p.add_argument("--mpiexec", default="mpirun")
p.add_argument("--rounds", type=int, default=5)
a = p.parse_args()
MODEL = pathlib.Path(__file__).resolve().parents[2] / "configs/gpt2-8m"
MPI = [a.mpiexec, "--allow-run-as-root", "-np", "1", "--bind-to", "none"]
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")


def seconds_of_run(text, output):
    """To the first line, and to the first step."""
    command = MPI + [str(pathlib.Path(a.bin) / "tessera-train"), "--device", a.device, "--config_name", str(MODEL), "--tokenizer_name", str(MODEL), "--train_file", text,
                     "--block_size", "64", "--output_dir", str(output), "--do_train", "--max_steps", "2", "--save_strategy", "no", "--per_device_train_batch_size", "1"]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)
    said = []

    def read():
        for line in process.stdout:
            said.append((time.perf_counter() - start, line))

    reader = threading.Thread(target=read)
    reader.start()
    metrics = output / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.001)
    first_step = time.perf_counter() - start
    process.wait()
    reader.join()
    if process.returncode != 0 or not said:
        raise SystemExit(f"tessera-train ended with {process.returncode}:\n" + "".join(line for _, line in said))
    return said[0][0], first_step


def seconds_of_hello():
    start = time.perf_counter()
    subprocess.run(MPI + [a.hello], check=True, env=ENVIRONMENT)
    return time.perf_counter() - start


with tempfile.TemporaryDirectory() as folder:
    text = pathlib.Path(folder) / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog and goes on to write a small compiler.\n" * 500)
    lines, steps, hellos = [], [], []
    for i in range(a.rounds):
        line, step = seconds_of_run(str(text), pathlib.Path(folder) / str(i))
        lines.append(line)
        steps.append(step)
        hellos.append(seconds_of_hello())
    difference = sorted(step - hello for step, hello in zip(steps, hellos))
    print(json.dumps({"bench": "start_up", "device": a.device, "first_line": round(statistics.median(lines), 3), "first_step": round(statistics.median(steps), 3),
                      "hello_mpi": round(statistics.median(hellos), 3), "first_step_minus_hello": round(statistics.median(difference), 3), "rounds": a.rounds,
                      "spread": [round(difference[0], 3), round(difference[-1], 3)]}))
