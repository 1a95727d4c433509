#!/usr/bin/env python3
"""Trains the byte-level BPE tokenizer of configs/gpt2-8m.

    apt-get install jargon-text
    python tests/oracles/train_tokenizer.py /usr/share/doc/jargon-text/jargon.txt.gz configs/gpt2-8m

The text is the Jargon File 4.4.7 (29 Dec 2003), which is in the public domain. 4,096 tokens: <|endoftext|> (id 0), the 256 bytes, and
3,839 merges. The same text gives the same files. Needs tokenizers.
"""
import gzip
import json
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers


def main(text_file, folder, vocabulary=4096):
    with gzip.open(text_file, "rt", encoding="utf-8") as f:
        lines = f.readlines()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=vocabulary, min_frequency=2, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    state = json.loads(tokenizer.to_str())
    state["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in state["model"]["merges"]]
    with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as f:
        json.dump(state, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    with open(f"{folder}/tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024, "bos_token": "<|endoftext|>",
                   "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "add_prefix_space": False}, f, indent=2)
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
