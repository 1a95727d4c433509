"""Threads that load samples ahead, and tokenizers of other kinds than BPE in complete runs."""
import json

from support import zero


def samples_loaded_ahead(b):
    """Threads that load ahead change no loss, also after a resume on another number of ranks; the time spent waiting for samples is in the metrics."""
    options = dict(per_device_train_batch_size=4, save_strategy="steps", save_steps=4, train_sampling_strategy="random", gradient_accumulation_steps=2)
    for steps in (4, 8):
        b.train(2, b.common("none", **dict(options, max_steps=steps)))
    b.train(2, b.common("ahead", **dict(options, max_steps=4, dataloader_num_workers=2, dataloader_prefetch_factor=3)))
    assert b.losses("ahead") == b.losses("none")[:4], (b.losses("ahead"), b.losses("none"))
    b.train(1, b.common("ahead", **dict(options, max_steps=8, per_device_train_batch_size=8, dataloader_num_workers=1)))
    assert all(abs(x - y) < 1e-5 for x, y in zip(b.losses("ahead"), b.losses("none"))) and len(b.losses("ahead")) == 8, (b.losses("ahead"), b.losses("none"))
    lines = [json.loads(line) for line in (b.work / "ahead/metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line and "grad_norm" in line]
    assert len(steps) >= 8 and all(0 < s["data_seconds"] < s["seconds"] for s in steps), steps
    done = b.train(1, b.common("bad", dataloader_prefetch_factor=3), expect=64)
    assert "--dataloader_num_workers" in done.stderr, done.stderr


def other_tokenizers(b):
    """Unigram and WordPiece train, and the trained model's directory holds the tokenizer."""
    vectors = b.source / "tests/data/vectors/tokenizer_models"
    for kind in ("t5", "bert"):
        b.train(1, b.common(kind, tokenizer_name=str(vectors / kind), max_steps=2))
        assert (b.work / kind / "tokenizer.json").read_bytes() == (vectors / kind / "tokenizer.json").read_bytes()
        assert len(b.losses(kind)) == 2


def gathers_for_the_next_step(b):
    """Weights that are gathered while others are updated, at stage 3 for the next pass: the losses of runs that gather at the begin of a step, with
    several micro-steps, evaluations, threads that load ahead and a resume."""
    for stage in (1, 3):
        runs = {}
        for overlaps in (False, True):
            name = f"{'ahead' if overlaps else 'at_begin'}{stage}"
            keys = {"stage": stage, "overlap_comm": overlaps, "stage3_prefetch_bucket_size": 1000}
            ds = b.config(f"{name}.json", zero(stage, zero_optimization=keys))
            options = dict(deepspeed=ds, per_device_train_batch_size=2, gradient_accumulation_steps=2, save_strategy="steps", save_steps=4,
                           do_eval=True, eval_strategy="steps", eval_steps=3, max_eval_samples=8, train_sampling_strategy="random")
            for steps in (4, 8):
                b.train(2, b.common(name, **dict(options, max_steps=steps, dataloader_num_workers=int(overlaps))))
            runs[overlaps] = [(m.get("loss"), m.get("eval_loss")) for m in b.metrics(name)]
        assert runs[True] == runs[False] and len(runs[True]) > 8, (stage, runs)
