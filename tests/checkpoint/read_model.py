#!/usr/bin/env python3
"""Loads one model from every format that was written of it and compares: read_model.py DIRECTORY STEP_DIRECTORY...
Exit 77: a package is missing."""
import pathlib
import sys
import zipfile

try:
    import h5py
    import numpy as np
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError as e:
    print(f"{sys.executable} has no {e.name}.")
    sys.exit(77)

base, steps = pathlib.Path(sys.argv[1]), [pathlib.Path(p) for p in sys.argv[2:]]
reference = load_file(base / "single.safetensors")
assert len(reference) == 16 and "lm_head.weight" not in reference, sorted(reference)

archive = torch.load(base / "single.bin", weights_only=True)
assert list(archive)[-1] == "lm_head.weight"
assert archive["lm_head.weight"].data_ptr() == archive["transformer.wte.weight"].data_ptr(), "the tied tensors do not share a storage"
mapped = torch.load(base / "single.bin", weights_only=True, mmap=True)
assert zipfile.ZipFile(base / "single.bin").testzip() is None
for name, tensor in reference.items():
    assert torch.equal(archive[name], tensor) and torch.equal(mapped[name], tensor), name

half = load_file(base / "half.safetensors")
half_archive = torch.load(base / "half.bin", weights_only=True)
for name, tensor in reference.items():
    assert half[name].dtype == torch.bfloat16 and torch.equal(half[name], tensor.bfloat16()), name
    assert torch.equal(half_archive[name], tensor.bfloat16()), name

with h5py.File(base / "single.h5") as model, h5py.File(base / "half.h5") as half_model:
    for name, tensor in reference.items():
        assert np.array_equal(model[name][()], tensor.numpy()), name
        rounded = np.empty(tensor.shape, np.float32)
        half_model[name].read_direct(rounded)  # HDF5 converts
        assert np.array_equal(rounded, tensor.bfloat16().float().numpy()), name

for step in steps:
    with h5py.File(step / "view.h5") as view:
        for name, tensor in reference.items():
            assert np.array_equal(view["fp32"][name][()], tensor.numpy()), (step, name)
        assert np.array_equal(view["fp32/lm_head.weight"][()], reference["transformer.wte.weight"].numpy()), step
        assert np.array_equal(view["fp32/transformer.wte.weight"][3:90:7, 5], reference["transformer.wte.weight"].numpy()[3:90:7, 5]), step
        assert view["exp_avg_sq/transformer.wpe.weight"].shape == (16, 24) and not np.isnan(view["exp_avg_sq/transformer.wpe.weight"]).any(), step
    pieces = {}
    for shard in sorted(step.glob("shard_*.h5")):
        with h5py.File(shard) as file:
            assert file.attrs["step"] == 1 and file.attrs["format"] in ("tessera-shard", b"tessera-shard"), dict(file.attrs)
            for name, data in file["fp32"].items():
                flat = pieces.setdefault(name, np.full(int(np.prod(data.attrs["shape"])), np.nan, np.float32))
                flat[data.attrs["offset"]:data.attrs["offset"] + data.shape[0]] = data[()]
    for name, tensor in reference.items():
        assert np.array_equal(pieces[name], tensor.numpy().ravel()), (step, name)

for directory in ("hf", "hf-bin"):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(base / directory, output_loading_info=True, dtype=torch.float32)
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs") if key in info), info
    state = model.state_dict()
    for name, tensor in reference.items():
        assert torch.equal(state[name], tensor), name
    assert model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
print("all formats agree")
