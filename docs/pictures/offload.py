"""offload.svg: the runs of offload.json as tests/bench/experiments.py draws them."""
import importlib.util
import json


def make(root):
    spec = importlib.util.spec_from_file_location("experiments", root / "tests/bench/experiments.py")
    experiments = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(experiments)
    return experiments.bars(json.loads((root / "docs/pictures/offload.json").read_text())).result()
