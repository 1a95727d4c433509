#!/usr/bin/env python3
"""Compares the choice of --auto_tune with that of an exhaustive search, measured in turn on this machine.

    tuner.py --bin build/host/bin --output DIR [--cases NAME,...] [--rounds 2] [--record FILE]

A round runs, for every case, tessera-train --auto_tune and the same with autotuning.tuner_type gridsearch, which measures every candidate
that fits by the plan. A candidate's time is its shortest of all rounds, in exhaustive searches only: the search under test does not judge
itself. Per case: that time of each round's choice, divided by the shortest of all candidates, and the measurements that the searches
took. DIR/tuner.json has every number; --record writes the times of all candidates as the table that the test plan.tuner replays."""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
KEYS = ("stage", "offload_optimizer", "offload_param", "recompute", "per_device_train_batch_size", "gradient_accumulation_steps", "mics_shard_size",
        "bucket_size")


def words(family, overrides, block, *more):
    return ["--model_type", family, "--config_overrides", overrides, "--block_size", str(block), *more]


# ranks, device memory of each (a simulated one; None: on the host), batch of a rank, options
CASES = {
    "host": (1, None, 8, words("gpt2", "n_embd=128,n_layer=4,n_head=4,n_positions=64,vocab_size=4096", 64)),
    "host_two_ranks": (2, None, 8, words("gpt2", "n_embd=128,n_layer=4,n_head=4,n_positions=64,vocab_size=4096", 64)),
    "large_vocabulary": (2, None, 4, words("gpt2", "n_embd=64,n_layer=2,n_head=2,n_positions=64,vocab_size=16384", 64)),
    "long_sequence": (1, None, 4, words("gpt2", "n_embd=64,n_layer=3,n_head=4,n_positions=256,vocab_size=2048", 256)),
    "llama_bf16": (1, None, 8, words("llama", "hidden_size=128,intermediate_size=256,num_hidden_layers=3,num_attention_heads=4,"
                                              "num_key_value_heads=2,vocab_size=4096,max_position_embeddings=64", 64, "--bf16")),
    "many_micro_steps": (1, None, 24, words("gpt2", "n_embd=96,n_layer=2,n_head=3,n_positions=32,vocab_size=2048", 32)),
    "device": (1, "400MiB", 4, words("gpt2", "n_embd=128,n_layer=3,n_head=4,n_positions=64,vocab_size=4096", 64)),
    "tight_device": (1, "22MiB", 8, words("gpt2", "n_embd=128,n_layer=4,n_head=4,n_positions=64,vocab_size=4096", 64)),
    "tight_devices": (2, "18MiB", 4, words("gpt2", "n_embd=128,n_layer=4,n_head=4,n_positions=64,vocab_size=4096", 64)),
}


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", required=True, type=pathlib.Path)
    p.add_argument("--output", required=True, type=pathlib.Path)
    p.add_argument("--cases", default=list(CASES), type=lambda text: text.split(","))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=4, help="measured steps of a candidate in both searches; the shortest counts")
    p.add_argument("--launcher", default="mpirun --allow-run-as-root --oversubscribe")
    p.add_argument("--record", type=pathlib.Path)
    a = p.parse_args()
    if unknown := set(a.cases) - set(CASES):
        p.error(f"unknown case {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    return a


def search(a, case, exhaustive):
    """tuning.json of a search."""
    ranks, device_memory, batch, options = CASES[case]
    folder = a.output / "run"
    shutil.rmtree(folder, ignore_errors=True)
    tuning = {"enabled": True, "start_profile_step": 2, "end_profile_step": 2 + a.steps}
    if exhaustive:
        tuning.update(tuner_type="gridsearch", tuner_num_trials=100000)
    command = [*shlex.split(a.launcher), "-np", str(ranks), str(a.bin / "tessera-train"), *options, "--auto_tune", "--tune_minutes", "60",
               "--per_device_train_batch_size", str(batch), "--threads", "1", "--output_dir", str(folder), "--tokenizer_name",
               str(SOURCE / "configs/gpt2-8m"), "--train_file", str(a.output / "text.txt"), "--deepspeed",
               json.dumps({"autotuning": tuning}), *(["--device_memory", device_memory] if device_memory else ["--use_cpu"])]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{case}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads((folder / "tuning.json").read_text())


def choice_of(trial):
    return tuple(trial.get(key, 0) for key in KEYS)


def compare(case, rounds):
    """The choices of all rounds against the shortest times of all candidates."""
    times = {}
    for _, grid in rounds:
        for trial in grid["trials"]:
            if "seconds" in trial:
                times[choice_of(trial)] = min(trial["seconds"], times.get(choice_of(trial), float("inf")))
    ranking = sorted(times, key=times.get)
    found = []
    for tuned, _ in rounds:
        choice = choice_of(tuned["best"])
        found.append({"choice": dict(zip(KEYS, choice)), "ratio": times[choice] / times[ranking[0]], "rank": 1 + ranking.index(choice),
                      "trials": len(tuned["trials"])})
    return {"case": case, "candidates": len(times), "best": dict(zip(KEYS, ranking[0])), "best_seconds": times[ranking[0]],
            "ratio": statistics.median(f["ratio"] for f in found), "found": found,
            "table": [dict(zip(KEYS, choice), seconds=times[choice]) for choice in ranking]}


def processor():
    with open("/proc/cpuinfo") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def main():
    a = parse()
    a.output.mkdir(parents=True, exist_ok=True)
    (a.output / "text.txt").write_text("candidates have random tokens\n")
    rounds = {case: [] for case in a.cases}
    for number in range(a.rounds):
        for case in a.cases:
            rounds[case].append((search(a, case, False), search(a, case, True)))
            now = compare(case, rounds[case])
            print(f"round {number + 1}: {case}: {now['candidates']} candidates, ratios {[round(f['ratio'], 3) for f in now['found']]}",
                  file=sys.stderr, flush=True)
    results = [compare(case, rounds[case]) for case in a.cases]
    out = {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "rounds": a.rounds, "cases": results}
    (a.output / "tuner.json").write_text(json.dumps(out, indent=1) + "\n")
    if a.record:
        tables = {}
        for result in results:
            ranks, device_memory, batch, options = CASES[result["case"]]
            tables[result["case"]] = {"ranks": ranks, "device_memory": device_memory or "", "batch": batch, "options": options,
                                      "times": [[row.get(key, 0) for key in KEYS] + [float(f"{row['seconds']:.5g}")] for row in result["table"]]}
        text = json.dumps({"processor": out["processor"], "keys": [*KEYS, "seconds"], "tables": tables}, indent=1)
        a.record.write_text(text + "\n")
    print(json.dumps([{k: v for k, v in r.items() if k not in ("table", "found")} | {"ratios": [f["ratio"] for f in r["found"]],
                                                                                     "ranks": [f["rank"] for f in r["found"]],
                                                                                     "trials": [f["trials"] for f in r["found"]]}
                      for r in results], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
