#!/usr/bin/env python3
"""Writes deepspeed_config.json: configuration texts and command lines as DeepSpeed and transformers resolve them, or refuse them, for several
numbers of ranks; and learning rates over 10,000 steps with a resume in the middle.

    python3 tests/oracles/deepspeed_config.py      made with transformers 5.23, accelerate 1.15, deepspeed 0.19.8 and torch 2.15
"""
import json
import logging
import math
import pathlib
import types

logging.disable(logging.CRITICAL)

import deepspeed.runtime.config as ds
import hjson
import torch
from deepspeed.runtime import lr_schedules
from deepspeed.runtime.config_utils import dict_raise_error_on_duplicate_keys
from transformers import get_scheduler
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig
from transformers.training_args import TrainingArguments

AUTO = 'train_batch_size: auto\n train_micro_batch_size_per_gpu: auto\n gradient_accumulation_steps: auto\n'
ADAMW = 'optimizer: {type: AdamW\n params: {lr: auto\n betas: auto\n eps: auto\n weight_decay: auto\n}}\n'
DECAY = 'scheduler: {type: WarmupDecayLR\n params: {warmup_min_lr: auto\n warmup_max_lr: auto\n warmup_num_steps: auto\n total_num_steps: auto\n}}\n'
FLAGS = dict(per_device_train_batch_size=4, gradient_accumulation_steps=2)
HIDDEN, STEPS = 96, 200
CASES = [  # text, flags
    (AUTO, {}),
    (AUTO, FLAGS),
    (AUTO + 'zero_optimization: {stage: 1}', FLAGS),
    (AUTO + 'zero_optimization: {stage: "2"}', {}),
    (AUTO + 'zero_optimization: {stage: 2.0, overlap_comm: true, reduce_bucket_size: 2e8}', {}),
    (AUTO + 'zero_optimization: {stage: true}', {}),
    (AUTO + 'zero_optimization: {"stage": 3, reduce_bucket_size: auto\n stage3_prefetch_bucket_size: auto\n stage3_param_persistence_threshold: auto\n}', {}),
    (AUTO + 'zero_optimization: {stage: 3, stage3_max_live_parameters: 1e9, prefetch_bucket_size: 1234, allgather_bucket_size: 400}', {}),
    (AUTO + 'zero_optimization: {stage: 2, reduce_bucket_size: auto\n}', {}),
    (AUTO + 'zero_optimization: {stage: 3, overlap_comm: "false", stage3_gather_fp16_weights_on_model_save: true}', {}),
    (AUTO + 'zero_optimization: {stage: 3, overlap_comm: 0, stage3_gather_16bit_weights_on_model_save: "true"}', {}),
    (AUTO + 'zero_optimization: {stage: 1, cpu_offload: false}', {}),
    (AUTO + 'zero_optimization: {stage: 1, stage3_prefetch_bucket_size: 7}', {}),
    (AUTO + 'fp16: {enabled: auto\n}', dict(fp16=True)),
    (AUTO + 'fp16: {enabled: true, auto_cast: auto\n loss_scale: 0, loss_scale_window: 500, hysteresis: 4, initial_scale_power: 12, min_loss_scale: 2}', dict(fp16=True)),
    ('train_batch_size: 16\nfp16: {enabled: "true", loss_scale: "128"}', {}),
    (AUTO + 'fp16: {enabled: true, consecutive_hysteresis: true}', dict(fp16=True)),
    (AUTO + 'bf16: {enabled: auto\n}\nfp16: {enabled: auto\n}', dict(bf16=True)),
    (AUTO + 'bfloat16: {enabled: true}', {}),
    (AUTO + 'bf16: {enabled: true, check_grad_overflow: false}', dict(bf16=True)),
    (AUTO + 'gradient_clipping: auto', dict(max_grad_norm=0.25)),
    ('train_batch_size: 16, gradient_clipping: 0.5, dataloader_drop_last: true', {}),
    (AUTO + 'gradient_clipping: 0.5', dict(max_grad_norm=0.5)),
    (AUTO + ADAMW, dict(learning_rate=3e-4, adam_beta2=0.95, adam_epsilon=1e-6, weight_decay=0.1)),
    (AUTO + 'optimizer: {type: "Adam", params: {lr: 0.011, betas: [0.8, 0.99], eps: 1e-6, weight_decay: 0.01}}',
     dict(learning_rate=0.011, adam_beta1=0.8, adam_beta2=0.99, adam_epsilon=1e-6, weight_decay=0.01)),
    (AUTO + ADAMW + DECAY, dict(learning_rate=1e-3, warmup_steps=20)),
    (AUTO + ADAMW + DECAY, dict(warmup_steps=0.03)),
    (AUTO + 'scheduler: {type: "OneCycle", params: {cycle_min_lr: 0.001, cycle_max_lr: 0.01, cycle_momentum: false}}', {}),
    ('train_batch_size: 64', {}),
    ('train_batch_size: 64, train_micro_batch_size_per_gpu: 4', dict(per_device_train_batch_size=4)),
    ('train_batch_size: 64, gradient_accumulation_steps: 4', dict(gradient_accumulation_steps=4)),
    ('train_micro_batch_size_per_gpu: 2', dict(per_device_train_batch_size=2)),
    ('train_micro_batch_size_per_gpu: 2, gradient_accumulation_steps: 3', dict(per_device_train_batch_size=2, gradient_accumulation_steps=3)),
    (AUTO + 'steps_per_print: 10\n wall_clock_breakdown: true, memory_breakdown: true, dump_state: true, dataloader_drop_last: true', {}),
    (AUTO + 'flops_profiler: {enabled: true, profile_step: 5, top_modules: 3, detailed: false, output_file: out.txt\n}', {}),
    (AUTO + 'tensorboard: {enabled: true, output_path: logs, job_name: a}', {}),
    (AUTO + 'tensorboard: {enabled: "true", output_path: "logs", job_name: "a"}\n csv_monitor: {enabled: 1, output_path: "csv"}', {}),
    (AUTO + 'comms_logger: {enabled: true, verbose: true, prof_all: false, prof_ops: ["all_reduce"]}', {}),
    (AUTO + 'data_types: {grad_accum_dtype: fp32\n}\ncommunication_data_type: fp32', dict(bf16=False)),
    (AUTO + 'activation_checkpointing: {partition_activations: false, number_checkpoints: null}\n wandb: {enabled: false, team: x\n}', {}),
    # refused
    (AUTO + 'fp16: {enabled: auto,  // true\n}', {}),
    (AUTO + 'fp16: {enabled: true}\nbf16: {enabled: true}', {}),
    (AUTO + 'zero_optimization: {stage: 4}', {}),
    (AUTO + 'zero_optimization: {stage: two\n}', {}),
    (AUTO + 'zero_optimization: {satge: 2}', {}),
    (AUTO + 'zero_optimization: {prefetch_bucket_size: 1, stage3_prefetch_bucket_size: 1}', {}),
    (AUTO + 'fp16: {enabled: true, los_scale: 0}', {}),
    (AUTO + 'fp16: {enabled: true}\nfp16: {enabled: true}', {}),
    (AUTO + 'tensorboard: {enabled: maybe\n}', {}),
    (AUTO + 'comms_logger: {enable: true}', {}),
    (AUTO + 'elasticity: {enabled: true}', {}),
    (AUTO + 'gradient_clipping: 1.0', dict(max_grad_norm=0.5)),
    ('train_batch_size: 33, gradient_accumulation_steps: 2', dict(gradient_accumulation_steps=2)),
    ('train_batch_size: 32, train_micro_batch_size_per_gpu: 3', dict(per_device_train_batch_size=3)),
    ('train_batch_size: 0', {}),
    (AUTO + 'zero_optimization: {stage: 1, legacy_stage1: [1]}', {}),
    (AUTO + '{', {}),
]


