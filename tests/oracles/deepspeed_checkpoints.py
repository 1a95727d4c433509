#!/usr/bin/env python3
"""Small checkpoints written by DeepSpeed itself, with what they hold according to the live engine, and how training continued.

    DS_ACCELERATOR=cpu DS_SKIP_CUDA_CHECK=1 python tests/oracles/deepspeed_checkpoints.py tests/checkpoint/data/deepspeed

Per case a directory: what save_checkpoint wrote, config.json, ds_config.json and expected.json: counters, loss scaler, losses before and
after the save, and the XXH3 (64 bit) of every tensor as fp32, "fp32/<parameter>" and "<state>/<parameter>" for each state of the
optimizer (exp_avg and exp_avg_sq of AdamW and Lamb, exp_avg of Lion, sum of Adagrad (DeepSpeed's CPUAdagrad names it exp_avg_sq), momentum_buffer of SGD with momentum, none of plain SGD),
gathered over the ranks from the running optimizer; its master weights are compared here with DeepSpeed's zero_to_fp32 where that accepts the files.
Lion is DeepSpeed's CPULion. DeepSpeed's Lamb needs a GPU: here it is the one of optimizers.py, whose states have the same names.
The universal cases are made from others by DeepSpeed's ds_to_universal, which converts the states of Adam only. torch_files has tensors of all kinds in both formats of
torch.save, bin_model a Hugging Face directory with pytorch_model.bin in two shards and z1_w1's weights.
Needs torch, deepspeed 0.19, transformers, tokenizers, xxhash.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZER = HERE.parent / "data/vectors/tokenizer/narrow/tokenizer.json"
ROWS, LENGTH, STEPS_BEFORE, STEPS_AFTER = 6, 16, 3, 2
BF16, FP16 = {"bf16": {"enabled": True}}, {"fp16": {"enabled": True, "initial_scale_power": 8, "hysteresis": 3}}
BF16_MASTERS = {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}}

# name: (ranks, stage, configuration, zero section, traits)
CASES = {
    "z0_w2": (2, 0, {}, {}, ()),
    "z0_w1_groups": (1, 0, {}, {}, ("groups", "frozen")),
    "z0_w2_fp16": (2, 0, FP16, {}, ("groups",)),
    "z0_w2_bf16": (2, 0, BF16, {}, ()),
    "z0_w1_fused": (1, 0, FP16, {}, ("groups", "frozen", "fused")),
    "z1_w1": (1, 1, {}, {}, ()),
    "z1_w2_bf16_wrapper": (2, 1, {**BF16, "data_types": {"grad_accum_dtype": "fp32"}}, {}, ("groups",)),
    "z1_w2_frozen": (2, 1, {}, {"round_robin_gradients": True}, ("frozen",)),
    "z2_w3_groups": (3, 2, {}, {"round_robin_gradients": True}, ("groups", "frozen")),
    "z2_w2_fp16": (2, 2, FP16, {}, ()),
    "z2_w2_elastic": (2, 2, {}, {"elastic_checkpoint": True}, ()),
    "z2_w2_aligned": (2, 2, BF16, {"parameter_alignment": True, "round_robin_gradients": True}, ()),
    "z2_w2_legacy": (2, 2, {"checkpoint": {"checkpoint_serialization": False}}, {}, ("legacy",)),
    "z3_w2_bf16": (2, 3, BF16, {"sub_group_size": 400}, ("groups", "frozen")),
    "z3_w3": (3, 3, {}, {"sub_group_size": 1000}, ()),
    "sgd_z0_w2": (2, 0, {}, {}, ("sgd",)),
    "sgd_z1_w2": (2, 1, {}, {}, ("sgd",)),
    "sgd_z2_w2": (2, 2, {}, {}, ("sgd", "frozen")),
    "sgd_z3_w2": (2, 3, {}, {"sub_group_size": 1000}, ("sgd",)),
    "sgd_plain_z0_w1": (1, 0, {}, {}, ("sgd_plain",)),
    "sgd_plain_z2_w2": (2, 2, {}, {}, ("sgd_plain",)),
    "sgd_plain_z3_w2": (2, 3, {}, {}, ("sgd_plain",)),
    "adagrad_z0_w2": (2, 0, {}, {}, ("adagrad",)),
    "adagrad_z2_w2": (2, 2, {}, {}, ("adagrad",)),
    "adagrad_z3_w2": (2, 3, {}, {"sub_group_size": 1000}, ("adagrad",)),
    "adagrad_z2_w2_offload": (2, 2, {}, {"offload_optimizer": {"device": "cpu"}}, ("adagrad", "offload")),
    "bf16_masters_z2_w2": (2, 2, BF16_MASTERS, {}, ()),
    "bf16_masters_z3_w2": (2, 3, BF16_MASTERS, {"sub_group_size": 1000}, ()),
    "lion_z2_w2_offload": (2, 2, {}, {"offload_optimizer": {"device": "cpu"}}, ("lion",)),
    "lamb_z0_w2": (2, 0, {}, {}, ("lamb",)),
    "llama_z3_w2": (2, 3, {}, {"sub_group_size": 1000}, ("llama",)),
    "bigcode_z1_w2_bf16": (2, 1, BF16, {}, ("gpt_bigcode",)),
    "neox_z2_w2": (2, 2, {}, {}, ("gpt_neox",)),
}
LAMB = dict(lr=5e-3, betas=[0.9, 0.95], eps=1e-8, weight_decay=0.01, max_coeff=10.0, min_coeff=0.01, bias_correction=True)
SMALL = dict(vocab_size=331, bos_token_id=0, eos_token_id=0, pad_token_id=None)
FAMILIES = {
    "gpt2": dict(SMALL, n_positions=32, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "gpt_bigcode": dict(SMALL, n_positions=32, n_embd=8, n_layer=1, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "llama": dict(SMALL, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                  max_position_embeddings=32),
    "gpt_neox": dict(SMALL, hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32,
                     rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5)),
}


def corpus(lines):
    subjects, verbs = ["the hacker", "a system", "the old kernel", "every user"], ["reads", "breaks", "rewrites", "forgets"]
    objects = ["the manual", "a large file", "its own code", "the network", "nothing at all"]
    state, out = 4711, []
    for _ in range(lines):
        words = []
        for choice in (subjects, verbs, objects):
            state = (state * 1103515245 + 12345) % 2**31
            words.append(choice[(state >> 16) % len(choice)])
        out.append(" ".join(words) + ".")
    return "\n".join(out) + "\n"


def blocks(text):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    ids = [i for line in text.splitlines() for i in tokenizer.encode(line).ids]
    return [ids[k:k + LENGTH] for k in range(0, len(ids) - LENGTH + 1, LENGTH)]


def states_of(traits):
    if "sgd_plain" in traits:
        return ()
    if "adagrad" in traits:
        return ("exp_avg_sq",) if "offload" in traits else ("sum",)
    if "lion" in traits:
        return ("exp_avg",)
    return ("momentum_buffer",) if "sgd" in traits else ("exp_avg", "exp_avg_sq")


def optimizer_config(traits):
    if "sgd" in traits or "sgd_plain" in traits:
        return {"type": "SGD", "params": {"lr": 5e-2, "momentum": 0.9 if "sgd" in traits else 0.0, "weight_decay": 0.01}}
    if "adagrad" in traits:
        return {"type": "Adagrad", "params": {"lr": 5e-2, "weight_decay": 0.01}}
    if "lion" in traits:
        return {"type": "Lion", "params": {"lr": 5e-4, "betas": [0.9, 0.95], "weight_decay": 0.01}}
    if "lamb" in traits:
        return {"type": "Lamb", "params": LAMB}
    return {"type": "AdamW", "params": {"lr": 5e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01, "torch_adam": True}}


def make_model(traits):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(1)
    family = next((t for t in traits if t in FAMILIES), "gpt2")
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **FAMILIES[family]), dtype=torch.float32)
    if "frozen" in traits:
        model.transformer.wpe.weight.requires_grad_(False)
        model.transformer.h[0].ln_2.bias.requires_grad_(False)
    return model


def gathered(engine, stage, names, states):
    """{state/name: tensor} from the live optimizer: flat partitions of all ranks side by side, cut in the order of the group."""
    import torch
    import torch.distributed as dist
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    out = {}
    if stage == 3:
        for parameter in engine.module.parameters():
            if parameter.requires_grad:
                out["fp32/" + names[parameter]] = safe_get_full_fp32_param(parameter)
                for state in states:
                    out[f"{state}/{names[parameter]}"] = safe_get_full_optimizer_state(parameter, state)
        return {k: v.clone().contiguous() for k, v in out.items()}
    z = engine.optimizer
    if stage == 0 and not hasattr(z, "bf16_groups"):
        return gathered_plain(z, names, states)
    wrapper = hasattr(z, "bf16_groups")
    groups = z.bf16_groups if wrapper else z.round_robin_bit16_groups
    masters = z.fp32_groups_flat_partition if wrapper else z.single_partition_of_fp32_groups
    for group, master in zip(groups, masters):
        for state, part in (("fp32", master), *((s, z.optimizer.state[master][s]) for s in states)):
            parts = [torch.empty_like(part.data) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, part.data.contiguous())
            flat, at = torch.cat(parts), 0
            for parameter in group:
                out[f"{state}/{names[parameter]}"] = flat[at:at + parameter.numel()].view(parameter.shape).clone()
                at += parameter.numel()
    return out


def gathered_plain(z, names, states):
    """Stage 0: torch's own optimizer in fp32, else a wrapper with master weights of each parameter or of each group in one run."""
    out = {}

    def put(parameter, master, state, first=0):
        for name, tensor in (("fp32", master), *((s, state[s]) for s in states)):
            out[f"{name}/{names[parameter]}"] = tensor.detach().flatten()[first:first + parameter.numel()].view(parameter.shape).clone()

    if hasattr(z, "fp32_groups"):
        for group, masters in zip(z.fp16_groups, z.fp32_groups):
            for parameter, master in zip(group, masters):
                put(parameter, master, z.optimizer.state[master])
    elif hasattr(z, "fp32_groups_flat"):
        for group, master in zip(z.fp16_groups, z.fp32_groups_flat):
            first = 0
            for parameter in group:
                put(parameter, master, z.optimizer.state[master], first)
                first += parameter.numel()
    else:
        for group in z.param_groups:
            for parameter in group["params"]:
                put(parameter, parameter, z.state[parameter])
    return out


