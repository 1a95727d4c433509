"""Supervised fine-tuning against TRL's SFTTrainer itself: tests/oracles/trl_runs.py."""
import json

from scenarios.trainer_parity import stored_model
from support import close, refused, zero


def stored_trl_runs(b):
    return json.loads((b.source / "tests/oracles/trl_runs.json").read_text())


def sft_tokenizer(b, stored):
    """The directory that the oracle writes."""
    directory = b.work / "tokenizer"
    if not directory.exists():
        directory.mkdir()
        tree = json.loads((b.source / "tests/data/vectors/tokenizer/narrow/tokenizer.json").read_text())
        tree["added_tokens"] = [dict(id=331 + i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
                                for i, t in enumerate(stored["added"])]
        (directory / "tokenizer.json").write_text(json.dumps(tree))
        config = dict(tokenizer_class="PreTrainedTokenizerFast", eos_token=stored["added"][0], pad_token=stored["added"][0], chat_template=stored["template"])
        (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def sft_flags(b, stored, form, model, name, **more):
    file = b.work / f"{form}.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in stored["records"][form]))
    chosen = dict(model_type=None, config_overrides=None, model_name_or_path=str(model), train_file=str(file), validation_file=str(file),
                  tokenizer_name=str(sft_tokenizer(b, stored)), block_size=None, task="sft", max_steps=stored["steps"],
                  per_device_train_batch_size=stored["rows"], gradient_accumulation_steps=stored["accumulation"], learning_rate=stored["rate"],
                  weight_decay=stored["decay"], lr_scheduler_type="constant", seed=stored["seed"], train_sampling_strategy=None)
    return b.common(name, **dict(chosen, **more))


def trl_arguments(run):
    """TRL's arguments as flags."""
    out = {k: v if v is not None else 0 for k, v in run["arguments"].items()}
    return {k: "false" if v is False else v for k, v in out.items()}


def compare_with_trl(b, stored, runs):
    models = {}
    for run in runs:
        model = models.get(run["family"]) or stored_model(b, run["family"], stored["models"][run["family"]])
        models[run["family"]] = model
        ranks = run["ranks"]
        stages = {1: (0, 2), 2: (1, 3), 4: (0, 3)}[ranks] if run["name"] == "completion" else {1: (1,), 2: (3,), 4: (2,)}[ranks]
        for stage in stages:
            name = f"{run['name']}_{run['family']}{ranks}_{stage}"
            b.train(ranks, sft_flags(b, stored, run["form"], model, name, **trl_arguments(run), deepspeed=b.config(f"{stage}.json", zero(stage))))
            steps = [m for m in b.metrics(name) if "loss" in m]
            close([m["loss"] for m in steps], run["losses"], 2e-6, f"{name} losses")
            close([m["grad_norm"] for m in steps], run["norms"], 1e-4, f"{name} norms")
            # in the last micro-step of an epoch, that of each second step here, gather_for_metrics leaves out the last rank
            whole, before = (slice(0, None, 2), slice(0, 1)) if ranks == 4 or run["name"] == "pair_of_chats" else (slice(None), slice(None))
            close([m["entropy"] for m in steps[whole]], run["entropy"][whole], 1e-5, f"{name} entropy")
            close([m["mean_token_accuracy"] for m in steps[whole]], run["accuracy"][whole], 1e-6, f"{name} accuracy")
            assert [m["num_tokens"] for m in steps[before]] == run["tokens"][before], (name, [m["num_tokens"] for m in steps], run["tokens"])


def prompts_train_as_trl_does(b):
    """Completion-only loss with uneven masks and accumulation, on 1, 2 and 4 ranks in all stages; the loss on all tokens; truncation; text with dft."""
    stored = stored_trl_runs(b)
    compare_with_trl(b, stored, [r for r in stored["runs"] if r["name"] in ("completion", "full_pair", "truncated", "text_dft")])


def chats_train_as_trl_does(b):
    """Messages, ShareGPT's conversations, prompts and completions of messages, and the loss on the assistant's messages."""
    stored = stored_trl_runs(b)
    compare_with_trl(b, stored, [r for r in stored["runs"] if r["name"] in ("chat", "share_gpt", "assistant", "pair_of_chats", "bfd_split")])


def packed_rows_train_as_trl_does(b):
    """The three strategies of packing and batches without padding."""
    stored = stored_trl_runs(b)
    names = ("bfd", "wrapped", "padding_free")
    compare_with_trl(b, stored, [r for r in stored["runs"] if r["name"] in names])


def examples_are_logged_evaluated_and_resumed(b):
    """The form with two examples is in the log; evaluations count the same tokens; a resume continues exactly; other options are refused."""
    stored = stored_trl_runs(b)
    model = stored_model(b, "llama", stored["models"]["llama"])

    def words(name, **more):
        return sft_flags(b, stored, "prompt_completion", model, name, max_length=32, packing=True, do_eval=True, **more)
    done = b.train(1, words("full"))
    log = done.stdout + done.stderr
    assert "prompt and completion, loss on the completion" in log and log.count(" in the loss: ") >= 2, log
    assert "mean_token_accuracy" in log and "% padding" in log, log
    results = json.loads((b.work / "full/all_results.json").read_text())
    assert results["eval_mean_token_accuracy"] == results["eval_accuracy"] and results["eval_entropy"] > 0, results
    b.train(2, words("cut", save_strategy="steps", save_steps=2, max_steps=2, per_device_eval_batch_size=3))
    b.train(2, words("cut", save_strategy="steps", save_steps=2, per_device_eval_batch_size=3))
    b.train(2, words("whole", per_device_eval_batch_size=3))
    assert b.losses("cut") == b.losses("whole"), (b.losses("cut"), b.losses("whole"))
    refused(b, 64, words("wrong", block_size=16), "--block_size is an option of packed text", "use --max_length")
    refused(b, 64, b.common("wrong", packing=True), "--packing is an option of supervised fine-tuning", "add --task sft")
    refused(b, 78, sft_flags(b, stored, "text", model, "wrong", completion_only_loss=True), "--completion_only_loss needs prompt and completion", "leave it out")
    refused(b, 78, sft_flags(b, stored, "prompt_completion", model, "wrong", max_length=0, pad_to_multiple_of=1, eos_token="nonsense"), "--eos_token is nonsense", "no token")