class Dist:
    ranks = 1

    @staticmethod
    def get_rank():
        return 0

    @classmethod
    def get_world_size(cls, *_):
        return cls.ranks


def resolved(text, flags, ranks):
    args = types.SimpleNamespace(**{f.name: f.default for f in TrainingArguments.__dataclass_fields__.values()}, world_size=ranks)
    for name, value in flags.items():
        setattr(args, name, value)
    args.get_warmup_steps = types.MethodType(TrainingArguments.get_warmup_steps, args)
    Dist.ranks = ranks
    ds.dist = Dist
    try:
        config = json.loads(json.dumps(hjson.loads(text, object_pairs_hook=dict_raise_error_on_duplicate_keys)))
        if "auto" in text:  # transformers compares every other number with its own defaults
            hf = HfTrainerDeepSpeedConfig(config)
            hf.trainer_config_process(args)
            hf.trainer_config_finalize(args, types.SimpleNamespace(config=types.SimpleNamespace(hidden_size=HIDDEN)), STEPS)
            config = hf.config
        c = ds.DeepSpeedConfig(config)
        z, h = c.zero_config, c.float16_config
        out = dict(train_batch_size=c.train_batch_size, micro_batch_size=c.train_micro_batch_size_per_gpu,
                   accumulation_steps=c.gradient_accumulation_steps, stage=int(z.stage), max_grad_norm=float(c.gradient_clipping),
                   reduce_bucket_size=z.reduce_bucket_size, allgather_bucket_size=z.allgather_bucket_size, overlap_comm=bool(z.overlap_comm),
                   gather_16bit_weights=z.gather_16bit_weights_on_model_save, dtype="fp16" if h.enabled else "bf16" if c.bfloat16_config.enabled else "fp32",
                   wall_clock_breakdown=bool(c.wall_clock_breakdown), memory_breakdown=c.memory_breakdown, dump_state=c.dump_state,
                   steps_per_print=c.steps_per_print or 0, drop_last=c.dataloader_drop_last)
        if z.stage == 3:
            out.update(prefetch_bucket_size=z.prefetch_bucket_size, param_persistence_threshold=z.param_persistence_threshold,
                       max_live_parameters=z.max_live_parameters)
        if h.enabled:
            out.update(dynamic_loss_scale=h.loss_scale == 0, initial_scale_power=h.initial_scale_power, loss_scale_window=h.loss_scale_window,
                       hysteresis=h.hysteresis, consecutive_hysteresis=h.consecutive_hysteresis, min_loss_scale=float(h.min_loss_scale))
            if h.loss_scale:
                out["static_loss_scale"] = float(h.loss_scale)
        if c.bfloat16_config.enabled:
            out["skip_on_nonfinite"] = c.bfloat16_config.check_grad_overflow
        if c.optimizer_params:
            p = c.optimizer_params
            out.update(learning_rate=p["lr"], beta1=p["betas"][0], beta2=p["betas"][1], epsilon=p["eps"], weight_decay=p["weight_decay"])
        if c.scheduler_name:
            out["scheduler"] = dict(type=c.scheduler_name, params=c.scheduler_params)
        m = c.monitor_config
        for name, monitor in (("tensorboard", m.tensorboard), ("csv_monitor", m.csv_monitor)):
            out[name] = str(pathlib.Path(monitor.output_path) / monitor.job_name) if monitor.enabled else None
        f = c.flops_profiler_config
        out["flops_profiler"] = dict(profile_step=f.profile_step, recompute_fwd_factor=float(f.recompute_fwd_factor), top_modules=f.top_modules,
                                     detailed=f.detailed, output_file=f.output_file) if f.enabled else None
        if c.comms_config.comms_logger_enabled:
            out["comms_logger"] = dict(verbose=c.comms_config.comms_logger.verbose, prof_ops=c.comms_config.comms_logger.prof_ops)
        json.dumps(out, allow_nan=False)
        return out
    except ImportError:
        raise
    except Exception:  # whatever refuses: hjson, pydantic, transformers or DeepSpeed
        return None


