#!/usr/bin/env python3
"""Writes safetensors_reference.safetensors with the safetensors package: one tensor of each type that is read as weights, with the
values 0.5 * i - 3 (exact in every type), and an integer tensor.

    python3 tests/oracles/safetensors_reference.py      needs torch and safetensors; the stored file was made with 0.8
"""
import pathlib

import torch
from safetensors.torch import save_file

values = (torch.arange(24, dtype=torch.float64) * 0.5 - 3).reshape(4, 6)
tensors = {name: values.to(dtype).clone() for name, dtype in
           [("f64", torch.float64), ("f32", torch.float32), ("f16", torch.float16), ("bf16", torch.bfloat16)]}
tensors["odd name \u00e9\n"] = torch.arange(3, dtype=torch.int64)
save_file(tensors, pathlib.Path(__file__).with_suffix(".safetensors"), metadata={"format": "pt", "quote": "\"\\"})
