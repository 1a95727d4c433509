#!/usr/bin/env python3
"""Writes hf_deepspeed_auto.json: DeepSpeed configurations as transformers' Trainer fills their "auto" values (or refuses them), and
DeepSpeed's own batch arithmetic.

    python3 tests/oracles/hf_deepspeed_auto.py      made with transformers 5.23 and deepspeed 0.19.8
"""
import copy
import json
import logging
import pathlib
import types

logging.disable(logging.CRITICAL)

from deepspeed.runtime.config import DeepSpeedConfig
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
from transformers.training_args import TrainingArguments

BATCH = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}
OPTIMIZER = {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}
ZERO3 = {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}
DECAY = {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}}
CASES = [  # configuration, flags, ranks, hidden size, optimizer steps
    (dict(BATCH, optimizer=OPTIMIZER, scheduler=DECAY, zero_optimization=ZERO3, gradient_clipping="auto", fp16={"enabled": "auto"}),
     dict(fp16=True, learning_rate=3e-4, weight_decay=0.1, adam_beta2=0.95, adam_epsilon=1e-6, max_grad_norm=0.5, warmup_steps=25), 2, 1600, 500),
    (dict(BATCH, optimizer=OPTIMIZER, scheduler=DECAY, zero_optimization=dict(ZERO3, stage=2), gradient_clipping="auto", bf16={"enabled": "auto"}),
     dict(bf16=True, per_device_train_batch_size=4, gradient_accumulation_steps=3, warmup_steps=0.03), 4, 100, 501),
    (dict(BATCH, scheduler=DECAY, zero_optimization={"stage": 1}, gradient_clipping=0.7), dict(max_grad_norm=0.7), 1, 0, 10),
    (dict(train_batch_size=64, train_micro_batch_size_per_gpu=4, gradient_accumulation_steps=8),
     dict(per_device_train_batch_size=4, gradient_accumulation_steps=8), 2, 0, 10),
    (dict(BATCH, gradient_clipping=1.0), dict(max_grad_norm=0.5), 1, 0, 10),
    (dict(BATCH, optimizer={"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}}), dict(adam_beta2=0.98), 1, 0, 10),
    (dict(BATCH, fp16={"enabled": False}), dict(fp16=True), 1, 0, 10),
    (dict(BATCH, scheduler={"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}), dict(learning_rate=1e-4), 1, 0, 10),
]


def filled(config, flags, ranks, hidden, steps):
    args = types.SimpleNamespace(**{f.name: f.default for f in TrainingArguments.__dataclass_fields__.values()}, world_size=ranks)
    for name, value in flags.items():
        setattr(args, name, value)
    args.get_warmup_steps = types.MethodType(TrainingArguments.get_warmup_steps, args)
    hf = HfTrainerDeepSpeedConfig(copy.deepcopy(config))
    hf.trainer_config_process(args)
    try:
        hf.trainer_config_finalize(args, types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=hidden)), steps)
    except ValueError:
        return None
    return hf.config


def triangle(total, micro, steps, ranks):
    c = DeepSpeedConfig.__new__(DeepSpeedConfig)
    c.train_batch_size, c.train_micro_batch_size_per_gpu, c.gradient_accumulation_steps, c.world_size = total, micro, steps, ranks
    try:
        c._configure_train_batch_size()
    except (AssertionError, ZeroDivisionError):
        return None
    return [c.train_batch_size, c.train_micro_batch_size_per_gpu, c.gradient_accumulation_steps]


VALUES = dict(total=(None, 1, 24, 30), micro=(None, 1, 3, 4), steps=(None, 1, 2, 5), ranks=(1, 2, 4))
out = {
    "auto": [dict(config=c, flags=f, ranks=r, hidden_size=h, total_steps=s, filled=filled(c, f, r, h, s)) for c, f, r, h, s in CASES],
    "triangle": [dict(given=[t, m, a, r], derived=triangle(t, m, a, r))
                 for t in VALUES["total"] for m in VALUES["micro"] for a in VALUES["steps"] for r in VALUES["ranks"] if t or m],
}
pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(out, indent=None, separators=(",", ":")).replace("},{", "},\n{") + "\n")
