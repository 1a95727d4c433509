#!/usr/bin/env python3
"""Tokens per second of generation: Tessera next to transformers, both greedy with a key/value cache, on the same cores.

  python3 tests/bench/run_generation.py --bin build/host/bin [--threads 2] [--rows 1] [--prompt_tokens 32] [--new_tokens 128] [--dtype float32]
          [--repeats 3]

The model is Llama-shaped with 100 million random weights. The runs alternate; each program reports its own generation without start-up, and the best
of the repeats counts. Both must generate the same number of tokens. Needs torch and transformers.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import tempfile
import time

import torch
import transformers

SHAPE = dict(vocab_size=32000, hidden_size=640, intermediate_size=1792, num_hidden_layers=12, num_attention_heads=10, num_key_value_heads=5,
             max_position_embeddings=2048, bos_token_id=None, eos_token_id=None, pad_token_id=0)


def model_directory(work, dtype):
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE)).to(getattr(torch, dtype))
    model.generation_config.eos_token_id = None
    model.save_pretrained(work)
    vocabulary = {f"w{i}": i for i in range(SHAPE["vocab_size"])}
    (work / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", added_tokens=[dict(id=i, content=t, special=False, single_word=False, lstrip=False, rstrip=False, normalized=False)
                                     for t, i in list(vocabulary.items())[:64]],
        normalizer=None, pre_tokenizer=None, post_processor=None, decoder=None,
        model=dict(type="BPE", vocab=vocabulary, merges=[], unk_token="w0", fuse_unk=False, byte_fallback=False))))
    return model


def with_transformers(model, rows, prompt_tokens, new_tokens):
    ids = torch.arange(1, prompt_tokens + 1).remainder(64).repeat(rows, 1)
    with torch.no_grad():
        started = time.perf_counter()
        out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new_tokens, min_new_tokens=new_tokens)
        seconds = time.perf_counter() - started
    assert out.shape == (rows, prompt_tokens + new_tokens)
    return rows * new_tokens / seconds


def with_tessera(program, work, rows, prompt_tokens, new_tokens, threads, dtype):
    prompt = "".join(f"w{i % 64}" for i in range(1, prompt_tokens + 1))
    (work / "prompts.txt").write_text((prompt + "\n") * rows)
    words = [program, "--model_name_or_path", work, "--do_generate", "--prompt_file", work / "prompts.txt", "--temperature", "0", "--max_new_tokens",
             new_tokens, "--per_device_eval_batch_size", rows, "--threads", threads, "--output_dir", work / "run"]
    words += ["--dtype", dtype]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(threads)))
    assert done.returncode == 0, done.stderr
    tokens, rate = re.search(r"([\d,]+) new tokens after .* ([\d.]+) per second", done.stderr).groups()
    assert int(tokens.replace(",", "")) == rows * new_tokens, done.stderr
    return float(rate)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    for name, default in (("threads", os.cpu_count()), ("rows", 1), ("prompt_tokens", 32), ("new_tokens", 128), ("repeats", 3)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as directory:
        work = pathlib.Path(directory)
        model = model_directory(work, a.dtype)
        with_transformers(model, a.rows, a.prompt_tokens, 4)
        theirs, ours = [], []
        for _ in range(a.repeats):
            theirs.append(with_transformers(model, a.rows, a.prompt_tokens, a.new_tokens))
            ours.append(with_tessera(a.bin / "tessera-train", work, a.rows, a.prompt_tokens, a.new_tokens, a.threads, a.dtype))
    count = sum(p.numel() for p in model.parameters())
    print(f"{count / 1e6:.0f} million parameters, {a.dtype}, {a.rows} rows, {a.prompt_tokens} + {a.new_tokens} tokens, {a.threads} threads, load "
          f"{os.getloadavg()[0]:.1f}: transformers {max(theirs):.1f}, Tessera {max(ours):.1f} tokens/s, ratio {max(ours) / max(theirs):.2f}")


if __name__ == "__main__":
    main()
