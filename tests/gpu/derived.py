#!/usr/bin/env python3
"""What the figures of tests/gpu/run.sh say together: shares of the best product and of the chip's peak, and of PyTorch's speed.

    derived.py LOG ..."""
import json
import sys

PEAK_TFLOPS = {"H100": 989.4, "H200": 989.4, "A100": 312.0, "B200": 2250.0}  # dense bf16 of the SXM parts, by their data sheets

figures = {}
for path in sys.argv[1:]:
    name = path.rsplit("/", 1)[-1].removesuffix(".log")
    for line in open(path, errors="replace"):
        if line.startswith("{"):
            try:
                figures[name] = json.loads(line)
            except ValueError:  # a part that was cut short
                continue
try:
    import subprocess
    chip = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
except OSError:
    chip = ""
peak = next((value for name, value in PEAK_TFLOPS.items() if name in chip), None)
gemm = figures.get("bench_gemm", {}).get("tflops")
for name in sorted(figures):
    f = figures[name]
    if f.get("bench") != "train":
        continue
    out = [f"{name}: {f['tokens_per_second']} tokens/s, {f['tflops']} TFLOP/s"]
    if peak:
        out.append(f"MFU {f['tflops'] / peak:.3f}")
    if gemm:
        out.append(f"{f['tflops'] / gemm:.3f} of the best product")
    torch = figures.get(name.replace("train", "torch"), {})
    if torch.get("bench") == "train_torch":
        out.append(f"{f['tokens_per_second'] / torch['tokens_per_second']:.3f} of PyTorch {torch['torch']}")
    if f.get("work_seconds"):
        step = f["rows"] * f["length"] / f["tokens_per_second"]
        shares = dict(f["work_seconds"], rest=step - sum(f["work_seconds"].values()))
        out.append("of a step " + ", ".join(f"{name} {100 * seconds / step:.1f} %" for name, seconds in shares.items()))
    if f.get("uses"):
        out.append(f"by {f['uses']}")
    out.append(f"model states {f['state_bytes'] / f['formula_bytes']:.4f} of the formula")
    print(", ".join(out))
if "bench_optimizer" in figures:
    print(f"optimizer update: {figures['bench_optimizer']['ratio']} of a device copy")
