#!/usr/bin/env python3
"""Reruns the tables of training guides on this machine: ZeRO stage x precision x micro-batch x ranks x offload, side by side.

    experiments.py --bin build/host/bin --output DIR [--stages 0,1,2,3] [--precisions fp32,bf16] [--micro_batches 4] [--ranks 1,2]
                   [--offloads none,cpu,nvme,nvme+weights] [--nvme_path DIR] [--steps 12] [--rounds 1] [-- OPTIONS OF TESSERA-TRAIN]

Offload is of the optimizer states; nvme+weights keeps the weights of stage 3 on NVMe too. Combinations that do not exist are left out.

Without options a GPT-2 of 25 M parameters trains on generated text from random weights. With options they choose model and text:
-- --model_name_or_path DIR --train_file FILE --block_size 1024. Each run is a process of its own; rounds take the runs in turn, and the
table shows the median. DIR/experiments.json has every number, DIR/experiments.md the table, DIR/experiments.svg the bars."""
import argparse
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import statistics
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "docs/pictures"))
import svg  # noqa: E402

SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
WARM_UP = 2  # steps that are not counted
COLUMNS = ("stage", "precision", "micro_batch", "ranks", "offload", "samples_per_second", "tokens_per_second", "model_states", "peak_memory", "loss")


def parse():
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", required=True, type=pathlib.Path)
    p.add_argument("--output", required=True, type=pathlib.Path)
    for name, default in (("stages", "0,1,2,3"), ("precisions", "fp32,bf16"), ("micro_batches", "4"), ("ranks", "1,2"), ("offloads", "none")):
        p.add_argument("--" + name, default=default, type=lambda text: text.split(","))
    p.add_argument("--nvme_path", help="directory on the drive; by default in DIR")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--launcher", default="mpirun --allow-run-as-root --oversubscribe")
    a = p.parse_args(words[:cut])
    if a.steps <= WARM_UP:
        p.error(f"--steps is {a.steps}; the first {WARM_UP} are not counted")
    return a, words[cut + 1:]


def default_model(folder):
    text = folder / "text.txt"
    text.write_text("".join(f"line {i} of the text tells of {i * i} things and of {i % 7} more\n" for i in range(20000)))
    return ["--model_type", "gpt2", "--config_overrides", "n_embd=512,n_layer=8,n_head=8,n_positions=256,vocab_size=4096", "--tokenizer_name",
            str(SOURCE / "configs/gpt2-8m"), "--train_file", str(text), "--block_size", "256"]


def exists(case):
    """Stage 0 has no offload, and weights leave memory at stage 3."""
    stage = int(case["stage"])
    return case["offload"] == "none" or (stage > 0 and (case["offload"] != "nvme+weights" or stage == 3))


def configuration(case, drive):
    out = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
           "memory_breakdown": True, "zero_optimization": {"stage": int(case["stage"])}}
    if case["precision"] != "fp32":
        out[case["precision"]] = {"enabled": True}
    device = case["offload"].partition("+")[0]
    if device != "none":
        out["zero_optimization"]["offload_optimizer"] = {"device": device, "nvme_path": str(drive)}
    if case["offload"] == "nvme+weights":
        out["zero_optimization"]["offload_param"] = {"device": "nvme", "nvme_path": str(drive), "max_in_cpu": 0}
    return out


def bytes_of(text):
    value, unit = text.split()
    return float(value) * SIZES[unit]


