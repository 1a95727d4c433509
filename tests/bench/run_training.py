#!/usr/bin/env python3
"""Training speed next to PyTorch, ranks next to threads, and start-up: programs run in turn (A B A B ...), one JSON line a ratio.

    run_training.py --bin build/host/bin [--torch PYTHON] [--rounds 3] [--steps 3] [--prefix "chrt -f 10"] [--only fp32,bf16,ranks,start]

--torch names a Python that has torch and transformers; without it the comparison with PyTorch is left out and said to be."""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
GLIBC = "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592"  # PyTorch's best: no page faults in each step

p = argparse.ArgumentParser()
p.add_argument("--bin", required=True)
p.add_argument("--torch")
p.add_argument("--rounds", type=int, default=3)
p.add_argument("--steps", type=int, default=3)
p.add_argument("--prefix", default="", help="put before every command, such as 'chrt -f 10' on a shared machine")
p.add_argument("--only", default="fp32,bf16,ranks,start")
p.add_argument("--configuration", help="directory with config.json and tokenizer.json for the start-up figure (configs/gpt2-8m)", default=str(HERE.parent.parent / "configs/gpt2-8m"))
a = p.parse_args()
cores = len(os.sched_getaffinity(0))


def run(command, **environment):
    done = subprocess.run(shlex.split(a.prefix) + command, env=dict(os.environ, **environment), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1]) if "{" in done.stdout else {}


def mpirun(ranks, command):
    return ["mpirun", "--allow-run-as-root", "-np", str(ranks), "--bind-to", "core" if ranks > 1 else "none", "-x", "OMP_NUM_THREADS"] + command


def ours(dtype="fp32", ranks=1, stage=0):
    command = [str(pathlib.Path(a.bin) / "bench.training"), "--steps", str(a.steps), "--dtype", dtype, "--stage", str(stage)]
    return run(mpirun(ranks, command), OMP_NUM_THREADS=str(max(cores // ranks, 1)))


def torch(*flags):
    return run([a.torch, str(HERE / "training_torch.py"), "--steps", str(a.steps), "--threads", str(cores), *flags], OMP_NUM_THREADS=str(cores), GLIBC_TUNABLES=GLIBC)


def report(metric, ours_values, peer_values, **more):
    ratios = [x / y for x, y in zip(ours_values, peer_values)]
    print(json.dumps({"metric": metric, "value": round(statistics.median(ours_values) / statistics.median(peer_values), 4),
                      "num": round(statistics.median(ours_values), 2), "den": round(statistics.median(peer_values), 2),
                      "rounds": len(ratios), "steps_each": a.steps, "spread": [round(min(ratios), 3), round(max(ratios), 3)], **more}), flush=True)


def beside_torch(dtype):
    if not a.torch:
        print(json.dumps({"metric": f"tokens_per_second_{dtype}_over_torch", "skipped": "no --torch given"}))
        return
    variants = {"fp32": [[]], "bf16": [["--dtype", "bf16"], ["--dtype", "bf16-model"]]}[dtype]
    mine, theirs, version = [], {i: [] for i in range(len(variants))}, ""
    for _ in range(a.rounds):
        mine.append(ours(dtype)["tokens_per_second"])
        for i, flags in enumerate(variants):
            result = torch(*flags)
            theirs[i].append(result["tokens_per_second"])
            version = result["torch"]
    for i, flags in enumerate(variants):
        report(f"tokens_per_second_{dtype}_over_torch", mine, theirs[i], torch=version, variant=" ".join(flags) or "fp32")


def ranks_over_threads():
    single, several = [], {stage: [] for stage in range(4)}
    for _ in range(a.rounds):
        for stage in range(4):
            single.append(ours()["tokens_per_second"])
            several[stage].append(ours(ranks=cores, stage=stage)["tokens_per_second"])
    for stage in range(4):
        report(f"stage_{stage}_on_{cores}_ranks_over_one_process", several[stage], single[stage::4])


def seconds_to_first_step(ranks, text):
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "run"
        command = mpirun(ranks, [str(pathlib.Path(a.bin) / "tessera-train"), "--config_name", a.configuration, "--tokenizer_name", a.configuration, "--train_file",
                                 text, "--block_size", "64", "--output_dir", str(output), "--do_train", "--max_steps", "2", "--save_strategy", "no",
                                 "--per_device_train_batch_size", "1"])
        start = time.perf_counter()
        process = subprocess.Popen(shlex.split(a.prefix) + command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, OMP_NUM_THREADS="1"))
        while not (output / "metrics.jsonl").exists() or (output / "metrics.jsonl").stat().st_size == 0:
            if process.poll() is not None and not (output / "metrics.jsonl").exists():
                raise SystemExit("tessera-train ended before its first step")
            time.sleep(0.001)
        seconds = time.perf_counter() - start
        process.wait()
        return seconds


def hello(ranks):
    start = time.perf_counter()
    run(mpirun(ranks, [str(pathlib.Path(a.bin) / "bench.hello")]), OMP_NUM_THREADS="1")
    return time.perf_counter() - start


def start_up():
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("The quick brown fox jumps over the lazy dog and goes on to write a small compiler.\n" * 500)
        text.flush()
        for ranks in (1, 2):
            pairs = [(seconds_to_first_step(ranks, text.name), hello(ranks)) for _ in range(max(a.rounds, 7))]
            difference = sorted(first - second for first, second in pairs)
            print(json.dumps({"metric": f"seconds_to_first_step_minus_hello_{ranks}_ranks", "value": round(statistics.median(difference), 3),
                              "first_step": round(statistics.median(f for f, _ in pairs), 3), "hello": round(statistics.median(h for _, h in pairs), 3),
                              "rounds": len(pairs), "spread": [round(difference[0], 3), round(difference[-1], 3)]}), flush=True)


for part in a.only.split(","):
    {"fp32": lambda: beside_torch("fp32"), "bf16": lambda: beside_torch("bf16"), "ranks": ranks_over_threads, "start": start_up}[part]()
