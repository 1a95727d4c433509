#!/usr/bin/env python3
"""Writes float8.json: the value of every code of torch's float8_e4m3fn and float8_e5m2, and the codes of chosen and random fp32 numbers.

    python3 tests/oracles/float8.py      needs torch

torch does not saturate: numbers that round beyond the largest become NaN (e4m3fn) or infinity (e5m2). They are clamped before the cast, as
PTX's cvt.rn.satfinite does.
"""
import json
import pathlib
import struct

import torch

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def bits_of(values):
    return [struct.unpack("<I", struct.pack("<f", v))[0] for v in values.tolist()]


def main():
    generator = torch.Generator().manual_seed(20261123)
    out = {}
    for name, dtype in FORMATS.items():
        codes = torch.arange(256, dtype=torch.uint8)
        values = codes.view(dtype).float()
        finite = values[values.isfinite()].unique()
        largest = torch.finfo(dtype).max
        middle = (finite[1:].double() + finite[:-1].double()).div(2).float()  # exact in fp32
        up, down = torch.full_like(middle, float("inf")), torch.full_like(middle, float("-inf"))
        smallest = finite[finite > 0].min()
        edges = torch.tensor([0.0, -0.0, 2.0**-149, -(2.0**-126), largest * 1.03, largest * 1.07, -largest * 2, 3.4e38, float("inf"), float("-inf")])
        ties = torch.cat([middle, torch.nextafter(middle, up), torch.nextafter(middle, down)])
        exponents = torch.randint(-30, 20, (2000,), generator=generator)
        random = torch.ldexp(torch.randn(2000, generator=generator), exponents)
        inputs = torch.cat([finite, ties, edges, smallest * torch.rand(200, generator=generator), random])
        rounded = inputs.clamp(-largest, largest).to(dtype).view(torch.uint8)
        out[name] = {"values": bits_of(values), "inputs": bits_of(inputs), "codes": rounded.tolist()}
    path = pathlib.Path(__file__).with_suffix(".json")
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
