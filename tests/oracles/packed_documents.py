#!/usr/bin/env python3
"""Stored vectors of rows that hold several documents, from transformers' models on the CPU with 4-D attention masks and position_ids.

  python3 tests/oracles/packed_documents.py     writes tests/model/data/packed.{json,bin}

As model_families.py, whose weights and tokens these are. A document ends with the token `eod_token`; masks and positions are built here, from
the definition of Megatron-LM's options, pair by pair. transformers takes the masks as they are. No last_logits.
Needs torch, transformers, numpy, safetensors.
"""
import json

import numpy as np
import torch

import model_families as mf

ALL = dict(reset_attention_mask=True, reset_position_ids=True, eod_mask_loss=True)
TOKENS = dict(vocab_size=7, eos_token_id=3, bos_token_id=3)
GPT2 = dict(mf.GPT2_LIKE, **TOKENS, **{"n_positions": 24})
LLAMA = dict(mf.LLAMA_LIKE, **TOKENS, **{"max_position_embeddings": 24})

CASES = [
    ("gpt2", dict(name="gpt2_all", rows=4, sequence=24, config=GPT2, documents=ALL)),
    ("gpt2", dict(name="gpt2_mask", rows=2, sequence=24, config=GPT2, documents=dict(reset_attention_mask=True))),
    ("gpt2", dict(name="gpt2_positions", rows=2, sequence=24, config=GPT2, documents=dict(reset_position_ids=True))),
    ("gpt_bigcode", dict(name="gpt_bigcode_all", rows=2, sequence=20, config=GPT2, documents=ALL)),
    ("llama", dict(name="llama_all", rows=4, sequence=24, config=LLAMA, documents=ALL)),
    ("llama", dict(name="llama_positions", rows=2, sequence=24, config=dict(LLAMA, rope_parameters=mf.LLAMA3_ROPE), documents=dict(reset_position_ids=True))),
    ("llama", dict(name="llama_loss", rows=2, sequence=24, config=LLAMA, documents=dict(eod_mask_loss=True))),
    ("mistral", dict(name="mistral_all", rows=2, sequence=24, config=dict(LLAMA, sliding_window=5), documents=ALL)),
    ("gpt_neox", dict(name="gpt_neox_all", rows=2, sequence=24, documents=ALL,
                      config=dict(mf.FAMILIES["gpt_neox"][0]["config"], **TOKENS, **{"max_position_embeddings": 24}))),
    ("gemma2", dict(name="gemma2_all", rows=2, sequence=24, documents=ALL,
                    config=dict(mf.FAMILIES["gemma2"][0]["config"], **TOKENS, **{"max_position_embeddings": 24}))),
]


def inputs_of(case, ids, dtype, window):
    """4-D mask (and one with the window), position ids, labels."""
    eod, on = TOKENS["eos_token_id"], case["documents"]
    rows, length = ids.shape
    document, position, labels = torch.zeros_like(ids), torch.zeros_like(ids), torch.full_like(ids, -100)
    for b in range(rows):
        for t in range(1, length):
            begins = ids[b, t - 1] == eod
            document[b, t] = document[b, t - 1] + int(begins)
            position[b, t] = 0 if begins and on.get("reset_position_ids") else position[b, t - 1] + 1
            if not (begins and on.get("eod_mask_loss")):
                labels[b, t] = ids[b, t]
    at = torch.arange(length)
    distance = at[:, None] - at[None, :]
    sees = (distance >= 0).expand(rows, 1, length, length)
    if on.get("reset_attention_mask"):
        sees = sees & (document[:, None, :, None] == document[:, None, None, :])
    additive = lambda seen: torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
    return additive(sees), additive(sees & (distance < window)) if window else None, position, labels


def loss_of(family, case, model, ids, dtype):
    window = case["config"].get("sliding_window")
    full, sliding, position, labels = inputs_of(case, ids, dtype, window)
    mask = dict(full_attention=full, sliding_attention=sliding) if family == "gemma2" else sliding if window else full
    logits = model(input_ids=ids, attention_mask=mask, position_ids=position, use_cache=False).logits
    upcast = logits if dtype == torch.float64 else logits.float()
    return torch.nn.functional.cross_entropy(upcast[:, :-1].reshape(-1, upcast.shape[-1]), labels[:, 1:].reshape(-1), ignore_index=-100)


def run(family, case, dtype):
    model, named, saved = mf.build(family, case, dtype)
    loss = loss_of(family, case, model, mf.tokens(case, 0), dtype)
    loss.backward()
    return loss.item(), {n: p.grad.double().numpy() for n, p in named.items()}, saved


def trajectory(family, case):
    model, _, _ = mf.build(family, case, torch.float64)
    optimizer, losses = torch.optim.AdamW(model.parameters(), **mf.ADAMW), []
    for step in range(mf.STEPS):
        optimizer.zero_grad()
        loss = loss_of(family, case, model, mf.tokens(case, step), torch.float64)
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses


def main():
    torch.set_num_threads(1)
    index, blob = [], bytearray()
    for family, case in CASES:
        with mf.fp64_stays():
            loss, gradients, saved = run(family, case, torch.float64)
            losses = trajectory(family, case)
        stored = {}
        for name, g in sorted(gradients.items()):
            stored[name] = dict(offset=len(blob) // 4, shape=list(g.shape))
            blob.extend(np.ascontiguousarray(g, dtype="<f4").tobytes())
        index.append(dict(name=case["name"], rows=case["rows"], sequence=case["sequence"], config=saved, loss=loss, gradients=stored,
                          last_logits=dict(offset=0, shape=[0]), trajectory=losses, documents=dict(case["documents"], eod_token=TOKENS["eos_token_id"])))
        loss32, gradients32, _ = run(family, case, torch.float32)
        worst = max(np.abs(gradients32[n] - g).max() / np.abs(g).max() for n, g in gradients.items() if "bias" not in n)
        print(f"{case['name']}: loss {loss:.9f}; torch fp32 loss off by {abs(loss32 - loss) / loss:.1e}, gradients by {worst:.1e}")
    (mf.DATA.parent / "packed.json").write_text(json.dumps(index) + "\n")
    (mf.DATA.parent / "packed.bin").write_bytes(bytes(blob))


if __name__ == "__main__":
    main()
