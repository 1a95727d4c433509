#!/usr/bin/env python3
"""Token ids by Hugging Face's slow LlamaTokenizer and T5Tokenizer for small models of SentencePiece.

    python tests/oracles/sentence_piece.py tests/data/vectors/sentence_piece

Needs transformers 4 (seen: 4.46.3; version 5 has no slow LlamaTokenizer), sentencepiece and protobuf.
"""
import json
import os
import shutil
import sys

import sentencepiece
from transformers import LlamaTokenizer, T5Tokenizer

import tokenizer as base

RULES = "FB01\t66 69\n3000\t20\n9\t20\nA\t20\n65 301\tE9\n"


def train(folder, **how):
    os.makedirs(folder)
    with open(f"{folder}/text", "w") as f:
        f.write("\n".join(line for text in base.CORPUS for line in text.split("\n")))
    with open(f"{folder}/rules.tsv", "w") as f:
        f.write(RULES)
    sentencepiece.SentencePieceTrainer.train(input=f"{folder}/text", model_prefix=f"{folder}/tokenizer", minloglevel=2, hard_vocab_limit=False,
                                             normalization_rule_tsv=f"{folder}/rules.tsv", **how)
    for name in ("text", "rules.tsv", "tokenizer.vocab"):
        os.remove(f"{folder}/{name}")


def config(folder, **fields):
    with open(f"{folder}/tokenizer_config.json", "w") as f:
        json.dump(fields, f)


def added(content, special, **flags):
    return {"content": content, "special": special, "normalized": not special, "lstrip": False, "rstrip": False, "single_word": False, **flags}


def main(out):
    shutil.rmtree(out, ignore_errors=True)
    llama = dict(model_type="bpe", vocab_size=480, byte_fallback=True, split_digits=True, character_coverage=0.99, remove_extra_whitespaces=False, user_defined_symbols=["<user>"])
    train(f"{out}/llama", **llama)
    size = sentencepiece.SentencePieceProcessor(f"{out}/llama/tokenizer.model").get_piece_size()
    more = {str(size): added("<|im_start|>", True), str(size + 1): added("<left>", False, lstrip=True), str(size + 2): added("<right>", True, rstrip=True), str(size + 3): added("word", False)}
    for name, fields in {"llama_legacy": {}, "llama_new": {"legacy": False, "add_eos_token": True}, "llama_bare": {"legacy": False, "add_prefix_space": False, "add_bos_token": False}}.items():
        shutil.copytree(f"{out}/llama", f"{out}/{name}")
        config(f"{out}/{name}", tokenizer_class="LlamaTokenizer", added_tokens_decoder=more, model_max_length=77, **fields)
    shutil.rmtree(f"{out}/llama")
    train(f"{out}/t5", model_type="unigram", vocab_size=300, bos_id=-1, pad_id=0, eos_id=1, unk_id=2)
    os.rename(f"{out}/t5/tokenizer.model", f"{out}/t5/spiece.model")  # T5's name
    config(f"{out}/t5", tokenizer_class="T5Tokenizer", legacy=True, extra_ids=0)

    texts = base.TEXTS + base.random_texts(60) + base.script_texts(60) + ["<s>a</s> b", " <s> a", "<unk>x <unk>", "<s>", "\u2581a \u2581\u2581b", "<user>x <user> y", "\ufb01ne e\u0301",
                                                                         "<|im_start|> a<|im_start|>b", "  <right>  a <left> b", "<|im_start|>", " ", "\u2581"]
    cases = {"texts": texts, "ids": {}, "facts": {}}
    for name in ("llama_legacy", "llama_new", "llama_bare", "t5"):
        kind = T5Tokenizer if name == "t5" else LlamaTokenizer
        tok = kind.from_pretrained(f"{out}/{name}", **({"extra_ids": 0} if name == "t5" else {}))
        cases["ids"][name] = [tok(t)["input_ids"] for t in texts]
        cases["facts"][name] = {"size": len(tok), "eos_id": tok.eos_token_id}
    with open(f"{out}/cases.json", "w") as f:
        json.dump(cases, f, separators=(",", ":"))


if __name__ == "__main__":
    main(sys.argv[1])
