#!/usr/bin/env python3
"""Stored vectors of LoRA for each model family, from transformers' models with PEFT's adapters on the CPU.

  python3 tests/oracles/lora.py     writes tests/model/data/lora.{json,bin}

As model_families.py, with gradients and ten AdamW steps of the adapters only, of magnitudes (DoRA) and of modules that are saved in full.
Their weights, too, come from unit() by their names in PEFT's files. Needs torch, transformers, peft, numpy, safetensors.
"""
import copy
import json

import numpy as np
import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

import model_families as families

DATA = families.DATA.parent
TWO_LAYERS = {family: cases[0] for family, cases in families.FAMILIES.items()}
TWO_LAYERS["gpt2"] = dict(rows=2, sequence=12, config=families.GPT2_LIKE)
EVERYTHING = dict(r=3, lora_alpha=5, target_modules="all-linear")
CASES = [(family, "all", TWO_LAYERS[family], EVERYTHING) for family in sorted(TWO_LAYERS)] + [
    (family, "default", TWO_LAYERS[family], dict(r=2, lora_alpha=8)) for family in ("gpt2", "gpt_bigcode", "gpt_neox", "llama", "phi")] + [
    ("llama", "stabilized", TWO_LAYERS["llama"], dict(r=4, lora_alpha=3, use_rslora=True, target_modules=["gate_proj", "self_attn.o_proj"])),
    ("gpt2", "pattern", TWO_LAYERS["gpt2"], dict(r=2, lora_alpha=2, target_modules=r".*\.1\.mlp\.c_(fc|proj)")),
    ("gpt2", "dora", TWO_LAYERS["gpt2"], dict(EVERYTHING, use_dora=True)), ("llama", "dora", TWO_LAYERS["llama"], dict(EVERYTHING, use_dora=True)),
    ("llama", "saved", TWO_LAYERS["llama"], dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"],
                                                 modules_to_save=["embed_tokens", "lm_head", "model.norm", "down_proj"])),
    ("gpt2", "saved_tied", TWO_LAYERS["gpt2"], dict(r=2, lora_alpha=2, target_modules=["c_attn", "c_fc"], use_dora=True,
                                                    modules_to_save=["wte", "ln_f", "lm_head"], ensure_weight_tying=True))]


def build(family, case, adapter):
    """The adapted model in fp64, {name in files: parameter} of the adapters, the configurations."""
    model, _, saved = families.build(family, case, torch.float64)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **copy.deepcopy(adapter)))  # PEFT changes lists
    named = dict(model.named_parameters())
    out = {}
    for i, (name, p) in enumerate(named.items()):
        if p.requires_grad:
            p.data = torch.full_like(p.data, float(i), dtype=torch.float64)
    for name, t in get_peft_model_state_dict(model).items():
        p = list(named.values())[int(t.flatten()[0])]
        if not any(p is known for known in out.values()):  # a tied head has the embedding's weights
            out[name] = p
    for name, p in out.items():
        p.data.copy_(families.weight(family, name, tuple(p.shape)))
    config = model.peft_config["default"].to_dict()
    config = {k: sorted(v) if isinstance(v, set) else v for k, v in config.items()}
    config = {k: v.value if hasattr(v, "value") else v for k, v in config.items()}
    config.pop("runtime_config", None)
    return model.train(), out, saved, config


def trajectory(family, case, adapter):
    model, named, _, _ = build(family, case, adapter)
    optimizer, losses = torch.optim.AdamW(named.values(), **families.ADAMW), []
    for step in range(families.STEPS):
        optimizer.zero_grad()
        loss, _ = families.loss_of(model, families.tokens(case, step), torch.float64)
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

    for family, name, case, adapter in CASES:
        with families.fp64_stays():
            model, named, saved, config = build(family, case, adapter)
            loss, logits = families.loss_of(model, families.tokens(case, 0), torch.float64)
            loss.backward()
            index.append(dict(name=f"{family}_{name}", rows=case["rows"], sequence=case["sequence"], config=saved, adapter=config,
                              loss=loss.item(), last_logits=store(logits[:, -1].detach().numpy()),
                              gradients={n: store(p.grad.numpy()) for n, p in sorted(named.items())},
                              trajectory=trajectory(family, case, adapter)))
        print(f"{family}, {name}: loss {loss.item():.9f}, {sum(p.numel() for p in named.values())} parameters train")
    (DATA / "lora.json").write_text(json.dumps(index) + "\n")
    (DATA / "lora.bin").write_bytes(bytes(blob))


if __name__ == "__main__":
    main()
