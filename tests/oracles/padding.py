#!/usr/bin/env python3
"""Stored vectors of models with a padding token that occurs in the text, from transformers' models on the CPU.

  python3 tests/oracles/padding.py     writes tests/model/data/padding.{json,bin}

As model_families.py, for the families whose nn.Embedding has a padding_idx, and one whose has none: the padding row of the gradients is
zero where the head is not tied. zero_rows are the rows of the embedding that are zero after the random initialization. Needs torch,
transformers, numpy, safetensors.
"""
import json

import numpy as np
import torch
import transformers

import model_families as families

PADDING = int(families.tokens(dict(rows=1, sequence=1, config=families.SMALL), 0))  # the first token of every case
TIED = {"gemma", "gemma2"}
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "starcoder2", "phi", "phi3", "olmo2", "gemma", "gemma2", "gpt_neox"]


def case_of(family):
    case = families.FAMILIES[family][0]
    return dict(name=family, rows=case["rows"], sequence=case["sequence"],
                config=dict(case["config"], num_hidden_layers=1, pad_token_id=PADDING, tie_word_embeddings=family in TIED))


def zero_rows(family, case):
    config = transformers.AutoConfig.for_model(family, **case["config"])
    weight = transformers.AutoModelForCausalLM.from_config(config).get_input_embeddings().weight
    return [row for row in range(weight.shape[0]) if not weight[row].any()]


def main():
    torch.set_num_threads(1)
    index, blob = [], bytearray()

    def store(array):
        offset = len(blob) // 4
        blob.extend(np.ascontiguousarray(array, dtype="<f4").tobytes())
        return dict(offset=offset, shape=list(array.shape))

    for family in FAMILIES:
        case = case_of(family)
        assert PADDING in families.tokens(case, 0)
        with families.fp64_stays():
            loss, last, gradients, saved = families.run(family, case, torch.float64)
            index.append(dict(name=family, rows=case["rows"], sequence=case["sequence"], config=saved, loss=loss, last_logits=store(last),
                              gradients={n: store(g) for n, g in sorted(gradients.items())}, trajectory=families.trajectory(family, case),
                              zero_rows=zero_rows(family, case)))
        embedding = next(g for n, g in gradients.items() if "embed" in n)
        print(f"{family}: loss {loss:.9f}; rows {index[-1]['zero_rows']} start at zero; gradient of row {PADDING} {np.abs(embedding[PADDING]).max():.1e}")
    (families.DATA.parent / "padding.json").write_text(json.dumps(index) + "\n")
    (families.DATA.parent / "padding.bin").write_bytes(bytes(blob))


if __name__ == "__main__":
    main()
