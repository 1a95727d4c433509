#!/usr/bin/env python3
"""Fits a machine profile to published training rates, and compares tessera simulate with them.

    calibrate.py --bin build/host/bin --gpu h100_80gb --profile configs/machines/h100.json [--fit] [--output DIR]

The rows are tests/oracles/fsdp_rows.csv: PyTorch FSDP on 8 to 512 GPUs, from llm-foundry's scripts/train/benchmarking/README.md, full
sharding, sequences up to 8,192 tokens, bf16. The split was fixed before the first fit: rows with 2,048 tokens on 8 and 32 GPUs are
fitted, all others are held out. --fit searches the keys of FITTED; without it the profile is taken as it is. DIR/calibration.json
and DIR/calibration.md have every row."""
import argparse
import concurrent.futures
import csv
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FITTED = ("product_efficiency", "pass_traffic")  # the fitted rows have one length: they cannot separate attention from pass_traffic
# FSDP gathers the next unit of a pass whatever its size, and none beyond it (limit_all_gathers, backward_prefetch BACKWARD_PRE). It has no key
# as stage3_max_live_parameters, whose default holds less than two units of 30b and 70b.
FSDP_GATHERS = {"stage": 3, "stage3_prefetch_bucket_size": 0, "stage3_max_live_parameters": 10**12}
SIZES = {"125m": (768, 12, 12), "350m": (1024, 24, 16), "760m": (1536, 24, 12), "1b": (2048, 24, 16), "3b": (2560, 32, 20),
         "7b": (4096, 32, 32), "13b": (5120, 40, 40), "30b": (7168, 48, 56), "70b": (8192, 80, 64)}  # width, layers, heads


def rows_of(gpu):
    with open(ROOT / "tests/oracles/fsdp_rows.csv") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == gpu]
    for row in rows:
        row["fitted"] = row["sequence"] == "2048" and row["gpus"] in ("8", "32")
    return rows


def predict(binary, profile, row, folder):
    """Tokens per second and GPU."""
    width, layers, heads = SIZES[row["model"]]
    gpus, sequence = int(row["gpus"]), row["sequence"]
    config = {"zero_optimization": FSDP_GATHERS, "bf16": {"enabled": True}, "communication_data_type": row["reduce"],
              "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
    out = folder / f"{'-'.join(row[k] for k in ('model', 'sequence', 'gpus', 'micro_batch'))}.json"
    words = [binary / "tessera", "simulate", "--machine", profile, "--nodes", str(gpus // 8), "--gpus_per_node", "8", "--json", out, "--",
             "--model_type", "gpt2", "--config_overrides",
             f"n_embd={width},n_layer={layers},n_head={heads},n_positions={sequence},vocab_size=50368", "--bf16", "--block_size", sequence,
             "--per_device_train_batch_size", row["micro_batch"], "--gradient_accumulation_steps", row["accumulation"],
             "--deepspeed", json.dumps(config)]
    if row["recompute"] == "yes":
        words.append("--gradient_checkpointing")
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{row}: {done.stderr}")
    return json.loads(out.read_text())["points"][0]["tokens_per_second"] / gpus


def set_key(profile, key, value):
    inner = profile
    *path, last = key.split(".")
    for name in path:
        inner = inner[name]
    inner[last] = value


def get_key(profile, key):
    for name in key.split("."):
        profile = profile.get(name, 0.0)
    return profile


class Calibration:
    def __init__(self, arguments, folder):
        self.binary, self.folder, self.known = arguments.bin, folder, {}

    def predictions(self, profile, rows):
        text = json.dumps(profile, sort_keys=True)
        missing = [row for row in rows if (text, id(row)) not in self.known]
        file = self.folder / f"profile{abs(hash(text))}.json"
        file.write_text(text)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for row, rate in zip(missing, pool.map(lambda r: predict(self.binary, file, r, self.folder), missing)):
                self.known[text, id(row)] = rate
        return [self.known[text, id(row)] for row in rows]

    def error(self, profile, rows):
        return statistics.mean(math.log(p / float(r["tokens_per_second_per_gpu"])) ** 2 for p, r in zip(self.predictions(profile, rows), rows))

    def fit(self, profile, rows):
        """Coordinate search: each key by smaller and smaller factors."""
        best, factor = self.error(profile, rows), 1.3
        while factor > 1.005:
            moved = False
            for key in FITTED:
                for step in (factor, 1 / factor):
                    trial = json.loads(json.dumps(profile))
                    value = get_key(trial, key) * step
                    if key.endswith("efficiency"):
                        value = min(value, 0.95)
                    set_key(trial, key, value)
                    error = self.error(trial, rows)
                    if error < best:
                        best, profile, moved = error, trial, True
                        break
            print(f"factor {factor:.4f}: {math.sqrt(best):.4f} {[round(get_key(profile, k), 4) for k in FITTED]}", file=sys.stderr, flush=True)
            if not moved:
                factor = math.sqrt(factor)
        return profile


def table(rows):
    lines = ["| model | tokens | GPUs | micro x acc. | recompute | published | predicted | error | |", "|" + "---|" * 9]
    for r in rows:
        lines.append(f"| {r['model']} | {r['sequence']} | {r['gpus']} | {r['micro_batch']} x {r['accumulation']} | {r['recompute']} | "
                     f"{int(r['tokens_per_second_per_gpu']):,} | {r['predicted']:,.0f} | {100 * r['error']:+.1f} % | {'fitted' if r['fitted'] else ''} |")
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", required=True, type=pathlib.Path)
    p.add_argument("--gpu", required=True)
    p.add_argument("--profile", required=True, type=pathlib.Path)
    p.add_argument("--fit", action="store_true")
    p.add_argument("--output", type=pathlib.Path, default=pathlib.Path("."))
    a = p.parse_args()
    rows = rows_of(a.gpu)
    if not rows:
        p.error(f"no rows of {a.gpu}")
    profile = json.loads(a.profile.read_text())
    a.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        calibration = Calibration(a, pathlib.Path(folder))
        if a.fit:
            profile = calibration.fit(profile, [r for r in rows if r["fitted"]])
            (a.output / "profile.json").write_text(json.dumps(profile, indent=2) + "\n")
        for row, rate in zip(rows, calibration.predictions(profile, rows)):
            row["predicted"], row["error"] = rate, rate / float(row["tokens_per_second_per_gpu"]) - 1
    summary = {}
    for name, chosen in (("fitted", True), ("held_out", False)):
        errors = [abs(r["error"]) for r in rows if r["fitted"] == chosen]
        summary[name] = {"rows": len(errors), "mean": statistics.mean(errors), "median": statistics.median(errors), "worst": max(errors)}
    (a.output / "calibration.json").write_text(json.dumps({"gpu": a.gpu, "summary": summary, "rows": rows}, indent=1) + "\n")
    (a.output / "calibration.md").write_text(table(rows))
    print(table(rows), json.dumps(summary, indent=1), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
