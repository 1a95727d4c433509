#!/usr/bin/env python3
"""Compares the choice of --auto_tune with that of an exhaustive search, measured in turn on this machine.

    tuner.py --bin build/host/bin --output DIR [--cases NAME,...] [--rounds 2] [--turns 5] [--record FILE]

A round runs, for every case, tessera-train --auto_tune and the same with autotuning.tuner_type gridsearch, which measures every candidate
that fits by the plan. The shortest of many measurements is the luckiest one. So the choices of all rounds and the candidates within 10 %
of the shortest time, at most a dozen, are then measured again in turns, one program each, with the order reversed in every other turn. A
candidate's time is its shortest of the exhaustive searches and turns: those that could be the best have the same number of measurements,
and the search under test does not judge itself. Per case: the time of each round's choice divided by the shortest of all, and the
measurements that the searches took. DIR/tuner.json has every number; --record writes the times of all candidates as the table that the test
plan.tuner replays."""
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
    "tight_devices": (2, "22MiB", 4, words("gpt2", "n_embd=128,n_layer=4,n_head=4,n_positions=64,vocab_size=4096", 64)),
}


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", required=True, type=pathlib.Path)
    p.add_argument("--output", required=True, type=pathlib.Path)
    p.add_argument("--cases", default=list(CASES), type=lambda text: text.split(","))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--turns", type=int, default=5, help="measurements of each leading candidate after the searches")
    p.add_argument("--launcher", default="mpirun --allow-run-as-root --oversubscribe")
    p.add_argument("--record", type=pathlib.Path)
    a = p.parse_args()
    if unknown := set(a.cases) - set(CASES):
        p.error(f"unknown case {', '.join(sorted(unknown))}; known: {', '.join(CASES)}")
    return a


