#!/usr/bin/env python3
"""Stored losses of adapters on a quantized base, from transformers' models with bitsandbytes' layers and PEFT's adapters on the CPU.

  TORCHDYNAMO_DISABLE=1 python3 tests/oracles/qlora.py     writes tests/model/data/qlora.{json,bin}

As lora.py, but in fp32: bitsandbytes has no fp64. The linear layers of blocks become Linear4bit or Linear8bitLt as in transformers, which
leaves out the head and transposes the matrices of Conv1D. Their sizes are multiples of 64 (see weight_codes.py). `trajectory` has the losses of ten AdamW steps in fp32, `bf16_trajectory` those
under autocast with compute dtype bfloat16. Needs torch, transformers, peft, bitsandbytes, numpy.
"""
import json

import bitsandbytes as bnb
import numpy as np
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from transformers.pytorch_utils import Conv1D

import lora
import model_families as families

LLAMA = dict(rows=4, sequence=16, config=dict(families.LLAMA_LIKE, hidden_size=64, intermediate_size=128))
GPT2 = dict(rows=4, sequence=12, config=dict(families.GPT2_LIKE, n_embd=64))
ALL = dict(r=3, lora_alpha=5, target_modules="all-linear")
CASES = [("llama", "nf4", LLAMA, ALL), ("llama", "nf4_double", LLAMA, ALL), ("llama", "int8", LLAMA, ALL), ("gpt2", "nf4_double", GPT2, ALL),
         ("gpt2", "int8", GPT2, dict(r=2, lora_alpha=8)), ("llama", "nf4_double", LLAMA, dict(ALL, use_dora=True)),
         ("gpt2", "nf4", GPT2, dict(r=2, lora_alpha=8, use_dora=True))]


def quantized(layer, kind, compute):
    weight = (layer.weight.T if isinstance(layer, Conv1D) else layer.weight).detach().contiguous()
    out, inner = weight.shape
    if kind == "int8":
        new = bnb.nn.Linear8bitLt(inner, out, bias=layer.bias is not None, has_fp16_weights=False, threshold=6.0)
        new.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False).to("cpu")
    else:
        double = kind == "nf4_double"
        new = bnb.nn.Linear4bit(inner, out, bias=layer.bias is not None, compute_dtype=compute, compress_statistics=double, quant_type="nf4")
        new.weight = bnb.nn.Params4bit(weight, requires_grad=False, compress_statistics=double, quant_type="nf4", module=new).to("cpu")
    if layer.bias is not None:
        new.bias = layer.bias
    return new


def build(family, kind, case, adapter, compute):
    model, _, saved = families.build(family, case, torch.float32)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, (torch.nn.Linear, Conv1D)) and "lm_head" not in name:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, quantized(layer, kind, compute))
    setattr(model, "is_loaded_in_8bit" if kind == "int8" else "is_loaded_in_4bit", True)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **adapter))
    named = dict(model.named_parameters())
    trained = [p for p in named.values() if p.requires_grad]
    for i, p in enumerate(trained):
        p.data = torch.full_like(p.data, float(i))
    out = {name: trained[int(t.flatten()[0])] for name, t in get_peft_model_state_dict(model).items()}
    assert len(out) == len(trained)
    for name, p in out.items():
        p.data.copy_(families.weight(family, name, tuple(p.shape)))
    config = model.peft_config["default"].to_dict()
    config = {k: sorted(v) if isinstance(v, set) else v for k, v in config.items()}
    config = {k: v.value if hasattr(v, "value") else v for k, v in config.items()}
    config.pop("runtime_config", None)
    config.pop("fan_in_fan_out", None)  # the layers are no Conv1D any more, those of the files are
    if family == "gpt2":
        config["fan_in_fan_out"] = True
    return model.train(), out, saved, config


def trajectory(family, kind, case, adapter, compute):
    model, named, _, _ = build(family, kind, case, adapter, compute)
    optimizer, losses = torch.optim.AdamW(named.values(), **families.ADAMW), []
    for step in range(families.STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=compute == torch.bfloat16):
            loss, _ = families.loss_of(model, families.tokens(case, step), torch.float32)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def main():
    torch.set_num_threads(1)
    index, blob = [], bytearray()

    def store(array):
        offset = len(blob) // 4
        blob.extend(np.ascontiguousarray(array, dtype="<f4").tobytes())
        return dict(offset=offset, shape=list(array.shape))

    for family, kind, case, adapter in CASES:
        model, named, saved, config = build(family, kind, case, adapter, torch.float32)
        loss, logits = families.loss_of(model, families.tokens(case, 0), torch.float32)
        loss.backward()
        dora = "_dora" if adapter.get("use_dora") else ""
        index.append(dict(name=f"{family}_{kind}{dora}", rows=case["rows"], sequence=case["sequence"], config=saved, adapter=config, format=kind,
                          loss=loss.item(), last_logits=store(logits[:, -1].detach().numpy()),
                          gradients={n: store(p.grad.numpy()) for n, p in sorted(named.items())},
                          trajectory=trajectory(family, kind, case, adapter, torch.float32),
                          bf16_trajectory=trajectory(family, kind, case, adapter, torch.bfloat16)))
        print(f"{family}, {kind}{dora}: loss {loss.item():.9f}, then {index[-1]['trajectory'][-1]:.9f}, bf16 {index[-1]['bf16_trajectory'][-1]:.9f}")
    (lora.DATA / "qlora.json").write_text(json.dumps(index) + "\n")
    (lora.DATA / "qlora.bin").write_bytes(bytes(blob))


if __name__ == "__main__":
    main()
