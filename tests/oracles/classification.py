#!/usr/bin/env python3
"""Stored vectors of decoders with a head for sequence classification, from transformers' models on the CPU.

  python3 tests/oracles/classification.py     writes tests/model/data/classification.{json,bin}

As model_families.py, whose weights and tokens these are. Row i has the label i % num_labels; the loss is the mean of the rows' cross-entropies, at
their last tokens. Needs torch, transformers, numpy, safetensors.
"""
import json
import pathlib
import tempfile

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

import model_families as mf

LABELS = 3
CASES = [("gpt2", "GPT2ForSequenceClassification", dict(rows=4, sequence=9, config=mf.GPT2_LIKE)),
         ("llama", "LlamaForSequenceClassification", dict(rows=4, sequence=9, config=mf.LLAMA_LIKE)),
         ("gpt_neox", "GPTNeoXForSequenceClassification", dict(rows=4, sequence=9, config=mf.FAMILIES["gpt_neox"][0]["config"]))]


def run(family, architecture, case, dtype):
    ids = mf.tokens(case, 0)
    padding = min(set(range(case["config"]["vocab_size"])) - set(ids.flatten().tolist()))  # no token is padding
    config = transformers.AutoConfig.for_model(family, num_labels=LABELS, **dict(case["config"], pad_token_id=padding))
    model = transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager", dtype=torch.float32)
    assert type(model).__name__ == architecture
    with tempfile.TemporaryDirectory() as directory:
        for i, p in enumerate(model.parameters()):
            p.data.fill_(float(i))
        model.save_pretrained(directory)
        files = load_file(pathlib.Path(directory) / "model.safetensors")
        saved = json.loads((pathlib.Path(directory) / "config.json").read_text())
    by_index = {int(t.flatten()[0]): n for n, t in files.items()}
    named = {by_index[i]: p for i, p in enumerate(model.parameters())}
    for name, p in named.items():
        p.data.copy_(mf.weight(family, name, tuple(p.shape)))
    model = model.to(dtype).train()
    labels = torch.arange(case["rows"]) % LABELS
    loss = model(input_ids=ids, labels=labels, use_cache=False).loss
    loss.backward()
    return loss.item(), {n: p.grad.double().numpy() for n, p in named.items()}, saved


def main():
    torch.set_num_threads(1)
    index, blob = [], bytearray()
    for family, architecture, case in CASES:
        with mf.fp64_stays():
            loss, gradients, saved = run(family, architecture, case, torch.float64)
        stored = {}
        for name, g in sorted(gradients.items()):
            stored[name] = dict(offset=len(blob) // 4, shape=list(g.shape))
            blob.extend(np.ascontiguousarray(g, dtype="<f4").tobytes())
        index.append(dict(name=family, architecture=architecture, rows=case["rows"], sequence=case["sequence"], config=saved, loss=loss, gradients=stored,
                          last_logits=dict(offset=0, shape=[0])))
        print(family, loss)
    (mf.DATA.parent / "classification.json").write_text(json.dumps(index) + "\n")
    (mf.DATA.parent / "classification.bin").write_bytes(bytes(blob))


if __name__ == "__main__":
    main()
