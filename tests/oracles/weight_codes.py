#!/usr/bin/env python3
"""Stored codes of weights that do not train, from bitsandbytes on the CPU.

  python3 tests/oracles/weight_codes.py     writes tests/oracles/weight_codes.json

Each case has the bytes of a matrix in the order of kernels::WeightCodes, and a checksum of the numbers that they become in fp32 and bf16.
bitsandbytes quantizes int8 weights after it rounded them to fp16 (Int8Params), and multiplies with code * (absmax / 127) on the CPU
(MatMul8bitFp). Columns are multiples of 64 or no multiples of 16: for others its AVX-512 code takes the absmax of another block. Needs torch, bitsandbytes, numpy.
"""
import base64
import json
import pathlib

import bitsandbytes.functional as bnb
import numpy as np
import torch
from bitsandbytes.nn import Int8Params

OUT = pathlib.Path(__file__).with_suffix(".json")
CASES = [(48, 128, "float32"), (257, 70, "float32"), (5, 7, "float32"), (64, 320, "bfloat16"), (300, 64, "float32")]


def weights(rows, columns, dtype):
    """Small numbers with tails, the same in C++ (tests/kernels/quantization/weight_codes.test.cpp). Row 1 is zero."""
    i = np.arange(rows * columns, dtype=np.uint64)
    unit = ((i * np.uint64(2654435761)) % np.uint64(1 << 24)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)
    out = torch.from_numpy(unit * unit * unit * np.float32(0.0625)).reshape(rows, columns)
    out[1] = 0
    return out.to(getattr(torch, dtype))


def checksum(values):
    """FNV-1a of the bytes."""
    h = 0xCBF29CE484222325
    for byte in values.contiguous().view(torch.uint8).numpy().tobytes():
        h = (h ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{h:016x}"


def nf4(w, double):
    codes, state = bnb.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=double)
    if double:
        numbers = torch.cat([state.offset.reshape(1), state.state2.absmax])
        parts = [numbers.numpy().tobytes(), state.absmax.numpy().tobytes()]
    else:
        parts = [state.absmax.numpy().tobytes()]

    def decoded(dtype):
        state.dtype = dtype
        return bnb.dequantize_4bit(codes, state)

    return b"".join(parts + [codes.numpy().tobytes()]), decoded


def int8(w):
    weight = Int8Params(w, requires_grad=False, has_fp16_weights=False).to("cpu")
    codes, absmax = weight.CB, weight.SCB
    return absmax.numpy().tobytes() + codes.numpy().tobytes(), lambda dtype: codes.to(dtype).mul_(absmax.unsqueeze(1).mul(1.0 / 127.0))


def main():
    torch.set_num_threads(1)
    out = []
    for rows, columns, dtype in CASES:
        w = weights(rows, columns, dtype)
        for name, (data, decoded) in dict(nf4=nf4(w, False), nf4_double=nf4(w, True), int8=int8(w)).items():
            out.append(dict(format=name, rows=rows, columns=columns, dtype=dtype, codes=base64.b64encode(data).decode(),
                            fp32=checksum(decoded(torch.float32)), bf16=checksum(decoded(torch.bfloat16))))
    OUT.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