def optimizer_of(model, traits):
    import torch
    if "lamb" in traits:
        from optimizers import Lamb
        return Lamb(model.parameters(), eps_inside_sqrt=False, **LAMB)
    if "groups" not in traits:
        return None
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=5e-3)


def run_case(out, name, text_blocks):
    import deepspeed
    import torch
    import torch.distributed as dist
    ranks, stage, more, zero, traits = CASES[name]
    rank, rows = dist.get_rank(), ROWS // ranks
    config = {"train_micro_batch_size_per_gpu": rows, "gradient_accumulation_steps": 1, "gradient_clipping": 1.0,
              "zero_optimization": {"stage": stage, **zero}, **more}
    model = make_model(traits)
    optimizer = optimizer_of(model, traits)
    if optimizer is None:
        config["optimizer"] = optimizer_config(traits)
        if config["optimizer"]["type"] in ("SGD", "Adagrad", "Lion"):
            config["zero_allow_untested_optimizer"] = True
    else:
        config["zero_allow_untested_optimizer"] = True
        config["zero_force_ds_cpu_optimizer"] = False
    hf_config = model.config
    fused = deepspeed.runtime.engine.FusedAdam
    if "fused" in traits:  # the wrapper that GPUs get around FusedAdam; it works on any optimizer
        deepspeed.runtime.engine.FusedAdam = torch.optim.AdamW
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=json.loads(json.dumps(config)),
                                           model_parameters=[p for p in model.parameters() if p.requires_grad])
    names = {p: n for n, p in engine.module.named_parameters()}
    deepspeed.runtime.engine.FusedAdam = fused
    losses = []

    def step(index):
        first = index * ROWS + rank * rows
        batch = torch.tensor(text_blocks[first:first + rows])
        loss = engine(input_ids=batch, labels=batch).loss
        engine.backward(loss)
        engine.step()
        mean = loss.detach().double()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)

    for index in range(STEPS_BEFORE):
        step(index)
    directory = out / name
    if rank == 0:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
    dist.barrier()
    states = gathered(engine, stage, names, states_of(traits))
    engine.save_checkpoint(str(directory), tag="step3")
    dist.barrier()
    scaler = getattr(engine.optimizer, "loss_scaler", None) or getattr(engine.optimizer, "loss_scale_config", None)
    facts = {"ranks": ranks, "stage": stage, "global_steps": engine.global_steps, "skipped_steps": engine.skipped_steps,
             "global_samples": engine.global_samples, "adam_step": STEPS_BEFORE - engine.skipped_steps, "loss_scale": getattr(scaler, "loss_scale", 1.0)}
    if stage == 0:  # the 16-bit wrappers take a step with zero gradients when they are made
        inner = getattr(engine.optimizer, "optimizer", engine.optimizer)
        facts["adam_step"] = int(next(iter(inner.state.values()), {}).get("step", facts["adam_step"]))
    if hasattr(scaler, "cur_iter") and getattr(scaler, "dynamic_loss_scale", True):
        facts["loss_scale"] = scaler.cur_scale
        facts["scaler"] = {"scale": scaler.cur_scale, "iteration": scaler.cur_iter, "last_overflow": scaler.last_overflow_iter, "hysteresis": getattr(scaler, "cur_hysteresis", 1)}
    frozen = {}
    for n, p in engine.module.named_parameters():
        if not p.requires_grad:
            with deepspeed.zero.GatheredParameters([p], enabled=stage == 3):
                frozen["fp32/" + n] = p.data.float().clone()
    for index in range(STEPS_BEFORE, STEPS_BEFORE + STEPS_AFTER):
        step(index)
    facts.update(losses_before=losses[:STEPS_BEFORE], losses_after=losses[STEPS_BEFORE:], versions={"deepspeed": deepspeed.__version__, "torch": torch.__version__})
    if "lamb" in traits:
        config["optimizer"] = optimizer_config(traits)
    if rank == 0:
        finish_case(directory, states | frozen, facts, config, hf_config, "wrapper" not in name and "legacy" not in name and stage > 0,
                    ("sum",) if states_of(traits) == ("exp_avg_sq",) else ())
    dist.barrier()