def run(a, case, model):
    """Rates after the warm-up, memory of rank 0, last loss."""
    folder = a.output / "run"
    shutil.rmtree(folder, ignore_errors=True)
    config = a.output / "ds_config.json"
    drive = pathlib.Path(a.nvme_path or a.output / "drive").resolve()
    drive.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps(configuration(case, drive)))
    command = [*shlex.split(a.launcher), "-np", case["ranks"], str(a.bin / "tessera-train"), *model, "--do_train", "--max_steps", str(a.steps),
               "--per_device_train_batch_size", case["micro_batch"], "--logging_steps", "1", "--save_strategy", "no", "--deepspeed", str(config),
               "--output_dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-1:]
        return {"failed": f"exit code {done.returncode}: {lines[0] if lines else ''}"}
    with open(folder / "metrics.jsonl") as lines:
        steps = [m for m in map(json.loads, lines) if "loss" in m]
    seconds = statistics.median(m["seconds"] for m in steps[WARM_UP:])
    states = re.search(r"model states per rank: ([0-9.]+ \w+)", done.stderr)
    peak = re.search(r"memory of rank 0 .*total .* / ([0-9.]+ \w+)", done.stderr)
    return {"samples_per_second": int(case["micro_batch"]) * int(case["ranks"]) / seconds,
            "tokens_per_second": statistics.median(m["tokens_per_second"] for m in steps[WARM_UP:]),
            "model_states": bytes_of(states[1]), "peak_memory": bytes_of(peak[1]), "loss": steps[-1]["loss"]}


def median_of(results):
    failed = [r for r in results if "failed" in r]
    return failed[0] if failed else {name: statistics.median(r[name] for r in results) for name in results[0]}


def shown(name, row):
    if name not in row:
        return "-"
    value = row[name]
    return {"samples_per_second": lambda: f"{value:.2f}", "tokens_per_second": lambda: f"{value:,.0f}", "loss": lambda: f"{value:.4f}",
            "model_states": lambda: f"{value / (1 << 20):,.1f} MiB", "peak_memory": lambda: f"{value / (1 << 20):,.1f} MiB"}.get(name, lambda: str(value))()


def table(rows):
    lines = ["| " + " | ".join(c.replace("_", " ") for c in COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        lines.append("| " + " | ".join(shown(c, row) for c in COLUMNS) + " |" + (" " + row["failed"] if "failed" in row else ""))
    return "\n".join(lines) + "\n"


def bars(rows):
    """One line per run: samples per second, peak memory and loss."""
    rows = [r for r in rows if "failed" not in r]
    measures = (("samples_per_second", svg.BLUE), ("peak_memory", svg.ORANGE), ("loss", svg.GREEN))
    width, left = 220, 270
    picture = svg.Picture(left + 3 * (width + 90), 50 + 22 * len(rows), "Experiments", "Samples per second, peak memory of rank 0 and last loss of each run")
    for k, (name, color) in enumerate(measures):
        x, top = left + k * (width + 90), max((r[name] for r in rows), default=0) or 1
        picture.text(x, 24, name.replace("_", " "), anchor="start", bold=True)
        for i, row in enumerate(rows):
            picture.box(x, 40 + 22 * i, width * row[name] / top, 14, fill=color, stroke=color, radius=0)
            picture.text(x + width * row[name] / top + 6, 52 + 22 * i, shown(name, row), size=11, anchor="start")
    for i, row in enumerate(rows):
        picture.text(left - 10, 52 + 22 * i, f"stage {row['stage']} {row['precision']} b{row['micro_batch']} N={row['ranks']} {row['offload']}", size=12, anchor="end")
    return picture


def main():
    a, options = parse()
    a.output.mkdir(parents=True, exist_ok=True)
    model = options or default_model(a.output)
    axes = {"stage": a.stages, "precision": a.precisions, "micro_batch": a.micro_batches, "ranks": a.ranks, "offload": a.offloads}
    cases = [case for case in (dict(zip(axes, values)) for values in itertools.product(*axes.values())) if exists(case)]
    results = [[] for _ in cases]
    for number in range(a.rounds):
        for case, found in zip(cases, results):
            found.append(run(a, case, model))
            print(f"round {number + 1}: {case} {found[-1]}", file=sys.stderr, flush=True)
    rows = [{**case, **median_of(found)} for case, found in zip(cases, results)]
    (a.output / "experiments.json").write_text(json.dumps({"cores": len(os.sched_getaffinity(0)), "options": model, "steps": a.steps,
                                                           "rows": rows, "rounds": results}, indent=1) + "\n")
    (a.output / "experiments.md").write_text(table(rows))
    (a.output / "experiments.svg").write_text(bars(rows).result())
    print(table(rows), end="")
    return 1 if all("failed" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
