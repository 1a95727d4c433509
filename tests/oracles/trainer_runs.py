#!/usr/bin/env python3
"""Writes trainer_runs.json: ten steps of transformers' Trainer on the CPU, as run_clm.py trains, in the default random order, for several
families on one and two ranks: two micro-batches per step, an epoch whose last step is short, AdamW with weight decay, warm-up and a linear schedule.

    python3 tests/oracles/trainer_runs.py      needs torch, transformers, accelerate, tokenizers, numpy, safetensors; made with transformers 5.23, accelerate 1.15

Weights are those of model_families.py, half as large, by the parameters' names, which are stored. The data is tests/checkpoint/data/deepspeed/text.txt in
blocks of 16 tokens. The first label of a block is left out, so that every family divides by the predicted tokens.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import gpt2_runs
import model_families as mf

HERE = pathlib.Path(__file__).resolve().parent
SAMPLES, ROWS, ACCUMULATION, STEPS = 21, 2, 2, 10
RATE, DECAY, WARMUP, SEED = 5e-3, 0.1, 2, 1234
VOCABULARY = dict(vocab_size=331, bos_token_id=0, eos_token_id=0)
GPT2 = dict(mf.GPT2_LIKE, **VOCABULARY, **{"n_positions": 16})
LLAMA = dict(mf.LLAMA_LIKE, **VOCABULARY)
FAMILIES = dict(gpt2=GPT2, gpt_bigcode=GPT2, gpt_neox=dict(mf.FAMILIES["gpt_neox"][0]["config"], **VOCABULARY), llama=LLAMA, mistral=dict(LLAMA, sliding_window=5))


def rank(family):
    import torch
    from transformers import Trainer, TrainingArguments, default_data_collator
    torch.set_num_threads(1)
    model, named, saved = mf.build(family, dict(config=FAMILIES[family]), torch.float32)
    for p in model.parameters():
        p.data *= 0.5
    samples = [{"input_ids": b, "labels": [-100] + b[1:]} for b in gpt2_runs.blocks()[:SAMPLES]]
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(output, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=ROWS, gradient_accumulation_steps=ACCUMULATION,
                                      learning_rate=RATE, weight_decay=DECAY, warmup_steps=WARMUP, logging_steps=1, save_strategy="no", report_to=[],
                                      disable_tqdm=True, seed=SEED)
        trainer = Trainer(model, arguments, train_dataset=samples, data_collator=default_data_collator)
        trainer.train()
        rows = [r for r in trainer.state.log_history if "loss" in r]
    if int(os.environ.get("RANK", "0")) == 0:
        result = dict(losses=[r["loss"] for r in rows], norms=[float(r["grad_norm"]) for r in rows], rates=[r["learning_rate"] for r in rows])
        print("RESULT " + json.dumps(dict(result, config=saved, shapes={n: list(p.shape) for n, p in sorted(named.items())})), flush=True)


def run(family, world):
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    if world > 1:
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29717", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    ranks = [subprocess.Popen([sys.executable, __file__, family], stdout=subprocess.PIPE, text=True,
                              env=dict(environment, **({"RANK": str(r), "LOCAL_RANK": str(r)} if world > 1 else {}))) for r in range(world)]
    texts = [p.communicate()[0] for p in ranks]
    assert not any(p.returncode for p in ranks), f"{family} on {world} ranks failed"
    return json.loads(next(line for line in texts[0].splitlines() if line.startswith("RESULT "))[7:])


def main():
    if len(sys.argv) > 1:
        return rank(sys.argv[1])
    families = {}
    for family in FAMILIES:
        runs = {world: run(family, world) for world in (1, 2)}
        families[family] = dict(config=runs[1]["config"], shapes=runs[1]["shapes"],
                                runs=[dict(ranks=w, losses=r["losses"], norms=r["norms"], rates=r["rates"]) for w, r in runs.items()])
    out = dict(samples=SAMPLES, rows=ROWS, accumulation=ACCUMULATION, rate=RATE, decay=DECAY, warmup=WARMUP, seed=SEED, families=families)
    (HERE / "trainer_runs.json").write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main()