def finish_case(directory, tensors, facts, config, hf_config, by_script, renamed=()):
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    import xxhash
    facts["zero_to_fp32_agrees"] = False
    if by_script:
        recovered = get_fp32_state_dict_from_zero_checkpoint(str(directory))
        for name, tensor in recovered.items():
            tied = name == "lm_head.weight" and "fp32/" + name not in tensors
            wanted = tensors.get("fp32/" + ("transformer.wte.weight" if tied else name))
            assert torch.equal(tensor.float(), wanted.float()), f"{directory.name}: zero_to_fp32 has another {name}"
        facts["zero_to_fp32_agrees"] = True
        facts["zero_to_fp32_names"] = sorted(recovered)
    if "sum" in renamed:
        tensors = {k.replace("exp_avg_sq/", "sum/"): v for k, v in tensors.items()}
    facts["xxh3"] = {k: xxhash.xxh3_64_hexdigest(v.float().contiguous().numpy().tobytes()) for k, v in tensors.items()}
    (directory / "expected.json").write_text(json.dumps(facts, indent=1) + "\n")
    (directory / "ds_config.json").write_text(json.dumps(config, indent=1) + "\n")
    hf_config.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    for script in directory.glob("zero_to_*.py"):
        script.unlink()


def run_world(out, ranks):
    import deepspeed
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    # the guard looks for native fp16 arithmetic; torch emulates it well enough for these sizes
    accelerator = deepspeed.accelerator.get_accelerator()
    dtypes = accelerator.supported_dtypes()
    accelerator.supported_dtypes = lambda: dtypes + [torch.float16]
    accelerator.is_fp16_supported = lambda: True
    text_blocks = blocks((out / "text.txt").read_text())
    for name, case in CASES.items():
        if case[0] == ranks and (not os.environ.get("CASE") or os.environ["CASE"] == name):
            run_case(out, name, text_blocks)
    dist.barrier()


