#!/usr/bin/env python3
"""Writes deepspeed_names.json: the options of DeepSpeed's launcher, and the fields of its typed configuration blocks, each with its aliases. They are
read from the sources, so that PyTorch is not needed.

    python3 tests/oracles/deepspeed_names.py [FOLDER]      needs deepspeed (or its unpacked sources); the stored file was made with 0.19.8
"""
import ast
import importlib.util
import json
import pathlib
import re
import sys

BLOCKS = {  # file: {class: block}
    "runtime/zero/config.py": {"DeepSpeedZeroConfig": "zero_optimization"},
    "runtime/zero/offload_config.py": {"DeepSpeedZeroOffloadParamConfig": "zero_optimization.offload_param",
                                       "DeepSpeedZeroOffloadOptimizerConfig": "zero_optimization.offload_optimizer"},
    "runtime/precision_config.py": {"DeepSpeedFP16Config": "fp16", "DeepSpeedBF16Config": "bf16"},
    "monitor/config.py": {"TensorBoardConfig": "tensorboard", "WandbConfig": "wandb", "CSVConfig": "csv_monitor", "CometConfig": "comet"},
    "comm/config.py": {"CommsLoggerConfig": "comms_logger"},
    "runtime/config.py": {"HybridEngineConfig": "hybrid_engine"},
    "compile/config.py": {"CompileConfig": "compile"},
}


def options(folder):
    """[["--num_gpus", "--num_accelerators"], ...]"""
    tree = ast.parse((folder / "launcher/runner.py").read_text())
    calls = [c for c in ast.walk(tree) if isinstance(c, ast.Call) and getattr(c.func, "attr", "") == "add_argument"]
    names = [[a.value for a in c.args if isinstance(a, ast.Constant) and a.value.startswith("-")] for c in calls]
    return sorted(n for n in names if n)


def fields(folder):
    """{"zero_optimization": [["stage"], ["prefetch_bucket_size", "stage3_prefetch_bucket_size"], ...]}"""
    found = {}
    for file, classes in BLOCKS.items():
        for node in ast.walk(ast.parse((folder / file).read_text())):
            if not isinstance(node, ast.ClassDef) or node.name not in classes:
                continue
            members = [m for m in node.body if isinstance(m, ast.AnnAssign)]
            aliases = [[k.value.value for k in getattr(m.value, "keywords", []) if k.arg == "alias"] for m in members]
            found[classes[node.name]] = sorted([m.target.id, *a] for m, a in zip(members, aliases))
    missing = {b for c in BLOCKS.values() for b in c.values()} - set(found)
    assert not missing, f"DeepSpeed has no class for {missing}"
    return found


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(importlib.util.find_spec("deepspeed").origin).parent
    version = re.search(r"\d+\.\d+\.\d+", (folder.parent / "version.txt").read_text()).group() if (folder.parent / "version.txt").exists() else "0.19.8"
    document = {"deepspeed": version, "launcher": options(folder), "blocks": fields(folder)}
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
