#!/usr/bin/env python3
"""Reruns the tables of training guides on this machine: ZeRO stage x precision x micro-batch x ranks x offload, side by side.

    experiments.py --bin build/host/bin --output DIR [--stages 0,1,2,3] [--precisions fp32,bf16] [--micro_batches 4] [--ranks 1,2]
                   [--offloads none,cpu,nvme,cpu+weights,cpu+weights+unpinned,nvme+weights] [--transports node,nodes,tcp]
                   [--nvme_path DIR] [--steps 12] [--rounds 1] [--machine PROFILE]
                   [-- OPTIONS OF TESSERA-TRAIN]

Next to each measured rate and memory is what tessera plan predicts, with a machine profile that is measured first where --machine is not
given; the kernels of simulated devices have no profile. --guide N takes stages, precisions, offloads and transports of an experiment of the guides: 1 offload at stage 3, 2 stages, 3 bf16
and fp16, 4 transports. Transports: the ranks of a node; the same ranks as if each was a node, through MPI; that with MPI over TCP.
--device_memory runs on simulated devices. Offload is of the optimizer states; +weights offloads the weights of stage 3 to the same place, +unpinned without pinned memory. Combinations that do not exist are left out.

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
COLUMNS = ("stage", "precision", "micro_batch", "ranks", "offload", "transport", "samples_per_second", "planned_rate", "tokens_per_second",
           "model_states", "peak_memory", "planned_memory", "loss")


GUIDES = {  # the four experiments of the guides
    1: {"stages": "3", "precisions": "bf16", "offloads": "cpu+weights,cpu+weights+unpinned,cpu,nvme+weights"},
    2: {"stages": "1,2,3", "precisions": "bf16", "offloads": "none,cpu,cpu+weights"},
    3: {"stages": "3", "precisions": "bf16,fp16", "offloads": "cpu+weights"},
    4: {"stages": "3", "precisions": "bf16", "offloads": "cpu+weights", "transports": "node,nodes,tcp"}}
TRANSPORTS = {"node": {}, "nodes": {"TESSERA_SIMULATED_NODES": "each"}, "tcp": {"TESSERA_SIMULATED_NODES": "each", "OMPI_MCA_btl": "self,tcp"}}


def parse():
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", required=True, type=pathlib.Path)
    p.add_argument("--output", required=True, type=pathlib.Path)
    for name, default in (("stages", "0,1,2,3"), ("precisions", "fp32,bf16"), ("micro_batches", "4"), ("ranks", "1,2"), ("offloads", "none"),
                          ("transports", "node")):
        p.add_argument("--" + name, default=default, type=lambda text: text.split(","))
    p.add_argument("--nvme_path", help="directory on the drive; by default in DIR")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--machine", help="machine profile for the predictions; by default tessera selftest --profile measures one per number of ranks")
    p.add_argument("--launcher", default="mpirun --allow-run-as-root --oversubscribe")
    p.add_argument("--device_memory", help="simulated device of each rank, such as 2GiB")
    p.add_argument("--guide", type=int, choices=GUIDES)
    a = p.parse_args(words[:cut])
    for name, text in GUIDES.get(a.guide, {}).items():
        setattr(a, name, text.split(","))
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
    return case["offload"] == "none" or (stage > 0 and ("+weights" not in case["offload"] or stage == 3))


def configuration(case, drive):
    out = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
           "memory_breakdown": True, "zero_optimization": {"stage": int(case["stage"])}}
    if case["precision"] != "fp32":
        out[case["precision"]] = {"enabled": True}
    device, _, more = case["offload"].partition("+")
    block = {"device": device, "pin_memory": "unpinned" not in more, "nvme_path": str(drive)}
    out["zero_optimization"]["offload_optimizer"] = block
    out["zero_optimization"]["offload_param"] = dict(block, max_in_cpu=0) if "weights" in more else {"device": "none"}
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
    if a.device_memory:
        command += ["--device_memory", a.device_memory]
    more = {name: ",".join("1" * int(case["ranks"])) if value == "each" else value for name, value in TRANSPORTS[case["transport"]].items()}
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, **more))
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-1:]
        return {"failed": f"exit code {done.returncode}: {lines[0] if lines else ''}"}
    with open(folder / "metrics.jsonl") as lines:
        steps = [m for m in map(json.loads, lines) if "loss" in m]
    seconds = statistics.median(m["seconds"] for m in steps[WARM_UP:])
    states = re.search(r"model states per rank: ([0-9.]+ \w+)", done.stderr)
    memory = json.loads((folder / "status.json").read_text())["memory"]
    return {"samples_per_second": int(case["micro_batch"]) * int(case["ranks"]) / seconds,
            "tokens_per_second": statistics.median(m["tokens_per_second"] for m in steps[WARM_UP:]),
            "model_states": bytes_of(states[1]), "peak_memory": memory["device" if a.device_memory else "host"]["peak"], "loss": steps[-1]["loss"]}


def profile_of(a, ranks):
    """A machine profile that as many ranks have measured at the same time."""
    file = a.output / f"machine_{ranks}.json"
    if not file.exists():
        subprocess.run([str(a.bin / "tessera"), "selftest", "--dir", str(a.output), "--profile", str(file), "--profile_ranks", ranks],
                       check=True, stdout=subprocess.DEVNULL)
    return file


def plan(a, case, model):
    """What tessera plan predicts for a case; empty where it has no such plan."""
    config, out = a.output / "plan_config.json", a.output / "plan.json"
    config.write_text(json.dumps(configuration(case, a.nvme_path or a.output / "drive")))
    machine = [] if a.device_memory and not a.machine else ["--machine", str(a.machine or profile_of(a, case["ranks"]))]
    words = [w for i, w in enumerate(model) if not {"--train_file", "--tokenizer_name"} & {w, model[i - 1] if i else ""}]
    if not a.device_memory:
        words.append("--use_cpu")
    if not {"--gradient_checkpointing"} & set(words):
        words += ["--gradient_checkpointing", "false"]
    done = subprocess.run([str(a.bin / "tessera"), "plan", "--gpus_per_node", case["ranks"], *machine, "--json", str(out), "--",
                           *words, "--per_device_train_batch_size", case["micro_batch"], "--deepspeed", str(config)], capture_output=True, text=True)
    choices = json.loads(out.read_text())["choices"] if done.returncode in (0, 78) and out.exists() else []
    out.unlink(missing_ok=True)
    if len(choices) != 1 or "time" not in choices[0] and machine:
        return {}
    found = {"planned_memory": choices[0]["device" if a.device_memory else "host"]["total"]}
    if machine:
        found["planned_rate"] = int(case["micro_batch"]) * int(case["ranks"]) / choices[0]["time"]["step"]
    return found


def median_of(results):
    failed = [r for r in results if "failed" in r]
    return failed[0] if failed else {name: statistics.median(r[name] for r in results) for name in results[0]}


def shown(name, row):
    if name not in row:
        return "-"
    value = row[name]
    return {"samples_per_second": lambda: f"{value:.2f}", "planned_rate": lambda: f"{value:.2f}", "planned_memory": lambda: f"{value / (1 << 20):,.1f} MiB",
            "tokens_per_second": lambda: f"{value:,.0f}", "loss": lambda: f"{value:.4f}",
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
    labels = [f"stage {r['stage']} {r['precision']} b{r['micro_batch']} N={r['ranks']} {r['offload']} {r['transport']}" for r in rows]
    width, left = 220, max(270, 20 + 7 * max(map(len, labels), default=0))
    picture = svg.Picture(left + 3 * (width + 90), 50 + 22 * len(rows), "Experiments", "Samples per second, peak memory of rank 0 and last loss of each run")
    for k, (name, color) in enumerate(measures):
        x, top = left + k * (width + 90), max((r[name] for r in rows), default=0) or 1
        picture.text(x, 24, name.replace("_", " "), anchor="start", bold=True)
        for i, row in enumerate(rows):
            picture.box(x, 40 + 22 * i, width * row[name] / top, 14, fill=color, stroke=color, radius=0)
            picture.text(x + width * row[name] / top + 6, 52 + 22 * i, shown(name, row), size=11, anchor="start")
    for i, label in enumerate(labels):
        picture.text(left - 10, 52 + 22 * i, label, size=12, anchor="end")
    return picture


def main():
    a, options = parse()
    a.output.mkdir(parents=True, exist_ok=True)
    model = options or default_model(a.output)
    axes = {"stage": a.stages, "precision": a.precisions, "micro_batch": a.micro_batches, "ranks": a.ranks, "offload": a.offloads,
            "transport": a.transports}
    cases = [case for case in (dict(zip(axes, values)) for values in itertools.product(*axes.values())) if exists(case)]
    results = [[] for _ in cases]
    for number in range(a.rounds):
        for case, found in zip(cases, results):
            found.append(run(a, case, model))
            print(f"round {number + 1}: {case} {found[-1]}", file=sys.stderr, flush=True)
    rows = [{**case, **median_of(found), **plan(a, case, model)} for case, found in zip(cases, results)]
    (a.output / "experiments.json").write_text(json.dumps({"cores": len(os.sched_getaffinity(0)), "options": model, "steps": a.steps,
                                                           "rows": rows, "rounds": results}, indent=1) + "\n")
    (a.output / "experiments.md").write_text(table(rows))
    (a.output / "experiments.svg").write_text(bars(rows).result())
    print(table(rows), end="")
    return 1 if all("failed" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
