#!/usr/bin/env python3
"""Models, adapters of them, and what PEFT merges of them, from transformers and PEFT on the CPU.

  python3 tests/oracles/peft_merge.py     writes tests/checkpoint/data/peft_merge{,_dora_llama,_dora_gpt2}/{base,adapter,merged}

The first adapter is of a model whose embedding had grown: PEFT saves it and the head next to the adapters because they were resized. The
others are of DoRA, with modules that are saved in full. Weights come from unit() by their names, as in
model_families.py. Needs torch, transformers, peft, numpy, safetensors.
"""
import pathlib
import shutil

import torch
import transformers
from peft import LoraConfig, get_peft_model

import model_families as families

DATA = pathlib.Path(__file__).resolve().parent.parent / "checkpoint" / "data" / "peft_merge"
TOKENS = families.SMALL["vocab_size"] + 4


def set_weights(model, which=""):
    for name, p in model.named_parameters():
        if any(part in name for part in which.split("|")):
            p.data.copy_(families.weight("llama", name, tuple(p.shape)))


def write_merge(data, family, config, adapter, tokens=None):
    """adapter: arguments of LoraConfig. tokens: rows of the embedding when the adapter was trained."""
    shutil.rmtree(data, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **config), dtype=torch.float32)
    set_weights(model)
    model.save_pretrained(data / "base")
    model = transformers.AutoModelForCausalLM.from_pretrained(data / "base")
    if tokens:
        model.resize_token_embeddings(tokens)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **adapter))
    set_weights(model, "lora_|modules_to_save" + ("|embed_tokens|lm_head" if tokens else ""))  # also of the rows that were added
    model.peft_config["default"].base_model_name_or_path = str(data / "base")  # PEFT compares its vocab_size
    model.save_pretrained(data / "adapter")
    (data / "adapter" / "README.md").unlink(missing_ok=True)
    file = data / "adapter" / "adapter_config.json"
    file.write_text(file.read_text().replace(str(data / "base"), "base"))
    model.merge_and_unload().save_pretrained(data / "merged")
    for directory in ("base", "merged"):
        (data / directory / "generation_config.json").unlink(missing_ok=True)


def main():
    torch.set_num_threads(1)
    llama = dict(families.LLAMA_LIKE, num_hidden_layers=1)
    write_merge(DATA, "llama", llama, dict(r=2, lora_alpha=3, target_modules=["q_proj", "down_proj"]), TOKENS)
    write_merge(DATA.with_name("peft_merge_dora_llama"), "llama", llama,
                dict(r=2, lora_alpha=3, target_modules=["q_proj", "down_proj"], use_dora=True, modules_to_save=["embed_tokens", "lm_head"]))
    write_merge(DATA.with_name("peft_merge_dora_gpt2"), "gpt2", dict(families.GPT2_LIKE, n_layer=1),
                dict(r=2, lora_alpha=3, target_modules="all-linear", use_dora=True, modules_to_save=["wpe", "ln_f"]))


if __name__ == "__main__":
    main()
