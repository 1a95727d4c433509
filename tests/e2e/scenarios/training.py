"""Training end to end: stages, rank counts, precision, logs, generation."""
import json
import math
import re
import shutil

from gpt2_reference import Gpt2, ascii_text
from support import TINY, close, zero


def stages_agree(b):
    reference = None
    for stage in range(4):
        config = b.config(f"ds{stage}.json", zero(stage))
        b.train(2, b.common(f"s{stage}", per_device_train_batch_size=4, deepspeed=config))
        losses = b.losses(f"s{stage}")
        reference = reference or losses
        close(losses, reference, 1e-6, f"stage {stage} against stage 0")
    assert reference[-1] < reference[0] - 0.5, "the model learns nothing"


def rank_counts_agree(b):
    for stage in (2, 3):
        config = b.config(f"ds{stage}.json", zero(stage))
        for ranks in (1, 2, 3, 4):
            b.train(ranks, b.common(f"n{ranks}", per_device_train_batch_size=12 // ranks, deepspeed=config))
            close(b.losses(f"n{ranks}"), b.losses("n1"), 1e-6, f"stage {stage}: {ranks} ranks against one")
            if ranks > 1:
                shutil.rmtree(b.work / f"n{ranks}")
        shutil.rmtree(b.work / "n1")


def batch_layouts_agree(b):
    for sampling in ("sequential", "random"):
        for ranks, rows, accumulation in ((1, 8, 1), (2, 4, 1), (4, 1, 2), (1, 2, 4)):
            name = f"{sampling}_{ranks}_{rows}_{accumulation}"
            b.train(ranks, b.common(name, per_device_train_batch_size=rows, gradient_accumulation_steps=accumulation, train_sampling_strategy=sampling))
            close(b.losses(name), b.losses(f"{sampling}_1_8_1"), 2e-6, name)


def mixed_precision(b):
    b.train(1, b.common("fp32"))
    for dtype in ("bf16", "fp16"):
        for stage in (0, 2, 3):
            section = {"enabled": True} if dtype == "bf16" else {"enabled": True, "initial_scale_power": 12}
            config = b.config(f"{dtype}{stage}.json", zero(stage, **{dtype: section}))
            name = f"{dtype}_{stage}"
            b.train(2, b.common(name, per_device_train_batch_size=4, deepspeed=config, **{dtype: True}))
            close(b.losses(name), b.losses("fp32"), 2e-2, f"{dtype} stage {stage} against fp32")


def checkpointed_activations(b):
    for name, on in (("plain", None), ("recomputed", True)):
        b.train(2, b.common(name, per_device_train_batch_size=4, gradient_checkpointing=on, config_overrides=TINY.replace("pdrop=0.0", "pdrop=0.1")))
    assert b.losses("plain") == b.losses("recomputed"), "activation checkpointing changes the losses"


def learns(b):
    b.train(2, b.common("run", per_device_train_batch_size=4, max_steps=60, do_eval=True, eval_on_start=True, eval_strategy="steps", eval_steps=30))
    evals = [m["eval_loss"] for m in b.metrics("run") if "eval_loss" in m]
    print("evaluation losses", evals)
    assert len(evals) == 3 and evals[-1] < 2.0 < evals[0]
    results = json.loads((b.work / "run/all_results.json").read_text())
    assert math.isclose(results["perplexity"], math.exp(results["eval_loss"]), rel_tol=1e-9) and "train_loss" in results
    assert b.status("run")["state"] == "done" and b.status("run")["exit_code"] == 0
    b.tool(["plot", b.work / "run"])
    assert "<polyline" in (b.work / "run/loss.svg").read_text()


def evaluation_is_exact(b):
    values = []
    for ranks in (1, 2, 3, 4):
        b.train(ranks, b.common(f"e{ranks}", do_train=None, do_eval=True, per_device_eval_batch_size=5))
        values.append(json.loads((b.work / f"e{ranks}/eval_results.json").read_text())["eval_loss"])
    close(values, values[:1] * 4, 1e-6, "evaluation on 1, 2, 3 and 4 ranks")


def memory_follows_the_formula(b):
    """Model states as the log states them, against the ZeRO paper (section 3 and 5) with the parameters counted from GPT-2's shapes."""
    width, layers, vocabulary, positions, ranks = 256, 2, 4096, 64, 2
    parameters = (vocabulary + positions) * width + layers * (12 * width ** 2 + 13 * width) + 2 * width
    mib = re.compile(r"model states per rank: ([\d.]+) MiB \(weights ([\d.]+) MiB, gradients ([\d.]+) MiB, master weights ([\d.]+) MiB, "
                     r"optimizer states ([\d.]+) MiB; stage formula ([\d.]+) MiB\)")
    for stage in range(4):
        config = b.config(f"ds{stage}.json", zero(stage, bf16={"enabled": True}))
        done = b.train(ranks, b.common(f"m{stage}", config_overrides=TINY.replace("n_embd=32", f"n_embd={width}"), per_device_train_batch_size=4,
                                       deepspeed=config, bf16=True, max_steps=1))
        assert f"{parameters:,} parameters" in done.stderr, done.stderr
        stated = [float(value) for value in mib.search(done.stderr).groups()]
        weights, gradients = 2 / (ranks if stage == 3 else 1), 2 / (ranks if stage >= 2 else 1)
        master, states = 4 / (ranks if stage >= 1 else 1), 8 / (ranks if stage >= 1 else 1)
        total = weights + gradients + master + states
        for value, per_parameter in zip(stated, (total, weights, gradients, master, states, total)):
            expected = parameters * per_parameter / 2 ** 20
            assert abs(value - expected) < 0.051 + 1e-3 * expected, (stage, stated, expected)  # rounding to 0.1, padding of units


# --- checkpoints ------------------------------------------------------------------------------------------------------------------


def generation(b):
    """Greedy decoding, on one rank and on two, against the exported model in plain Python."""
    prompt, new_tokens = "the hacker", 12
    tokenizer = b.source / "configs/gpt2-8m"
    prompt_tokens = [int(t) for t in b.tool(["tokenize", tokenizer, prompt]).stdout.split()]
    for ranks in (1, 2):
        run = f"run{ranks}"
        done = b.train(ranks, b.common(run, max_steps=80, do_generate=True, prompt=prompt, max_new_tokens=new_tokens, temperature=0,
                                       per_device_train_batch_size=8 // ranks, deepspeed=b.config("ds.json", zero(3))))
        tokens, lead = Gpt2(b.work / run).greedy(prompt_tokens, new_tokens, end=-1)
        expected = ascii_text(tokenizer, tokens)
        print(f"{ranks} ranks: {done.stdout!r}, smallest lead of a logit {lead:.2e}")
        assert done.stdout == expected + "\n", (done.stdout, expected, lead)
        assert any(verb in expected for verb in ("reads", "breaks", "rewrites", "forgets", "compiles")), expected


def printed_config(b):
    done = b.train(2, b.common("none", deepspeed=b.config("ds.json", zero(2)), per_device_train_batch_size=4) + ["--print_config"])
    shown = json.loads(done.stdout)
    assert shown["stage"] == {"value": 2, "origin": "deepspeed"} and shown["train_batch_size"]["value"] == 8, shown
    assert not (b.work / "none").exists(), "printing the configuration makes an output directory"


def log_files(b):
    b.train(2, b.common("run", log_dir=str(b.work / "logs"), per_device_train_batch_size=4))
    assert sorted(p.name for p in (b.work / "logs").iterdir()) == ["rank_00000.log", "rank_00001.log"]
    assert "ZeRO stage 0 on 2 ranks" in (b.work / "logs/rank_00000.log").read_text()
    done = b.train(1, b.common("none", log_dir=str(b.work / "text.txt")), expect=74)
    assert "--log_dir" in done.stderr and not (b.work / "none/metrics.jsonl").exists(), done.stderr


def run_file(b):
    document = dict(model_type="gpt2", config_overrides=TINY, tokenizer_name=str(b.source / "configs/gpt2-8m"), train_file=str(b.text), block_size=32,
                    output_dir=str(b.work / "file"), do_train=True, per_device_train_batch_size=8, max_steps=3, learning_rate=1e-2, seed=7,
                    save_strategy="no", train_sampling_strategy="sequential", deepspeed=zero(1))
    b.train(1, [b.config("run.json", document)])
    b.train(1, b.common("flags", max_steps=3, deepspeed=b.config("ds.json", zero(1))))
    assert b.losses("file") == b.losses("flags")
    b.train(1, [b.config("run.json", document), "--max-steps", "2", "--output-dir=" + str(b.work / "override")])
    assert len(b.losses("override")) == 2


# --- other programs' files --------------------------------------------------------------------------------------------------------
