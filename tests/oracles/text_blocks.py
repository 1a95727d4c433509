#!/usr/bin/env python3
"""Blocks of token ids by Hugging Face's datasets and transformers, with the grouping that run_clm.py describes.

    python tests/oracles/text_blocks.py tests/data/vectors/tokenizer/gpt2 tests/data/vectors/text

Writes the texts and cases.json: {"blocks": [{"file", "part": [kind, percent], "keep", "block_size", "records", "tokens", "count",
"fnv": FNV-1a-64 over the ids as 32-bit little-endian words, "first": first block, "last": last block}],
"boundaries": [[records, percent, records of "train[:percent%]"]]}. Needs datasets and transformers.
"""
import gzip
import json
import os
import random
import shutil
import sys
import tempfile

import datasets
from datasets import load_dataset
from transformers import PreTrainedTokenizerFast

WORDS = ("the of and to in a is that it was for on are as with his they at be this from have or by one had not but what all were when we "
         "there can an your which their said if do it's we'll 日本語 naïve привет 🙂 1984 3.14 x=y; <|endoftext|> \u2028 \u00a0 \u0085 \x0b \x0c \x1c").split(" ")


def lines(count, seed):
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        text = "" if rng.random() < 0.15 else " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 5)))
        out.append(text + rng.choice(["\n", "\n", "\n", "\n", "\r\n", "\r", " \n", "\n\n"]))
    return out


def write_texts(out):
    def put(name, text):
        with open(f"{out}/{name}", "w", encoding="utf-8", newline="") as f:
            f.write(text)

    put("lines.txt", "".join(lines(2345, 1)) + "the last line has no end")
    put("few.txt", "".join(lines(37, 2)))
    records = [{"id": i, "text": t, "more": {"list": [1, "}", "\\\""]}} for i, t in enumerate(lines(1200, 3))]
    put("records.jsonl", "".join(json.dumps(r, ensure_ascii=i % 2 == 0) + "\n" for i, r in enumerate(records)))
    put("array.json", json.dumps([{"text": r["text"]} for r in records[:50]], indent=1))
    put("first_column.jsonl", "".join(json.dumps({"body": r["text"], "n": 1}) + "\n" for r in records[:50]))
    with open(f"{out}/few.txt", "rb") as plain, open(f"{out}/few_packed.txt.gz", "wb") as packed:
        packed.write(gzip.compress(plain.read(), mtime=0))


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for byte in i.to_bytes(4, "little"):
            h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def group(batch, block_size):
    """Joins the texts of a batch and cuts them into blocks; what is left over is dropped."""
    joined = [i for ids in batch["input_ids"] for i in ids]
    whole = len(joined) // block_size * block_size
    return {"input_ids": [joined[at:at + block_size] for at in range(0, whole, block_size)]}


def blocks(folder, tokenizer, name, part, keep, block_size):
    kind, percent = part
    split = {"all": "train", "first": f"train[:{percent}%]", "rest": f"train[{percent}%:]"}[kind]
    is_text = ".txt" in name
    data = load_dataset("text" if is_text else "json", data_files={"train": f"{folder}/{name}"}, split=split,
                        **({"keep_linebreaks": keep} if is_text else {}))
    column = "text" if "text" in data.column_names else data.column_names[0]
    tokens = data.map(lambda b: {"input_ids": tokenizer(b[column])["input_ids"]}, batched=True, remove_columns=data.column_names)
    made = tokens.map(lambda b: group(b, block_size), batched=True)["input_ids"]
    made = list(made)
    return {"file": name, "part": list(part), "keep": keep, "block_size": block_size, "records": len(data),
            "tokens": sum(len(t) for t in tokens["input_ids"]), "count": len(made), "fnv": fnv([i for b in made for i in b]),
            "first": made[0], "last": made[-1]}


def main(tokenizer_folder, out):
    datasets.disable_progress_bars()
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    write_texts(out)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer_folder)
    requests = [("lines.txt", ("all", 0), True, 16), ("lines.txt", ("all", 0), False, 16), ("lines.txt", ("first", 5), True, 8),
                ("lines.txt", ("rest", 5), True, 32), ("lines.txt", ("all", 0), True, 5200), ("lines.txt", ("rest", 50), True, 7), ("few.txt", ("all", 0), True, 5),
                ("few.txt", ("first", 50), True, 5), ("few.txt", ("rest", 50), True, 5), ("few_packed.txt.gz", ("all", 0), True, 5),
                ("records.jsonl", ("all", 0), True, 16), ("records.jsonl", ("rest", 10), True, 16), ("array.json", ("all", 0), True, 8),
                ("first_column.jsonl", ("all", 0), True, 8)]
    with tempfile.TemporaryDirectory() as cache:
        datasets.config.HF_DATASETS_CACHE = cache
        cases = [blocks(out, tokenizer, *r) for r in requests]
    boundaries = []
    for n in (0, 1, 5, 7, 10, 30, 37, 50, 90, 99, 130, 150, 1001, 2350):
        for percent in (0, 1, 5, 10, 15, 33, 50, 99, 100):
            read = datasets.ReadInstruction.from_spec(f"train[:{percent}%]").to_absolute({"train": n})[0]
            boundaries.append([n, percent, read.to])
    with open(f"{out}/cases.json", "w") as f:
        json.dump({"blocks": cases, "boundaries": boundaries}, f, separators=(",", ":"))


if __name__ == "__main__":
    main(*sys.argv[1:3])
