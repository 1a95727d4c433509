#!/usr/bin/env bash
# Runs bench.optimizer and its PyTorch peer in turns and prints how many times faster ours is, as JSON lines.
#   tests/bench/run_optimizer.sh BENCH_BINARY [PYTHON = python3] [ELEMENTS = 1e8] [TURNS = 3]
set -euo pipefail
bench=${1:?usage: run_optimizer.sh BENCH_BINARY [PYTHON] [ELEMENTS] [TURNS]}
python=${2:-python3} elements=${3:-1e8} turns=${4:-3}
here=$(cd "$(dirname "$0")" && pwd)
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
for ((turn = 0; turn < turns; ++turn)); do
  "$bench" "$elements" 3 >>"$lines"
  "$python" "$here/optimizer_torch.py" "$elements" 3 >>"$lines"
done
"$python" - "$lines" <<'END'
import json, statistics, sys
times, lines = {}, [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
for line in lines:
    times.setdefault(line["metric"], []).append(line["seconds"])
middle = {name: statistics.median(values) for name, values in times.items()}
for ours, theirs in [("adamw_fp32", "torch_adamw_fused"), ("adamw_fp32", "torch_adamw_foreach"), ("adamw_fp32", "torch_adamw_deepspeed"),
                     ("optimizer_step_fp32", "torch_passes_fp32"), ("optimizer_step_bf16", "torch_passes_bf16")]:
    if theirs not in middle:  # DeepSpeed is not installed
        continue
    print(json.dumps({"metric": f"{theirs} / {ours}", "value": middle[theirs] / middle[ours], "num": middle[theirs], "den": middle[ours],
                      "turns": len(times[ours]), "elements": lines[0]["elements"], "threads": lines[0]["threads"]}))
END
