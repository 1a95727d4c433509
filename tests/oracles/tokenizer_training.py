#!/usr/bin/env python3
"""Vocabularies and merges that transformers' train_new_from_iterator learns from tests/data/vectors/text/lines.txt.

    python tests/oracles/tokenizer_training.py tests/data/vectors

Writes training.json: {tokenizer of vectors/tokenizer: {"vocab_size", "min_frequency", "tokens": by id, "merges", "template": ids of the
post_processor's tokens}}. Needs tokenizers and transformers.
"""
import json
import os
import sys

CASES = {"gpt2": (700, 0), "flags": (600, 3), "llama3": (650, 0), "neox": (500, 2), "metaspace_first": (400, 0), "llama2": (500, 0), "nfkc_parts": (600, 0)}


def main(vectors):
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import PreTrainedTokenizerFast
    out = {}
    with open(f"{vectors}/text/lines.txt", encoding="utf-8") as f:
        lines = f.read().split("\n")
    lines = [line + "\n" for line in lines[:-1]] + lines[-1:]
    for name, (size, least) in CASES.items():
        like = PreTrainedTokenizerFast.from_pretrained(f"{vectors}/tokenizer/{name}")
        trained = like.train_new_from_iterator(lines, size, min_frequency=least, show_progress=False)
        state = json.loads(trained.backend_tokenizer.to_str())
        vocab = state["model"]["vocab"]
        # In a Sequence, transformers 5.23 leaves the old ids; Tessera renumbers them.
        post = state.get("post_processor") or {}
        template = {token["id"]: token["ids"] for token in post.get("special_tokens", {}).values()}
        out[name] = {"vocab_size": size, "min_frequency": least, "tokens": sorted(vocab, key=vocab.get), "merges": state["model"]["merges"],
                     "template": template}
    with open(f"{vectors}/training.json", "w", encoding="utf-8") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1])
