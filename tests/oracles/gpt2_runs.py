#!/usr/bin/env python3
"""Writes gpt2_runs.json: 10 steps of the Trainer of transformers on the CPU under autocast in bf16 and in fp32 (it trains in fp32 there if
fp16 is asked for), and 18 steps of DeepSpeed in fp16 with a dynamic loss scale that overflows, on 1 and 2 ranks at stages 1 to 3. Loss, norm, loss scale and skips of each step.

    python3 tests/oracles/gpt2_runs.py      needs torch, transformers, accelerate, deepspeed, tokenizers; made with transformers 5.23, deepspeed 0.19.8

The model is tests/checkpoint/data/deepspeed/bin_model, the data text.txt next to it, in blocks of 16 tokens in the order of the file.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "checkpoint/data/deepspeed"
TOKENIZER = HERE.parent / "data/vectors/tokenizer/narrow/tokenizer.json"
ROWS, LENGTH, STEPS, SCALED_STEPS = 6, 16, 10, 18
RATE = 5e-3
SCALER = dict(enabled=True, initial_scale_power=24, loss_scale_window=3, hysteresis=2, min_loss_scale=1)


def blocks():
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    ids = [i for line in (DATA / "text.txt").read_text().splitlines() for i in tokenizer.encode(line).ids]
    return [ids[k:k + LENGTH] for k in range(0, len(ids) - LENGTH + 1, LENGTH)]


def model():
    import torch
    from transformers import AutoModelForCausalLM
    return AutoModelForCausalLM.from_pretrained(DATA / "bin_model", dtype=torch.float32, attn_implementation="eager")


def trainer_run(precision):
    import torch
    from transformers import Trainer, TrainingArguments, default_data_collator
    torch.set_num_threads(1)
    samples = [{"input_ids": b, "labels": b} for b in blocks()]
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(output, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=ROWS, learning_rate=RATE, weight_decay=0.01,
                                      lr_scheduler_type="constant", logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True,
                                      train_sampling_strategy="sequential", **({precision: True} if precision != "fp32" else {}))
        trainer = Trainer(model(), arguments, train_dataset=samples, data_collator=default_data_collator)
        trainer.train()
        rows = [r for r in trainer.state.log_history if "loss" in r]
    # it divides by all labels, of which the first of each block is not predicted
    return dict(precision=precision, losses=[r["loss"] for r in rows], norms=[float(r["grad_norm"]) for r in rows])


def deepspeed_rank(world, stage):
    import deepspeed
    import torch
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    accelerator = deepspeed.accelerator.get_accelerator()  # torch emulates fp16 well enough for these sizes
    dtypes = accelerator.supported_dtypes()
    accelerator.supported_dtypes = lambda: dtypes + [torch.float16]
    accelerator.is_fp16_supported = lambda: True
    rank, rows = torch.distributed.get_rank(), ROWS // world
    network = model().half()
    config = {"train_micro_batch_size_per_gpu": rows, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0, "fp16": SCALER,
              "zero_optimization": {"stage": stage}, "optimizer": {"type": "AdamW", "params": {"lr": RATE, "weight_decay": 0.01, "torch_adam": True}}}
    engine, _, _, _ = deepspeed.initialize(model=network, config=config, model_parameters=network.parameters())
    samples, losses, scales, skips = blocks(), [], [], []
    for step in range(SCALED_STEPS):
        first = (step * ROWS + rank * rows) % (len(samples) // ROWS * ROWS)
        batch = torch.tensor(samples[first:first + rows])
        scales.append(engine.optimizer.loss_scaler.loss_scale)
        skipped = engine.skipped_steps
        loss = engine(input_ids=batch, labels=batch).loss
        engine.backward(loss)
        engine.step()
        skips.append(engine.skipped_steps - skipped)
        mean = loss.detach().double()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / world)
    if rank == 0:
        print("RESULT " + json.dumps(dict(ranks=world, stage=stage, losses=losses, scales=scales, skipped=skips)), flush=True)
    torch.distributed.destroy_process_group()


def deepspeed_run(world, stage):
    environment = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29713", WORLD_SIZE=str(world))
    ranks = [subprocess.Popen([sys.executable, __file__, str(world), str(stage)], stdout=subprocess.PIPE, text=True,
                              env=dict(environment, RANK=str(r), LOCAL_RANK=str(r))) for r in range(world)]
    texts = [p.communicate()[0] for p in ranks]
    assert not any(p.returncode for p in ranks), f"{world} ranks at stage {stage} failed"
    return json.loads(next(line for line in texts[0].splitlines() if line.startswith("RESULT "))[7:])


def main():
    if len(sys.argv) > 1:
        return deepspeed_rank(int(sys.argv[1]), int(sys.argv[2]))
    out = dict(rows=ROWS, rate=RATE, scaler=SCALER, trainer=[trainer_run(p) for p in ("fp32", "bf16")],
               deepspeed=[deepspeed_run(world, stage) for world, stage in ((1, 1), (2, 2), (2, 3))])
    (HERE / "gpt2_runs.json").write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    main()
