"""What the figures of tests/gpu/run.sh say together: training figures as shares of the chip's peak
(MFU), of the best product and of PyTorch's speed."""

PEAK_TFLOPS = {"H100": 989.4, "H200": 989.4, "A100": 312.0, "B200": 2250.0}  # dense bf16 of the SXM parts, by their data sheets
GOALS = {"bench_train_124m": 0.50, "bench_train_1558m": 0.62, "bench_llama": 0.66}  # MFU on one H100 or H200
COLUMNS = (("part", "part"), ("tokens_per_second", "tokens/s"), ("tflops", "TFLOP/s"), ("mfu", "MFU"), ("goal", "goal"), ("of_best_product", "of bench_gemm"),
           ("of_torch", "of PyTorch"), ("states_to_formula", "states/formula"))


def training(figures, chip):
    """A row for each training figure. @p figures: by part, the last one of each."""
    peak = next((value for name, value in PEAK_TFLOPS.items() if name in chip), None)
    product = figures.get("bench_gemm", {}).get("tflops")
    out = []
    for part, f in figures.items():
        if "tokens_per_second" in f and "bench" not in f:  # of tessera-train's metrics
            out.append({"part": part, "tokens_per_second": round(f["tokens_per_second"])})
        if f.get("bench") != "train" or not f["tokens_per_second"]:
            continue
        row = {"part": part, "tokens_per_second": f["tokens_per_second"], "tflops": f["tflops"], "states_to_formula": f["state_bytes"] / f["formula_bytes"]}
        if peak:
            row["mfu"] = f["tflops"] / peak
            row["goal"] = GOALS.get(part)
        if product:
            row["of_best_product"] = f["tflops"] / product
        torch = figures.get(part.replace("train", "torch"), {})
        if torch.get("bench") == "train_torch":
            row["of_torch"] = f["tokens_per_second"] / torch["tokens_per_second"]
        if f.get("work_seconds"):
            step = f["rows"] * f["length"] / f["tokens_per_second"]
            row["shares_of_step"] = {name: seconds / step for name, seconds in f["work_seconds"].items()}  # timed apart: they may sum to more
        out.append(row)
    return out


def text_of(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}" if value > 20 else f"{value:.3f}"
    return str(value)


def table(rows):
    """Lines of text."""
    cells = [[title for _, title in COLUMNS]] + [[text_of(row.get(key)) for key, _ in COLUMNS] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
    out = ["  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]) for line in cells]
    for row in rows:
        if "shares_of_step" in row:
            out.append(f"{row['part']}, of a step: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in row["shares_of_step"].items()))
    return out
