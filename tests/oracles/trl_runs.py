#!/usr/bin/env python3
"""Writes trl_runs.json and trl_packing.json: four steps of TRL's SFTTrainer on the CPU in fp32 for each form of examples, loss and packing, on one, two and four ranks, in the
default random order with two micro-batches per step; and what its pack_dataset makes of some lengths.

    python3 tests/oracles/trl_runs.py      needs torch, transformers, trl, accelerate, datasets; made with transformers 5.24, trl 1.16, accelerate 1.15

Weights are those of trainer_runs.py. The tokenizer is tests/data/vectors/tokenizer/narrow with three added tokens; records, tokens and template are stored.
"""
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NARROW = HERE.parent / "data/vectors/tokenizer/narrow/tokenizer.json"
TEXT = HERE.parent / "checkpoint/data/deepspeed/text.txt"
ROWS, ACCUMULATION, STEPS, RATE, DECAY, SEED = 2, 2, 4, 5e-3, 0.1, 1234
ADDED = ["<|end|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}{% if message['role'] == 'assistant' %}"
            "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
            "{% else %}{{ message['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
VOCABULARY = dict(vocab_size=334, bos_token_id=0, eos_token_id=0)
# form of the records, arguments, families, ranks
CASES = dict(
    completion=("prompt_completion", dict(max_length=48), ("gpt2", "llama", "qwen3"), (1, 2, 4)),
    full_pair=("prompt_completion", dict(max_length=48, completion_only_loss=False), ("llama",), (1, 2)),
    truncated=("prompt_completion", dict(max_length=14), ("gpt2",), (2,)),
    text_dft=("text", dict(max_length=24, loss_type="dft"), ("llama",), (1, 2)),
    chat=("messages", dict(max_length=48), ("qwen3",), (2,)),
    share_gpt=("conversations", dict(max_length=48), ("llama",), (1,)),
    assistant=("messages", dict(max_length=48, assistant_only_loss=True), ("qwen3",), (1, 2)),
    pair_of_chats=("prompt_completion_messages", dict(max_length=48), ("llama",), (2,)),
    bfd=("prompt_completion", dict(max_length=32, packing=True), ("gpt2", "llama"), (1, 2)),
    bfd_split=("messages", dict(max_length=24, packing=True, packing_strategy="bfd_split"), ("llama",), (2,)),
    wrapped=("text", dict(max_length=32, packing=True, packing_strategy="wrapped"), ("qwen3",), (1,)),
    padding_free=("prompt_completion", dict(max_length=None, padding_free=True), ("gpt2", "llama"), (2,)),
)


def records():
    lines = [line.strip() for line in TEXT.read_text().splitlines() if len(line.strip()) > 12]
    numbers = random.Random(5)
    pairs = []
    for i in range(19):
        line = lines[i % len(lines)]
        cut, end = numbers.randint(4, 10), numbers.randint(11, min(len(line), 34))
        pairs.append((line[:cut], line[cut:end]))
    chats = [[dict(role="system", content=a[:5])] * (i % 3 == 0) + [dict(role="user", content=a), dict(role="assistant", content=b[:12])] * (1 + i % 2)
             for i, (a, b) in enumerate(pairs)]
    return dict(
        text=[dict(text=a + b) for a, b in pairs],
        prompt_completion=[dict(prompt=a, completion=b) for a, b in pairs],
        messages=[dict(messages=c) for c in chats],
        conversations=[dict(conversations=[{"from": m["role"], "value": m["content"]} for m in c]) for c in chats],
        prompt_completion_messages=[dict(prompt=c[:-1], completion=c[-1:]) for c in chats])


def write_tokenizer(directory):
    tree = json.loads(NARROW.read_text())
    tree["added_tokens"] = [dict(id=331 + i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for i, t in enumerate(ADDED)]
    (directory / "tokenizer.json").write_text(json.dumps(tree))
    config = dict(tokenizer_class="PreTrainedTokenizerFast", eos_token=ADDED[0], pad_token=ADDED[0], chat_template=TEMPLATE)
    (directory / "tokenizer_config.json").write_text(json.dumps(config))


def families():
    import model_families as mf
    return dict(gpt2=dict(mf.GPT2_LIKE, **VOCABULARY, **{"n_positions": 64}), llama=dict(mf.LLAMA_LIKE, **VOCABULARY, **{"max_position_embeddings": 64}),
                qwen3=dict(mf.FAMILIES["qwen3"][0]["config"], **VOCABULARY, **{"max_position_embeddings": 64}))


def build(family):
    """Before the ranks know each other: afterwards only the first one writes files, from which the names are read."""
    import model_families as mf
    import torch
    model, named, saved = mf.build(family, dict(config=families()[family]), torch.float32)
    for p in model.parameters():
        p.data *= 0.5
    return model, saved, {n: list(p.shape) for n, p in sorted(named.items())}


def train(name, model, tokenizer):
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer
    form, arguments, _, _ = CASES[name]
    with tempfile.TemporaryDirectory() as output:
        config = SFTConfig(output, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=ROWS, gradient_accumulation_steps=ACCUMULATION,
                           learning_rate=RATE, weight_decay=DECAY, lr_scheduler_type="constant", logging_steps=1, save_strategy="no", report_to=[],
                           disable_tqdm=True, seed=SEED, bf16=False, gradient_checkpointing=False, **arguments)
        trainer = SFTTrainer(model, config, train_dataset=Dataset.from_list(records()[form]), processing_class=tokenizer)
        trainer.train()
        rows = [r for r in trainer.state.log_history if "loss" in r]
    keep = dict(losses="loss", norms="grad_norm", entropy="entropy", accuracy="mean_token_accuracy", tokens="num_tokens")
    return {k: [float(r[v]) for r in rows] for k, v in keep.items()}


def rank(world):
    import torch
    from transformers import AutoTokenizer
    torch.set_num_threads(1)
    runs, models, built = [], {}, {family: build(family) for family in families()}
    with tempfile.TemporaryDirectory() as directory:
        write_tokenizer(pathlib.Path(directory))
        for name, (form, arguments, of, worlds) in CASES.items():
            for family in of if world in worlds else ():
                model, config, shapes = built[family]
                result = train(name, copy.deepcopy(model), AutoTokenizer.from_pretrained(directory))
                runs.append(dict(name=name, form=form, family=family, ranks=world, arguments=arguments, **result))
                models[family] = dict(config=config, shapes=shapes)
    if int(os.environ.get("RANK", "0")) == 0:
        print("RESULT " + json.dumps(dict(runs=runs, models=models)), flush=True)


def run(world):
    environment = dict(os.environ, OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
    if world > 1:
        environment.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29719", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    ranks = [subprocess.Popen([sys.executable, __file__, str(world)], stdout=subprocess.PIPE, text=True,
                              env=dict(environment, **({"RANK": str(r), "LOCAL_RANK": str(r)} if world > 1 else {}))) for r in range(world)]
    texts = [p.communicate()[0] for p in ranks]
    assert not any(p.returncode for p in ranks), f"{world} ranks failed"
    return json.loads(next(line for line in texts[0].splitlines() if line.startswith("RESULT "))[7:])


def packed():
    """Rows of pack_dataset as [[example, begin, end], ...]: each token is example * 1000 + place."""
    from datasets import Dataset
    from trl import pack_dataset
    numbers, out = random.Random(11), []
    for count, row in ((7, 10), (60, 16), (300, 33), (5, 4)):
        lengths = [numbers.randint(0, row * 3 // 2) for _ in range(count)]
        data = Dataset.from_dict({"input_ids": [[i * 1000 + k for k in range(n)] for i, n in enumerate(lengths)]})
        case = dict(lengths=lengths, row=row)
        for strategy in ("bfd", "bfd_split", "wrapped"):
            rows = []
            for ids in pack_dataset(data, row, strategy)["input_ids"]:
                parts = []
                for token in ids:
                    example, place = divmod(token, 1000)
                    if parts and parts[-1][0] == example and parts[-1][2] == place:
                        parts[-1][2] += 1
                    else:
                        parts.append([example, place, place + 1])
                rows.append(parts)
            case[strategy] = rows
        out.append(case)
    return out


def main():
    if len(sys.argv) > 1:
        return rank(int(sys.argv[1]))
    results = [run(world) for world in (1, 2, 4)]
    models = {}
    for result in results:
        models.update(result["models"])
    out = dict(rows=ROWS, accumulation=ACCUMULATION, steps=STEPS, rate=RATE, decay=DECAY, seed=SEED, added=ADDED, template=TEMPLATE, records=records(),
               models=models, runs=[r for result in results for r in result["runs"]])
    (HERE / "trl_runs.json").write_text(json.dumps(out).replace('}, {"name"', '},\n{"name"') + "\n")
    (HERE / "trl_packing.json").write_text(json.dumps(packed()).replace("}, {", "},\n{") + "\n")


if __name__ == "__main__":
    main()
