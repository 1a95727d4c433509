"""The configurations, run files and command lines of configs/guides."""
import json
import math
import shlex
import subprocess
import sys

from support import launcher_options

GPT2_XL, STARCODER = "1600", "6144"  # hidden sizes


def files(b, pattern):
    found = sorted((b.source / "configs/guides").glob(pattern))
    assert found, pattern
    return found


def guide_configurations(b):
    """Each resolves with the stage, precision and offload of its name."""
    for file in files(b, "*_zero*.json"):
        if file.name.endswith(".run.json"):
            continue
        hidden = GPT2_XL if file.name.startswith("gpt2") else STARCODER
        done = b.tool(["config", "check", file, "--ranks", "2", "--hidden_size", hidden, "--", "--learning_rate", "1e-5"], expect=0)
        stage = file.name.split("zero")[1][0]
        shown = json.loads(done.stdout)
        assert shown["stage"]["value"] == int(stage), (file.name, shown["stage"])
        precision = "bf16" if "bf16" in file.name else "fp16" if "fp16" in file.name else "fp32"  # fp16 "auto" follows the flag
        offload = "nvme" if "nvme" in file.name else "cpu" if "offload" in file.name else "none"
        assert shown["offload_optimizer"]["value"] == offload, (file.name, shown["offload_optimizer"])
        assert shown["dtype"]["value"] == precision, (file.name, shown["dtype"])


def guide_configurations_train_on_a_bounded_device(b):
    """Each stage and offload of the guides, as it is written: two steps of a model of its family on simulated devices. With offload the
    losses are those of the stage without it, and the device needs less memory."""
    losses, memory = {}, {}
    for file in files(b, "*_zero*.json"):
        if file.name.endswith(".run.json"):
            continue
        precision = "bf16" if "bf16" in file.name else "fp16"
        family = "gpt2" if file.name.startswith("gpt2") else "gpt_bigcode"
        words = dict(deepspeed=file, model_type=family, per_device_train_batch_size=4, max_steps=2, learning_rate=1e-3, device_memory="128MiB")
        done = b.train(2, b.common(file.stem, **words, **{precision: True}))
        assert "simulated in host memory" in done.stderr, done.stderr
        if "nvme" in file.name:
            assert "/dev/shm is on a file system in memory" in done.stderr, done.stderr
            assert b.status(file.stem)["offload"]["optimizer_bytes_per_rank"] > 0, b.status(file.stem)
        name = file.stem.replace("_unpinned", "")
        stem, _, offload = name.partition("_offload_")
        losses[file.stem], memory[file.stem] = b.losses(file.stem), b.status(file.stem)["memory"]
        assert len(losses[file.stem]) == 2 and all(math.isfinite(loss) for loss in losses[file.stem]), (file.name, losses)
        if offload:
            assert losses[file.stem] == losses[stem], (file.name, losses[file.stem], losses[stem])
            assert memory[file.stem]["device"]["peak"] < memory[stem]["device"]["peak"], (file.name, memory)
    assert len(losses) == 12, sorted(losses)
    pinned, unpinned = (memory["starcoder_zero3_bf16_offload_all" + end]["pinned"]["peak"] for end in ("", "_unpinned"))
    assert unpinned < pinned, (pinned, unpinned)


def guide_run_files(b):
    """Started from the source directory, they take the configuration that they name."""
    for file in files(b, "*.run.json"):
        shown = json.loads(b.tool(["config", "check", file, "--ranks", "2", "--hidden_size", GPT2_XL], cwd=b.source).stdout)
        given = json.loads(file.read_text())
        assert shown["stage"]["value"] == (3 if "deepspeed" in given else 0), (file.name, shown["stage"])
        assert shown["product_dtype"]["value"] == ("bf16" if given.get("bf16") else "fp16"), (file.name, shown["product_dtype"])
        assert shown["micro_batch_size"] == {"value": 1, "origin": "run file"}, (file.name, shown["micro_batch_size"])


def guide_commands(b):
    """tessera launch translates the guides' lines; the arguments of the others resolve."""
    lines = [line for line in (b.source / "configs/guides/commands.sh").read_text().splitlines() if line and line[0] != "#"]
    assert len(lines) == 8, lines
    for line in lines:
        words = shlex.split(line)
        if words[0] == "tessera":
            ranks = words[2].split("=")[1]
            done = b.tool([words[1], "--dry-run", *words[2:]], expect=0, cwd=b.source)
            shown = done.stdout + done.stderr
            assert f"-np {ranks} " in shown and "tessera-train --deepspeed configs/guides/gpt2_xl_zero3.json" in shown, shown
            words = ["mpirun", "-np", ranks, "tessera-train", *words[4:]]
        b.tool(["config", "check", "--ranks", words[2], "--hidden_size", STARCODER, "--", *words[4:]], expect=0, cwd=b.source)


def experiments_table(b):
    """tests/bench/experiments.py puts runs side by side: rates and losses are those of the runs, a failed run says why."""
    model = b.common("unused", output_dir=None, do_train=None, per_device_train_batch_size=None, max_steps=None, logging_steps=None, save_strategy=None)
    script = [sys.executable, str(b.source / "tests/bench/experiments.py"), "--bin", str(b.bin), "--output", str(b.work / "out"), "--steps", "3"]
    words = ["--stages", "0,2", "--precisions", "fp32", "--micro_batches", "2,100000", "--ranks", "2", "--", *model, "--dataloader_drop_last"]
    launcher = ["--launcher", " ".join([b.mpiexec, *launcher_options(b.mpiexec)])]
    done = subprocess.run(script + launcher + words, env=b.environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    rows = json.loads((b.work / "out/experiments.json").read_text())["rows"]
    good, failed = [r for r in rows if r["micro_batch"] == "2"], [r for r in rows if r["micro_batch"] != "2"]
    b.train(2, b.common("run", per_device_train_batch_size=2, max_steps=3))
    for row in good:
        assert row["loss"] == b.losses("run")[-1] and row["samples_per_second"] > 0 and 0 < row["model_states"] <= row["peak_memory"], row
    assert good[1]["model_states"] < good[0]["model_states"], good  # stage 2 partitions on two ranks
    assert len(failed) == 2 and all("exit code 65" in r["failed"] for r in failed), failed
    for name in ("experiments.md", "experiments.svg"):
        assert f"{good[0]['loss']:.4f}" in (b.work / "out" / name).read_text(), name
