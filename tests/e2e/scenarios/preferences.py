"""Training on preferences against TRL's DPOTrainer itself: tests/oracles/dpo_runs.py."""
import json
import struct

from scenarios.fine_tuning import sft_flags, sft_tokenizer
from scenarios.trainer_parity import stored_model, unit
from support import close, refused, zero

METRICS = ("rewards/chosen", "rewards/rejected", "rewards/margins", "logps/chosen", "logps/rejected", "logits/chosen", "logits/rejected")


def stored_dpo_runs(b):
    return json.loads((b.source / "tests/oracles/dpo_runs.json").read_text())


def preference_flags(b, stored, form, model, name, **more):
    return sft_flags(b, stored, form, model, name, task="dpo", **more)


def stored_adapter(b, stored):
    """The adapter of the oracle: lora_A by its names, lora_B zero."""
    directory = b.work / "adapter"
    directory.mkdir()
    config = dict(peft_type="LORA", task_type="CAUSAL_LM", base_model_name_or_path="", bias="none", **stored["adapter"])
    (directory / "adapter_config.json").write_text(json.dumps(dict(config, lora_dropout=0.0)))
    header, data = {}, bytearray()
    for name, shape in sorted(stored["adapters"].items()):
        stream = 0xCBF29CE484222325
        for c in name.encode():
            stream = (stream ^ c) * 0x100000001B3 & (2**64 - 1)
        values = [0.25 * u if "lora_A" in name else 0.0 for u in unit(stream & 0x7FFFFFFF, shape[0] * shape[1])]
        header[name] = dict(dtype="F32", shape=shape, data_offsets=[len(data), len(data) + 4 * len(values)])
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    (directory / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return directory


def agree(got, want, bound, what):
    """The differences, relative to values above one: rewards are differences near zero."""
    close([1 + (x - y) / (1 + abs(y)) for x, y in zip(got, want)], [1.0] * len(want), bound, what)


def compare_preferences(b, stored, runs):
    models = {family: stored_model(b, family, of) for family, of in stored["models"].items()}
    adapter = stored_adapter(b, stored)
    for run in runs:
        ranks, arguments = run["ranks"], dict(run["arguments"])
        if run["name"] == "other_reference":
            arguments["ref_model_name_or_path"] = str(models["gpt2"])
        if run["name"] == "lora":
            arguments["adapter"] = str(adapter)
        stages = {1: (0, 2), 2: (1, 3), 4: (0, 3)}[ranks] if run["name"] == "sigmoid" else {1: (1,), 2: (3,)}[ranks]
        for stage in stages:
            name = f"{run['name']}_{run['family']}{ranks}_{stage}"
            b.train(ranks, preference_flags(b, stored, run["form"], models[run["family"]], name, do_eval=True, per_device_eval_batch_size=5,
                                            deepspeed=b.config(f"{stage}.json", zero(stage)), **arguments))
            steps = [m for m in b.metrics(name) if "loss" in m]
            # with a larger beta the rounding of the sums of log-probabilities shows
            close([m["loss"] for m in steps], run["loss"], 2e-6 * arguments.get("beta", 0.1) / 0.1, f"{name} losses")
            close([m["grad_norm"] for m in steps], run["grad_norm"], 1e-4, f"{name} norms")
            assert [m["rewards/accuracies"] for m in steps] == run["rewards/accuracies"], (name, [m["rewards/accuracies"] for m in steps])
            # in the last micro-step of an epoch, gather_for_metrics leaves out ranks; gather, of rewards and logps, does not
            whole = slice(0, 1) if ranks == 4 else slice(0, 2)
            for key in METRICS:
                of = whole if key.startswith("logits") else slice(None)
                agree([m[key] for m in steps[of]], run[key][of], 5e-6, f"{name} {key}")
            close([m["entropy"] for m in steps[whole]], run["entropy"][whole], 1e-5, f"{name} entropy")
            close([m["mean_token_accuracy"] for m in steps[whole]], run["mean_token_accuracy"][whole], 1e-6, f"{name} accuracy")
            assert [m["num_tokens"] for m in steps[whole]] == run["num_tokens"][whole], (name, [m["num_tokens"] for m in steps], run["num_tokens"])
            evaluation = json.loads((b.work / name / "all_results.json").read_text())
            close([evaluation["eval_loss"]], [run["evaluation"]["loss"]], 1e-5, f"{name} eval_loss")
            for key in METRICS[:5] + ("rewards/accuracies",):
                agree([evaluation["eval_" + key]], [run["evaluation"][key]], 1e-5, f"{name} eval_{key}")


def preferences_train_as_trl_does(b):
    """The loss sigmoid against a frozen copy of the model, on 1, 2 and 4 ranks in all stages."""
    stored = stored_dpo_runs(b)
    compare_preferences(b, stored, [r for r in stored["runs"] if r["name"] == "sigmoid"])


def losses_and_references_are_those_of_trl(b):
    """hinge, ipo and robust; prompts that both completions begin with; messages; truncation; the three other references."""
    stored = stored_dpo_runs(b)
    compare_preferences(b, stored, [r for r in stored["runs"] if r["name"] != "sigmoid"])


def references_agree_and_resume(b):
    """New adapters train against the model without them as against a frozen copy; precomputed log-probabilities change nothing; a resume is exact."""
    stored = stored_dpo_runs(b)
    model = stored_model(b, "llama", stored["models"]["llama"])
    lora = dict(use_peft_lora=True, lora_r=4, lora_alpha=8, lora_target_modules="q_proj,v_proj")

    def train(name, ranks=2, **more):
        done = b.train(ranks, preference_flags(b, stored, "preference", model, name, max_length=48, deepspeed=b.config("3.json", zero(3)), **more))
        return b.losses(name), done.stdout + done.stderr
    train("start", max_steps=1, learning_rate=0.0, **lora)
    without, log = train("without", lora_dropout=0.5, **lora)
    assert "reference model: the model without its adapters" in log and "preferences: chosen and rejected completions" in log, log
    copied, log = train("copied", adapter=b.work / "start")
    assert "with weights of its own" in log, log
    close(without, copied, 1e-6, "the model without adapters and a copy")
    live, _ = train("live")
    known, log = train("known", precompute_ref_log_probs=True)
    assert "until its log-probabilities are known" in log, log
    close(known, live, 1e-6, "precomputed")
    for more in (dict(), dict(precompute_ref_log_probs=True)):
        name = f"cut{len(more)}"
        train(name, save_strategy="steps", save_steps=2, max_steps=2, **more)
        got, _ = train(name, save_strategy="steps", save_steps=2, **more)
        close(got, live, 1e-6, f"resumed with {more}")
    bf16, _ = train("bf16", bf16=True)
    close(bf16, live, 2e-2, "bf16")
    refused(b, 78, preference_flags(b, stored, "preference", model, "wrong", ref_model_name_or_path=b.source / "configs/gpt2-8m"), "the reference model", "same tokenizer")


def recipes_train(b):
    """Every run file of configs/recipes, as written but for the model and the length, on a tiny model; DPO starts from the model that SFT has written."""
    stored = stored_dpo_runs(b)
    model = stored_model(b, "llama", stored["models"]["llama"])
    tokenizer = sft_tokenizer(b, stored)
    folders = sorted(f.parent.name for f in (b.source / "configs/recipes").glob("*/run.json"))
    assert {"dpo", "sft-chat"} <= set(folders) and all((b.source / "configs/recipes" / f / "README.md").exists() for f in folders), folders
    for folder in sorted(folders, key=lambda f: f == "dpo"):
        start = b.work / "sft-chat" if folder == "dpo" else model
        b.train(2, [str(b.source / f"configs/recipes/{folder}/run.json"), "--model_name_or_path", str(start), "--tokenizer_name", str(tokenizer), "--max_length", "63",
                    "--output_dir", str(b.work / folder), "--max_steps", "3", "--logging_steps", "1"], cwd=b.source)
        losses = b.losses(folder)
        assert len(losses) == 3 and all(0 < x < 20 for x in losses), (folder, losses)
