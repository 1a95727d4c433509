#!/usr/bin/env python3
"""Writes dpo_runs.json: four steps of TRL's DPOTrainer on the CPU in fp32 for each form of preferences, loss and reference model, on one, two and four ranks, in the
default random order with two micro-batches per step, and an evaluation at the end.

    python3 tests/oracles/dpo_runs.py      needs torch, transformers, trl, peft, accelerate, datasets; made with transformers 5.24, trl 1.16, accelerate 1.15, peft 0.21

Weights, tokenizer and template are those of trl_runs.py; those of the adapters come from their names too, lora_B is zero.
"""
import copy
import json
import os
import random
import subprocess
import sys
import tempfile

import trl_runs as sft

HERE = sft.HERE
ROWS, ACCUMULATION, STEPS, RATE, DECAY, SEED = 2, 2, 4, 5e-3, 0.1, 1234
ADAPTER = dict(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["q_proj", "v_proj"])
# form of the records, arguments, families, ranks
CASES = dict(
    sigmoid=("preference", dict(max_length=48), ("gpt2", "llama"), (1, 2, 4)),
    hinge=("implicit", dict(max_length=48, loss_type="hinge", beta=0.5), ("llama",), (1, 2)),
    ipo=("preference_messages", dict(max_length=48, loss_type="ipo", beta=0.5), ("gpt2",), (1, 2)),
    robust=("implicit_messages", dict(max_length=48, loss_type="robust", label_smoothing=0.1), ("llama",), (2,)),
    truncated=("preference", dict(max_length=14), ("gpt2",), (2,)),
    precomputed=("preference", dict(max_length=48, precompute_ref_log_probs=True), ("llama",), (1,)),
    lora=("preference", dict(max_length=48), ("llama",), (1, 2)),
    other_reference=("preference", dict(max_length=48), ("llama",), (2,)),  # the reference is the model gpt2
)
KEEP = ("loss", "grad_norm", "entropy", "mean_token_accuracy", "num_tokens", "logits/chosen", "logits/rejected", "rewards/chosen", "rewards/rejected",
        "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected")


def records():
    lines = [line.strip() for line in sft.TEXT.read_text().splitlines() if len(line.strip()) > 12]
    numbers, plain = random.Random(7), []
    for i in range(20):
        a, b = lines[i % len(lines)], lines[(3 * i + 5) % len(lines)]
        cut = numbers.randint(4, 10)
        plain.append((a[:cut], a[cut:cut + numbers.randint(2, 20)], b[:numbers.randint(1, 16)]))
    chats = [([dict(role="system", content=p[:4])] * (i % 3 == 0) + [dict(role="user", content=p)], [dict(role="assistant", content=c)], [dict(role="assistant", content=r[:9])])
             for i, (p, c, r) in enumerate(plain)]
    return dict(
        preference=[dict(prompt=p, chosen=c, rejected=r) for p, c, r in plain],
        implicit=[dict(chosen=f"{p}ä " + c, rejected=f"{p}ä " + r) for p, c, r in plain],
        preference_messages=[dict(prompt=p, chosen=c, rejected=r) for p, c, r in chats],
        implicit_messages=[dict(chosen=p + c, rejected=p + r) for p, c, r in chats])


def adapt(model):
    """Sets the adapter's weights."""
    import model_families as mf
    import torch
    for name, p in model.named_parameters():
        if "lora_" in name:
            plain = name.replace(".default", "")
            p.data = torch.zeros_like(p.data) if "lora_B" in name else torch.as_tensor(mf.weight("llama", plain, tuple(p.shape)), dtype=torch.float32).clone()
    return {n.replace(".default", ""): list(p.shape) for n, p in model.named_parameters() if "lora_" in n}


def train(name, model, reference, tokenizer):
    from datasets import Dataset
    from peft import LoraConfig
    from trl import DPOConfig, DPOTrainer
    form, arguments, _, _ = CASES[name]
    adapters = {}
    with tempfile.TemporaryDirectory() as output:
        config = DPOConfig(output, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=ROWS, gradient_accumulation_steps=ACCUMULATION,
                           per_device_eval_batch_size=5, learning_rate=RATE, weight_decay=DECAY, lr_scheduler_type="constant", logging_steps=1, save_strategy="no",
                           report_to=[], disable_tqdm=True, seed=SEED, bf16=False, gradient_checkpointing=False, **arguments)
        data = Dataset.from_list(records()[form])
        trainer = DPOTrainer(model, reference, config, train_dataset=data, eval_dataset=data, processing_class=tokenizer,
                             peft_config=LoraConfig(task_type="CAUSAL_LM", **ADAPTER) if name == "lora" else None)
        if name == "lora":
            adapters = adapt(trainer.model)
        trainer.train()
        evaluation = trainer.evaluate()
        rows = [r for r in trainer.state.log_history if "loss" in r]
    return dict({k: [float(r[k]) for r in rows] for k in KEEP}, evaluation={k: float(evaluation["eval_" + k]) for k in KEEP if "eval_" + k in evaluation}), adapters


def rank(world):
    import torch
    from transformers import AutoTokenizer
    torch.set_num_threads(1)
    runs, models, adapters, built = [], {}, {}, {family: sft.build(family) for family in ("gpt2", "llama")}
    with tempfile.TemporaryDirectory() as directory:
        sft.write_tokenizer(sft.pathlib.Path(directory))
        for family, (model, _, _) in built.items():  # the reference model is read from the directory that the configuration names
            model.save_pretrained(f"{directory}/{family}")
            model.config._name_or_path = f"{directory}/{family}"
        for name, (form, arguments, of, worlds) in CASES.items():
            for family in of if world in worlds else ():
                model, config, shapes = built[family]
                reference = copy.deepcopy(built["gpt2"][0]) if name == "other_reference" else None
                result, shapes_of_adapter = train(name, copy.deepcopy(model), reference, AutoTokenizer.from_pretrained(directory))
                adapters.update(shapes_of_adapter)
                runs.append(dict(name=name, form=form, family=family, ranks=world, arguments=arguments, **result))
                models[family] = dict(config=config, shapes=shapes)
    if int(os.environ.get("RANK", "0")) == 0:
        print("RESULT " + json.dumps(dict(runs=runs, models=models, adapters=adapters)), flush=True)


def run(world):
    environment = dict(os.environ, OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    if world > 1:
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29723", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    ranks = [subprocess.Popen([sys.executable, __file__, str(world)], stdout=subprocess.PIPE, text=True,
                              env=dict(environment, **({"RANK": str(r), "LOCAL_RANK": str(r)} if world > 1 else {}))) for r in range(world)]
    texts = [p.communicate()[0] for p in ranks]
    assert not any(p.returncode for p in ranks), f"{world} ranks failed"
    return json.loads(next(line for line in texts[0].splitlines() if line.startswith("RESULT "))[7:])


def main():
    if len(sys.argv) > 1:
        return rank(int(sys.argv[1]))
    results = [run(world) for world in (1, 2, 4)]
    out = dict(rows=ROWS, accumulation=ACCUMULATION, steps=STEPS, rate=RATE, decay=DECAY, seed=SEED, added=sft.ADDED, template=sft.TEMPLATE, records=records(),
               adapter=ADAPTER, adapters=results[0]["adapters"], models=results[0]["models"], runs=[r for result in results for r in result["runs"]])
    (HERE / "dpo_runs.json").write_text(json.dumps(out).replace('}, {"name"', '},\n{"name"') + "\n")


if __name__ == "__main__":
    main()
