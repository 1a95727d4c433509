"""Generation by the real program: prompts of a file, sampling, stop strings, wrong input; weights of checkpoints without training states."""
import json
import re

from support import zero


def records(text):
    return [json.loads(line) for line in text.splitlines()]


def trained(b, **flags):
    b.train(1, b.common("run", max_steps=60, save_strategy="steps", save_steps=60, **flags))
    return b.work / "run"


def generating(b, run, **flags):
    """Command line that continues prompts with the model in a directory."""
    chosen = dict(model_type=None, config_overrides=None, train_file=None, block_size=None, do_train=None, max_steps=None, learning_rate=None,
                  logging_steps=None, save_strategy=None, train_sampling_strategy=None, per_device_train_batch_size=None, tokenizer_name=None,
                  model_name_or_path=run, do_generate=True)
    return b.common("generated", **dict(chosen, **flags))


def prompts_of_a_file(b):
    """Generated lines are equal for every number of ranks and every stage; each as if its prompt were given by itself."""
    run = trained(b)
    prompts = ["the hacker", "a", "every user reads the old", "the system", "the network"]
    (b.work / "prompts.txt").write_text("\n".join(prompts) + "\n")
    (b.work / "prompts.jsonl").write_text("".join(json.dumps({"prompt": p}) + "\n" for p in prompts))
    common = dict(max_new_tokens=8, per_device_eval_batch_size=2)
    for sampling in (dict(temperature=0), dict(temperature=0.9, top_p=0.9, top_k=0, repetition_penalty=1.2)):
        first = b.train(1, generating(b, run, prompt_file=b.work / "prompts.txt", **common, **sampling)).stdout
        lines = records(first)
        assert [r["prompt"] for r in lines] == prompts and all(r["new_tokens"] == 8 and r["finish_reason"] == "length" for r in lines), lines
        for ranks, stage in ((1, 3), (2, 0), (2, 3), (3, 3)):
            other = b.train(ranks, generating(b, run, prompt_file=b.work / "prompts.jsonl", deepspeed=b.config("ds.json", zero(stage)),
                                              **common, **sampling)).stdout
            assert other == first, (ranks, stage, other, first)
        if sampling["temperature"] == 0:
            for prompt, record in zip(prompts, lines):
                single = b.train(1, generating(b, run, prompt=prompt, **common, **sampling)).stdout
                assert single == prompt + record["text"] + "\n", (single, record)
    other_seed = b.train(1, generating(b, run, prompt_file=b.work / "prompts.txt", **common, **sampling, seed=8)).stdout
    assert other_seed != first


def text_ends_at_stop_strings_and_eos(b):
    run = trained(b)
    words = dict(temperature=0, max_new_tokens=12)
    free = b.train(1, generating(b, run, prompt="the hacker", **words)).stdout.rstrip("\n")
    stop = free[len("the hacker") + 6:len("the hacker") + 9]
    cut = free[:free.index(stop, len("the hacker"))]
    done = b.train(2, generating(b, run, prompt="the hacker", stop_strings=stop, **words))
    assert done.stdout == cut + "\n", (done.stdout, free, stop)
    (b.work / "p.jsonl").write_text('{"prompt": "the hacker"}\n')
    record = records(b.train(1, generating(b, run, prompt_file=b.work / "p.jsonl", stop_strings=stop, **words)).stdout)[0]
    assert record["finish_reason"] == "stop" and "the hacker" + record["text"] == cut, record
    tokens = [int(t) for t in b.tool(["tokenize", run, free]).stdout.split()]
    (run / "generation_config.json").write_text(json.dumps({"eos_token_id": [tokens[-3], 4095]}))
    record = records(b.train(1, generating(b, run, prompt_file=b.work / "p.jsonl", **words)).stdout)[0]
    assert record["finish_reason"] == "eos" and record["new_tokens"] < 12, record


def wrong_prompts(b):
    run = trained(b)
    (b.work / "empty.txt").write_text("\n")
    (b.work / "broken.jsonl").write_text('{"prompt": "a"}\n{"question": "b"}\n')
    (b.work / "long.txt").write_text("the hacker " * 200 + "\n")
    for flags, code, part in ((dict(prompt_file=b.work / "missing.txt"), 74, "missing.txt"),
                              (dict(prompt_file=b.work / "empty.txt"), 65, "has no prompts"),
                              (dict(prompt_file=b.work / "broken.jsonl"), 65, "line 2"),
                              (dict(prompt_file=b.work / "long.txt"), 65, "shorten the prompt"),
                              (dict(prompt="a", prompt_file=b.work / "long.txt"), 64, "--prompt and --prompt_file"),
                              (dict(prompt="a", top_p=1.5), 64, "top_p"),
                              (dict(prompt="a", min_p=-1), 64, "min_p"),
                              (dict(prompt="a", repetition_penalty=0), 64, "repetition_penalty")):
        done = b.train(2, generating(b, run, **flags), expect=code)
        assert part in done.stderr, (flags, done.stderr)
    few = b.train(1, generating(b, run, prompt="the hacker", max_new_tokens=1000000, temperature=0))
    assert re.search(r"has \d+ positions: at most \d+ new tokens", few.stderr), few.stderr


def evaluation_allocates_weights_only(b):
    """--do_eval, --do_predict and --do_generate of a checkpoint: no gradients, master weights and optimizer states."""
    stated = re.compile(r"weights ([\d.]+ \w+), gradients ([\d.]+ \w+), master weights ([\d.]+ \w+), optimizer states ([\d.]+ \w+);")
    run = trained(b, do_eval=True, bf16=True, deepspeed=b.config("ds2.json", zero(2)))
    expected = json.loads((run / "eval_results.json").read_text())["eval_loss"]
    for stage, ranks in ((0, 1), (3, 2)):
        words = b.common("evaluated", do_train=None, do_eval=True, do_predict=True, test_file=b.text, do_generate=True, prompt="the", bf16=True,
                         max_new_tokens=3, resume_from_checkpoint=run / "checkpoints/step_00000060", deepspeed=b.config("ds.json", zero(stage)))
        done = b.train(ranks, words)
        weights, *others = stated.search(done.stderr).groups()
        assert others == ["0 B"] * 3 and weights != "0 B", done.stderr
        results = json.loads((b.work / "evaluated/all_results.json").read_text())
        assert abs(results["eval_loss"] - expected) < 1e-3 and results["predict_samples"] > 0, (results, expected)
        assert "step 60" in done.stderr and not (b.work / "evaluated/checkpoints").exists(), done.stderr
    b.train(1, b.common("none", do_train=None, do_eval=True, resume_from_checkpoint=b.work / "missing"), expect=74)
    b.train(1, b.common("none", do_train=None, do_eval=True, resume_from_checkpoint="true"), expect=74)
    b.train(1, b.common("none", do_train=None, do_predict=True), expect=64)