def tune(a, case, tuning, *more, zero=None):
    """tuning.json of a search with the autotuning block."""
    ranks, device_memory, batch, options = CASES[case]
    folder = a.output / "run"
    shutil.rmtree(folder, ignore_errors=True)
    blocks = {"autotuning": dict(tuning, enabled=True), **({"zero_optimization": zero} if zero else {})}
    command = [*shlex.split(a.launcher), "-np", str(ranks), str(a.bin / "tessera-train"), *options, "--auto_tune", "--tune_minutes", "60",
               "--per_device_train_batch_size", str(batch), "--threads", "1", "--output_dir", str(folder), "--tokenizer_name",
               str(SOURCE / "configs/gpt2-8m"), "--train_file", str(a.output / "text.txt"), "--deepspeed",
               json.dumps(blocks), *(["--device_memory", device_memory] if device_memory else ["--use_cpu"]), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{case}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads((folder / "tuning.json").read_text())


def search(a, case, exhaustive):
    return tune(a, case, {"tuner_type": "gridsearch", "tuner_num_trials": 100000} if exhaustive else {})


def measure(a, case, choice):
    """Seconds per step of one candidate."""
    c = dict(zip(KEYS, choice))
    zero = {"stage": c["stage"], **{key: {"device": c[key]} for key in ("offload_optimizer", "offload_param")}}
    if c["mics_shard_size"]:
        zero["mics_shard_size"] = c["mics_shard_size"]
    if c["bucket_size"]:
        zero.update(reduce_bucket_size=c["bucket_size"], allgather_bucket_size=c["bucket_size"])
    micro = c["per_device_train_batch_size"]
    found = tune(a, case, {"tuner_type": "gridsearch", "min_train_micro_batch_size_per_gpu": micro, "max_train_micro_batch_size_per_gpu": micro},
                 "--recompute", c["recompute"], zero=zero)
    if len(found["trials"]) != 1:
        sys.exit(f"{case}: {len(found['trials'])} trials instead of one for {c}")
    return found["best"]["seconds"]


def measured_in_turns(a, case, rounds):
    """Seconds per step of the choices of all rounds and of the leading candidates, one number per turn."""
    times = grid_times(rounds)
    best = min(times.values())
    leading = sorted((c for c in times if times[c] < 1.1 * best), key=times.get)[:12]
    chosen = {choice_of(tuned["best"]) for tuned, _ in rounds}
    out = {choice: [] for choice in [*leading, *sorted(chosen - set(leading), key=str)]}
    for turn in range(a.turns):
        for choice in list(out)[::-1 if turn % 2 else 1]:
            out[choice].append(measure(a, case, choice))
    return out


def choice_of(trial):
    return tuple(trial.get(key, 0) for key in KEYS)


def grid_times(rounds):
    """The shortest times of all candidates in exhaustive searches."""
    times = {}
    for _, grid in rounds:
        for trial in grid["trials"]:
            if "seconds" in trial:
                times[choice_of(trial)] = min(trial["seconds"], times.get(choice_of(trial), float("inf")))
    return times


def compare(case, rounds, turns):
    """The choices of all rounds against the best of all candidates."""
    times = grid_times(rounds)
    for choice, seconds in turns.items():
        times[choice] = min(times[choice], *seconds)
    ranking = sorted(times, key=times.get)
    found = []
    for tuned, _ in rounds:
        choice = choice_of(tuned["best"])
        found.append({"choice": dict(zip(KEYS, choice)), "ratio": times[choice] / times[ranking[0]], "rank": 1 + ranking.index(choice),
                      "trials": len(tuned["trials"])})
    return {"case": case, "candidates": len(times), "best": dict(zip(KEYS, ranking[0])), "best_seconds": times[ranking[0]],
            "ratio": statistics.median(f["ratio"] for f in found), "found": found,
            "turns": [dict(zip(KEYS, choice), seconds=seconds) for choice, seconds in turns.items()],
            "searches": [{"tuned": tuned["trials"], "exhaustive": grid["trials"]} for tuned, grid in rounds],
            "table": [dict(zip(KEYS, choice), seconds=times[choice]) for choice in ranking]}


def processor():
    with open("/proc/cpuinfo") as lines:
        return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")


def main():
    a = parse()
    a.output.mkdir(parents=True, exist_ok=True)
    (a.output / "text.txt").write_text("candidates have random tokens\n")
    results = []
    for case in a.cases:
        rounds = [(search(a, case, False), search(a, case, True)) for _ in range(a.rounds)]
        results.append(compare(case, rounds, measured_in_turns(a, case, rounds)))
        now = results[-1]
        print(f"{case}: {now['candidates']} candidates, ratios {[round(f['ratio'], 3) for f in now['found']]}, ranks "
              f"{[f['rank'] for f in now['found']]}, measured {[f['trials'] for f in now['found']]}", file=sys.stderr, flush=True)
    out = {"processor": processor(), "cores": len(os.sched_getaffinity(0)), "rounds": a.rounds, "turns": a.turns, "cases": results}
    (a.output / "tuner.json").write_text(json.dumps(out, indent=1) + "\n")
    if a.record:
        tables = {}
        for result in results:
            ranks, device_memory, batch, options = CASES[result["case"]]
            tables[result["case"]] = {"ranks": ranks, "device_memory": device_memory or "", "batch": batch, "options": options,
                                      "times": [[row.get(key, 0) for key in KEYS] + [float(f"{row['seconds']:.5g}")] for row in result["table"]]}
        text = json.dumps({"processor": out["processor"], "keys": [*KEYS, "seconds"], "tables": tables}).replace(', [', ',\n[')
        a.record.write_text(text + "\n")
    inner = ("table", "found", "turns", "searches")
    print(json.dumps([{k: v for k, v in r.items() if k not in inner} |
                      {name: [f[key] for f in r["found"]] for name, key in (("ratios", "ratio"), ("ranks", "rank"), ("trials", "trials"))}
                      for r in results], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
