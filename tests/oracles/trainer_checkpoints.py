#!/usr/bin/env python3
"""Small checkpoints written by the Hugging Face Trainer itself, with what its running optimizer held, and how training continued.

    python tests/oracles/trainer_checkpoints.py tests/checkpoint/data/trainer

Per family a directory: files of checkpoint-4, and expected.json: the XXH3 (64 bit) of every tensor as fp32, "fp32/<parameter>" and
"<state>/<parameter>", from the model and the optimizer at the save, and the losses of the two steps after it. The families are those
whose modules are not in the order of Tessera's units, and GPT-2. In qwen2_older norms have weight decay, as in older versions of transformers. adafactor has only optimizer.pt of that optimizer. The text is
that of deepspeed_checkpoints.py; the first label of a block is left out, so that the Trainer divides by the predicted tokens.
Needs torch, transformers, accelerate, xxhash.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

from deepspeed_checkpoints import FAMILIES as SMALL_FAMILIES, SMALL, blocks, corpus

SAVED, STEPS, ROWS, ACCUMULATED = 4, 6, 2, 3
LLAMA = {**SMALL, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
         "max_position_embeddings": 32, "tie_word_embeddings": False}
FAMILIES = {
    "gpt2": SMALL_FAMILIES["gpt2"],
    "qwen2": LLAMA,
    "qwen3": {**LLAMA, "head_dim": 8},
    "olmo2": LLAMA,
    "phi3": {**LLAMA, "num_attention_heads": 1, "num_key_value_heads": 1},
    "gpt_neox": {**SMALL, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
                 "max_position_embeddings": 32, "rotary_pct": 0.5, "tie_word_embeddings": False},
}
FILES = ("config.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json", "training_args.bin")


def sums_of(model, optimizer):
    import xxhash
    sums = {}
    for name, parameter in model.named_parameters():
        states = optimizer.state[parameter]
        for state, tensor in (("fp32", parameter), *((s, states[s]) for s in ("exp_avg", "exp_avg_sq"))):
            sums[f"{state}/{name}"] = xxhash.xxh3_64_hexdigest(tensor.detach().contiguous().numpy().tobytes())
    return sums


def run(family, out, text_blocks, optimizer="adamw_torch"):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **FAMILIES[family]), dtype=torch.float32)
    facts, losses = {"global_steps": SAVED, "samples": SAVED * ROWS * ACCUMULATED, "train_batch_size": ROWS * ACCUMULATED}, []

    class Recorded(Trainer):
        def training_step(self, *given, **more):
            losses.append(super().training_step(*given, **more))
            return losses[-1]

        def get_decay_parameter_names(self, of):
            return [n for n, _ in of.named_parameters() if "bias" not in n] if out.name.endswith("_older") else super().get_decay_parameter_names(of)

    class AtSave(TrainerCallback):
        def on_save(self, args, state, control, **more):
            if state.global_step == SAVED and optimizer == "adamw_torch":
                facts["xxh3"] = sums_of(model, trainer.optimizer)

    data = [{"input_ids": torch.tensor(block), "labels": torch.tensor([-100] + block[1:])} for block in text_blocks]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(output_dir="out", logging_dir="out", max_steps=STEPS, save_steps=SAVED, weight_decay=0.1, learning_rate=5e-3,
                                      per_device_train_batch_size=ROWS, gradient_accumulation_steps=ACCUMULATED, use_cpu=True,
                                      lr_scheduler_type="cosine", warmup_steps=2, optim=optimizer, report_to=[])
        os.chdir(scratch)
        trainer = Recorded(model=model, args=arguments, train_dataset=data, callbacks=[AtSave()])
        trainer.train()
        for name in FILES if optimizer == "adamw_torch" else ("optimizer.pt",):
            shutil.copyfile(f"out/checkpoint-{SAVED}/{name}", out / name)
    if optimizer == "adamw_torch":
        steps = [sum(float(loss) for loss in losses[at:at + ACCUMULATED]) for at in range(0, len(losses), ACCUMULATED)]
        facts["losses_after"] = steps[SAVED:]
        (out / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")


def main():
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    out = pathlib.Path(sys.argv[1]).resolve()
    text_blocks = blocks(corpus(80))
    for family in FAMILIES:
        run(family, out / family, text_blocks)
    run("qwen2", out / "qwen2_older", text_blocks)
    run("gpt2", out / "adafactor", text_blocks, "adafactor")


main()
