#!/usr/bin/env python3
"""Stored vectors for generation, from transformers' generate() and its logits processors on the CPU.

  python3 tests/oracles/generation.py     writes tests/model/data/generation.json and tests/train/data/sampling.json

generation.json: for the cases of model_families.py and one of GPT-2, the tokens that greedy generation appends to prompts of 1, 4 and 7 tokens, with
repetition_penalty 1 and 1.3. The models are those of model_families.py, in fp64; prompts whose best two logits ever differ by less than MARGIN are
replaced, so that fp32 must find the same tokens. Tokens are appended up to the model's positions, but fewer to the shorter prompts.
sampling.json: probabilities of the next token after processors and warpers.
Needs torch, transformers, numpy, safetensors.
"""
import json
import pathlib

import numpy as np
import torch
import transformers
from transformers.generation import logits_process

import gpt2
import model_families

TESTS = pathlib.Path(__file__).resolve().parent.parent
LENGTHS = (1, 4, 7)
MARGIN = 2e-4
GPT2 = dict(name="learned_positions", config=model_families.GPT2_LIKE)


def prompt_of(vocabulary, length, stream):
    u = gpt2.unit(stream, length).astype(np.float64)
    return np.floor((u + 1.0) / 2.0 * vocabulary).astype(np.int64).tolist()


def generate(model, prompt, count, penalty):
    """The new tokens and the smallest distance between the best two scores."""
    ids = torch.tensor([prompt])
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, eos_token_id=None, pad_token_id=0,
                         repetition_penalty=penalty, use_cache=True, return_dict_in_generate=True, output_scores=True)
    best = [s[0].topk(2).values for s in out.scores]
    return out.sequences[0, len(prompt):].tolist(), min(float(b[0] - b[1]) for b in best)


def case_of(family, case):
    with model_families.fp64_stays():
        model, _, saved = model_families.build(family, case, torch.float64)
        model.eval()
        positions = saved.get("n_positions", saved.get("max_position_embeddings"))
        entry = dict(family=family, name=case["name"], config=saved, new_tokens=positions - max(LENGTHS), rows=[])
        for length in LENGTHS:
            for stream in range(3000 + 100 * length, 3100 + 100 * length):
                prompt = prompt_of(saved["vocab_size"], length, stream)
                tokens, margin = generate(model, prompt, entry["new_tokens"], 1.0)
                penalized, other_margin = generate(model, prompt, entry["new_tokens"], 1.3)
                if min(margin, other_margin) > MARGIN:
                    break
            entry["rows"].append(dict(prompt=prompt, tokens=tokens, penalized=penalized))
            print(f"{family}, {case['name']}: {prompt} -> {tokens}, penalized {penalized}; margins {margin:.1e}, {other_margin:.1e}")
            assert min(margin, other_margin) > MARGIN
    return entry


def sampling_cases():
    logits = (gpt2.unit(4000, 24).astype(np.float64) * 4.0).astype(np.float32)
    tokens = [3, 5, 5, 11, 0]
    settings = [dict(), dict(temperature=0.5), dict(temperature=2.0), dict(top_k=5), dict(top_p=0.8), dict(top_p=0.05), dict(min_p=0.2),
                dict(repetition_penalty=1.7), dict(repetition_penalty=0.6), dict(temperature=1.5, top_k=9, top_p=0.7),
                dict(temperature=0.8, top_k=12, top_p=0.9, min_p=0.1, repetition_penalty=1.3)]
    cases = []
    for setting in settings:
        chain = []
        if "repetition_penalty" in setting:
            chain.append(logits_process.RepetitionPenaltyLogitsProcessor(setting["repetition_penalty"]))
        for key, warper in (("temperature", logits_process.TemperatureLogitsWarper), ("top_k", logits_process.TopKLogitsWarper),
                            ("top_p", logits_process.TopPLogitsWarper), ("min_p", logits_process.MinPLogitsWarper)):
            if key in setting:
                chain.append(warper(setting[key]))
        scores = torch.tensor(logits.astype(np.float64))[None]
        for step in chain:
            scores = step(torch.tensor([tokens]), scores)
        cases.append(dict(settings=setting, probabilities=torch.softmax(scores, -1)[0].tolist()))
    return dict(logits=[float(x) for x in logits], tokens=tokens, cases=cases)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    entries = [case_of("gpt2", GPT2)]
    for family, cases in model_families.FAMILIES.items():
        entries += [case_of(family, case) for case in cases]
    (TESTS / "model/data/generation.json").write_text(json.dumps(entries) + "\n")
    (TESTS / "train/data").mkdir(exist_ok=True)
    (TESTS / "train/data/sampling.json").write_text(json.dumps(sampling_cases()) + "\n")


if __name__ == "__main__":
    main()