def universal(out, source, name):
    """A case converted by DeepSpeed's ds_to_universal."""
    directory = out / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for file in ("config.json", "ds_config.json", "expected.json"):
        shutil.copy(out / source / file, directory / file)
    subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", str(out / source / "step3"), "--output_folder",
                    str(directory / "step3_universal"), "--num_extract_workers", "1", "--num_merge_workers", "1", "--inject_missing_state"], check=True)
    (directory / "latest_universal").write_text("step3_universal")


def torch_files(directory):
    import torch
    directory.mkdir(exist_ok=True)
    count = torch.arange(24)
    shared = count.float() * 0.5
    values = {"fp32": shared.view(4, 6), "view": shared[5:11], "transposed": shared.view(4, 6).t(), "sliced": shared.view(4, 6)[1::2, ::3],
              "parameter": torch.nn.Parameter(shared.view(2, 12)), "fp16": count.half(), "bf16": count.bfloat16(), "fp64": count.double() / 3,
              "int64": count - 7, "int32": count.int() - 7, "int16": count.short() - 7, "int8": count.to(torch.int8) - 7, "uint8": count.to(torch.uint8),
              "bool": count % 3 == 0, "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "expanded": torch.tensor([1.5]).expand(3, 2)}
    torch.save(values, directory / "zip.pt")
    torch.save(values, directory / "legacy.pt", _use_new_zipfile_serialization=False)


def bin_model(directory, case):
    """The weights of a case as transformers wrote them before safetensors."""
    import torch
    directory.mkdir(exist_ok=True)
    shutil.copy(case / "config.json", directory)
    module = torch.load(case / "step3/mp_rank_00_model_states.pt", weights_only=False)["module"]
    names = [n for n in module if n != "lm_head.weight"]
    files = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    parts = [names[:1], names[1:]]
    for file, part in zip(files, parts):
        torch.save({n: module[n].clone() for n in part}, directory / file)
    index = {"metadata": {"total_size": sum(module[n].nbytes for n in names)}, "weight_map": {n: f for f, part in zip(files, parts) for n in part}}
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--rank-of", type=int)
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    if arguments.rank_of:
        return run_world(out, arguments.rank_of)
    out.mkdir(parents=True, exist_ok=True)
    (out / "text.txt").write_text(corpus(80))
    for ranks in sorted({case[0] for case in CASES.values()}):
        environment = dict(os.environ, OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29600 + ranks), WORLD_SIZE=str(ranks))
        processes = [subprocess.Popen([sys.executable, __file__, str(out), "--rank-of", str(ranks)],
                                      env=dict(environment, RANK=str(r), LOCAL_RANK=str(r))) for r in range(ranks)]
        assert not any([p.wait() for p in processes]), f"{ranks} ranks failed"
    if os.environ.get("CASE"):
        return
    universal(out, "z2_w2_fp16", "universal_z2")
    universal(out, "z3_w3", "universal_z3")
    torch_files(out / "torch_files")
    bin_model(out / "bin_model", out / "z1_w1")


if __name__ == "__main__":
    main()
