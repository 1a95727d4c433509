#!/usr/bin/env python3
"""A model, an adapter of it after its embedding had grown, and what PEFT merges of them, from transformers and PEFT on the CPU.

  python3 tests/oracles/peft_merge.py     writes tests/checkpoint/data/peft_merge/{base,adapter,merged}

PEFT saves the embedding and the head next to the adapters because they were resized. Weights come from unit() by their names, as in
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


def main():
    torch.set_num_threads(1)
    shutil.rmtree(DATA, ignore_errors=True)
    config = transformers.AutoConfig.for_model("llama", **dict(families.LLAMA_LIKE, num_hidden_layers=1))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    set_weights(model)
    model.save_pretrained(DATA / "base")
    model = transformers.AutoModelForCausalLM.from_pretrained(DATA / "base")
    model.resize_token_embeddings(TOKENS)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=3, target_modules=["q_proj", "down_proj"]))
    set_weights(model, "lora_|embed_tokens|lm_head")  # also of the rows that were added
    model.peft_config["default"].base_model_name_or_path = str(DATA / "base")  # PEFT compares its vocab_size
    model.save_pretrained(DATA / "adapter")
    (DATA / "adapter" / "README.md").unlink(missing_ok=True)
    file = DATA / "adapter" / "adapter_config.json"
    file.write_text(file.read_text().replace(str(DATA / "base"), "base"))
    model.merge_and_unload().save_pretrained(DATA / "merged")
    for directory in ("base", "merged"):
        (DATA / directory / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()
