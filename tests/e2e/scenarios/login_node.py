"""The tools of a login node: what they check, print and refuse before a job starts."""
import json

from support import zero


def config_check_takes_any_part(b):
    """A DeepSpeed JSON, a run file, options, or both; what cannot work ends as it would in a run."""
    ds = b.config("ds.json", zero(2, bf16={"enabled": True}, gradient_clipping=0.5))
    alone = b.tool(["config", "check", ds])
    resolved = json.loads(alone.stdout)
    assert resolved["stage"] == {"value": 2, "origin": "deepspeed"} and resolved["max_grad_norm"] == {"value": 0.5, "origin": "deepspeed"}, resolved
    assert resolved["micro_batch_size"] == {"value": 8, "origin": "default"} and resolved["train_batch_size"]["value"] == 8, resolved
    assert alone.stderr == "", alone.stderr

    both = json.loads(b.tool(["config", "check", ds, "--world-size", 16, "--", "--per_device_train_batch_size", "4"]).stdout)
    assert both["train_batch_size"]["value"] == 64 and both["micro_batch_size"] == {"value": 4, "origin": "flag"} and both["stage"]["value"] == 2, both
    options = b.tool(["config", "check", "--ranks", 2, "--", "--learning_rate", "3e-4"])
    assert json.loads(options.stdout)["learning_rate"] == {"value": 3e-4, "origin": "flag"}
    assert options.stderr.startswith("note: a run needs more: nothing to do"), options.stderr

    run_file = b.config("run.json", {"model_type": "gpt2", "tokenizer_name": "t", "train_file": "text", "do_train": True, "warmup_steps": 7, "deepspeed": zero(3)})
    for words in (["config", "check", run_file], ["config", "check", "--", run_file]):
        run = json.loads(b.tool(words).stdout)
        assert run["warmup_steps"] == {"value": 7.0, "origin": "run file"} and run["stage"]["value"] == 3, run

    # sizes that follow the model: its rule without a model, its number with one
    sizes = b.config("auto.json", {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}})
    assert json.loads(b.tool(["config", "check", sizes]).stdout)["reduce_bucket_size"] == {"value": "auto: hidden size * hidden size", "origin": "derived"}
    assert json.loads(b.tool(["config", "check", sizes, "--hidden_size", 100]).stdout)["reduce_bucket_size"]["value"] == 10000
    tiny = ["--", "--model_type", "gpt2", "--config_overrides", "n_embd=32,n_head=2"]
    assert json.loads(b.tool(["config", "check", sizes] + tiny).stdout)["param_persistence_threshold"]["value"] == 320

    for code, words, text in ((64, [], "nothing to check"),
                              (64, [ds, "--", "--do_train"], "no model"),
                              (64, [ds, "--ranks", 0], "--ranks"),
                              (64, [ds, "--", "--learning_rat", "1"], "learning_rate"),
                              (64, [ds, "--", "--deepspeed", ds], "--deepspeed"),
                              (74, [b.work / "missing.json"], "missing.json"),
                              (65, [b.config("list.json", [1])], "list.json"),
                              (78, [b.config("typo.json", zero(2, gradient_cliping=1.0))], "gradient_clipping"),
                              (78, [b.config("batch.json", zero(2, train_batch_size=17)), "--ranks", 2], "17")):
        refused = b.tool(["config", "check"] + words, expect=code)
        assert text in refused.stderr and refused.stdout == "" and refused.stderr.count("\n") == 1, (words, refused)