N = 10_000
SAMPLED = sorted({*range(1, 13), *range(13, N, 487), 999, 1000, 1001, 4999, 5000, 5001, 5002, N - 1, N})
DEEPSPEED = [
    ("WarmupLR", dict(warmup_min_lr=1e-5, warmup_max_lr=1e-3, warmup_num_steps=1000)),
    ("WarmupLR", dict(warmup_max_lr=1e-3, warmup_num_steps=700, warmup_type="linear")),
    ("WarmupDecayLR", dict(total_num_steps=N, warmup_max_lr=1e-3, warmup_num_steps=1000)),
    ("WarmupCosineLR", dict(total_num_steps=N, warmup_num_steps=1000, warmup_min_ratio=0.1, cos_min_ratio=0.05)),
    ("OneCycle", dict(cycle_min_lr=1e-4, cycle_max_lr=1e-2, cycle_first_step_size=3000, cycle_second_step_size=2000, decay_step_size=100,
                      decay_lr_rate=0.01, cycle_momentum=False)),
    ("LRRangeTest", dict(lr_range_test_min_lr=1e-5, lr_range_test_step_size=300, lr_range_test_step_rate=2.0, lr_range_test_staircase=True)),
]
TRAINER = [("linear", 1000, {}), ("cosine", 1000, {}), ("cosine_with_restarts", 500, dict(num_cycles=3)), ("polynomial", 100, dict(power=2.0)),
           ("constant_with_warmup", 777, {}), ("inverse_sqrt", 1000, {}), ("cosine_with_min_lr", 1000, dict(min_lr_rate=0.1)),
           ("warmup_stable_decay", 500, dict(num_decay_steps=2000))]
PEAK = 3e-4


def trace(make):
    """Rates of steps 1 to N; a new scheduler takes over from the state after half of them."""
    def start():
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
        return optimizer, make(optimizer)
    optimizer, scheduler = start()
    rates = []
    for step in range(N):
        if step == N // 2:
            state, weights = scheduler.state_dict(), optimizer.state_dict()
            optimizer, scheduler = start()
            optimizer.load_state_dict(weights)
            scheduler.load_state_dict(state)
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()
    return dict(sum=math.fsum(rates), rates=[[k, rates[k - 1]] for k in SAMPLED])


def schedules():
    for name, params in DEEPSPEED:
        yield dict(scheduler=dict(type=name, params=params), **trace(lambda o: getattr(lr_schedules, name)(o, **params)))
    for name, warmup, kwargs in TRAINER:
        yield dict(lr_scheduler_type=name, warmup_steps=warmup, lr_scheduler_kwargs=kwargs,
                   **trace(lambda o: get_scheduler(name, o, warmup, N, scheduler_specific_kwargs=kwargs)))


def main():
    cases = [dict(text=text, flags=flags, ranks=ranks, resolved=resolved(text, flags, ranks)) for text, flags in CASES for ranks in (1, 2, 8)]
    out = dict(hidden_size=HIDDEN, total_steps=STEPS, learning_rate=PEAK, steps=N, cases=cases, schedules=list(schedules()))
    file = pathlib.Path(__file__).with_suffix(".json")
    parts = [f'"{k}": ' + ("[\n" + ",\n".join(json.dumps(x) for x in v) + "\n]" if isinstance(v, list) else json.dumps(v)) for k, v in out.items()]
    file.write_text("{" + ",\n".join(parts) + "}\n")


if __name__ == "__main__":
    main()
