"""DoRA, modules that train in full next to adapters, and initial adapters, by the real programs; PEFT loads and merges what they write."""
import array
import json
import shutil

from scenarios.adapters import LORA, adapting, base_model, evaluated, losses_are_close_in_16_bits
from support import close, refused, safetensors, write_safetensors, zero

DORA = dict(LORA, use_dora=True, lora_modules_to_save="wte,ln_f")
SAVED = ["base_model.model.transformer.ln_f.bias", "base_model.model.transformer.ln_f.weight", "base_model.model.transformer.wte.weight"]
HEAD = "base_model.model.lm_head.weight"  # that of the tied model: a copy of the last of these


def tensor_floats(tensor):
    kind, _, data = tensor
    assert kind == "F32", kind
    return array.array("f", data)


def dora_and_modules_train_alike_everywhere(b):
    """Losses are equal on any number of ranks and stage. The first one is that of the base: magnitudes start at the norms of its rows."""
    base = base_model(b)
    b.train(1, adapting(b, base, "plain", **LORA))
    runs = []
    for ranks, stage in ((1, 0), (2, 0), (2, 1), (2, 2), (2, 3), (4, 3)):
        name = f"{ranks}_{stage}"
        b.train(ranks, adapting(b, base, name, **DORA, per_device_train_batch_size=8 // ranks, deepspeed=b.config("ds.json", zero(stage))))
        runs.append(b.losses(name))
        close(runs[-1], runs[0], 2e-6, name)
    close(runs[0][:1], b.losses("plain")[:1], 2e-6, "the first step")
    assert runs[0][-1] < runs[0][0] and runs[0] != b.losses("plain"), runs[0]

    tensors = safetensors(b.work / "2_3/adapter_model.safetensors")
    assert [name for name in sorted(tensors) if "lora_" not in name] == [HEAD] + SAVED, sorted(tensors)
    assert tensors[HEAD] == tensors[SAVED[-1]], "the head is not tied"
    magnitudes = [name for name in tensors if name.endswith(".lora_magnitude_vector")]
    assert len(magnitudes) == 2 * 4, magnitudes
    assert tensors["base_model.model.transformer.h.1.mlp.c_proj.lora_magnitude_vector"][1] == [32], tensors.keys()
    config = json.loads((b.work / "2_3/adapter_config.json").read_text())
    assert config["use_dora"] and config["ensure_weight_tying"] and config["init_lora_weights"] is True, config
    assert config["modules_to_save"] == ["wte", "ln_f", "lm_head"], config
    before = safetensors(base / "model.safetensors")
    for name in SAVED:
        assert tensors[name][2] != before[name.removeprefix("base_model.model.")][2], f"{name} did not train"

    losses_are_close_in_16_bits(b, base, DORA, runs[0])


def dora_and_modules_resume_anywhere(b):
    base = base_model(b)
    for stage, dropout in ((0, 0.0), (3, 0.1)):
        words = dict(DORA, lora_dropout=dropout, init_lora_weights="gaussian", max_steps=8, save_strategy="steps", save_steps=4,
                     per_device_train_batch_size=4, deepspeed=b.config("ds.json", zero(stage)))
        b.train(2, adapting(b, base, "complete", **words))
        for name, ranks, other in (("same", 2, stage), ("other", 4, 3 - stage), ("one", 1, 1)):
            shutil.copytree(b.work / "complete", b.work / name)
            shutil.rmtree(b.work / name / "checkpoints/step_00000008")
            again = dict(words, per_device_train_batch_size=8 // ranks, deepspeed=b.config("ds.json", zero(other)))
            done = b.train(ranks, adapting(b, base, name, **again))
            assert "step_00000004" in done.stderr, done.stderr
            close(b.losses(name), b.losses("complete"), 0 if name == "same" else 2e-6, f"{name}, stage {stage}")
        without = dict(words, use_dora=None, max_steps=9)
        done = b.train(2, adapting(b, base, "same", **without), expect=78)
        assert "give --use_dora" in done.stderr, done.stderr
        for name in ("complete", "same", "other", "one"):
            shutil.rmtree(b.work / name)


def dora_on_codes_starts_at_the_base(b):
    """On a base of codes the magnitudes are the norms of the decoded matrices: the first loss is that of plain adapters."""
    base = base_model(b)
    for kind in (dict(load_in_4bit=True), dict(load_in_4bit=True, bnb_4bit_use_double_quant=True), dict(load_in_8bit=True)):
        tag = "_".join(kind)
        b.train(1, adapting(b, base, tag, **LORA, **kind))
        runs = []
        for ranks, stage in ((1, 0), (2, 2), (2, 3)):
            name = f"{tag}_{ranks}_{stage}"
            b.train(ranks, adapting(b, base, name, **LORA, use_dora=True, **kind, per_device_train_batch_size=8 // ranks,
                                    deepspeed=b.config("ds.json", zero(stage))))
            runs.append(b.losses(name))
            close(runs[-1], runs[0], 2e-6, name)
        close(runs[0][:1], b.losses(tag)[:1], 2e-6, f"{tag}: the first step")
        assert runs[0] != b.losses(tag), "magnitudes do not train"


def dora_and_modules_are_evaluated_and_merged(b):
    base = base_model(b)
    b.train(1, adapting(b, base, "run", **DORA, max_steps=20, save_strategy="steps", save_steps=20, do_eval=True, validation_file=b.text))
    want = json.loads((b.work / "run/eval_results.json").read_text())["eval_loss"]
    for ranks, stage in ((1, 0), (2, 3)):
        got = evaluated(b, f"eval_{ranks}", ranks, base, adapter=b.work / "run", deepspeed=b.config("ds.json", zero(stage)))
        close([got], [want], 2e-6, f"--adapter on {ranks} ranks")
    b.tool(["merge", base, b.work / "run", b.work / "merged"])
    close([evaluated(b, "eval_merged", 2, b.work / "merged")], [want], 2e-6, "the merged model")
    assert set(safetensors(b.work / "merged/model.safetensors")) == set(safetensors(base / "model.safetensors"))
    b.tool(["export", b.work / "run", b.work / "exported"])
    assert safetensors(b.work / "exported/adapter_model.safetensors") == safetensors(b.work / "run/adapter_model.safetensors")
    b.train(2, adapting(b, base, "continued", adapter=b.work / "run", max_steps=3, per_device_train_batch_size=4))
    assert b.losses("continued")[0] < b.losses("run")[0] - 0.01, (b.losses("continued"), b.losses("run"))

    tensors = safetensors(b.work / "run/adapter_model.safetensors")
    del tensors[SAVED[0]]
    shutil.copytree(b.work / "run", b.work / "part")
    write_safetensors(b.work / "part/adapter_model.safetensors", tensors)
    done = b.tool(["merge", base, b.work / "part", b.work / "none"], expect=65)
    assert "lacks base_model.model.transformer.ln_f.bias" in done.stderr, done.stderr

    tensors = safetensors(b.work / "run/adapter_model.safetensors")
    kind, shape, data = tensors.pop(HEAD)
    for head, part in (({}, f"lacks {HEAD}"), ({HEAD: (kind, shape, bytes(len(data)))}, f"has other values of {HEAD}")):
        write_safetensors(b.work / "part/adapter_model.safetensors", tensors | head)
        for done in (b.tool(["merge", base, b.work / "part", b.work / "none"], expect=65),
                     b.train(1, adapting(b, base, "refused", adapter=b.work / "part"), expect=65)):
            assert part in done.stderr and "trained apart" in done.stderr, done.stderr


def peft_merges_dora_and_modules(b):
    """PEFT's merge_and_unload() of the files of a run gives the weights of tessera merge. Skipped where peft is not installed."""
    try:
        import torch
        from peft import PeftModel
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        print(f"SKIPPED: {error}")
        raise SystemExit(77)
    base = base_model(b)
    for name, words in (("dora", DORA), ("modules", dict(LORA, lora_modules_to_save="wpe")), ("gaussian", dict(LORA, init_lora_weights="gaussian"))):
        b.train(1, adapting(b, base, name, **words))
        b.tool(["merge", base, b.work / name, b.work / f"{name}_merged"])
        ours = safetensors(b.work / f"{name}_merged/model.safetensors")
        loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), b.work / name)
        theirs = loaded.merge_and_unload().state_dict()
        for tensor, value in ours.items():
            other = theirs[tensor].flatten().tolist()
            assert max(abs(x - y) for x, y in zip(tensor_floats(value), other)) < 1e-5, (name, tensor)
        head = theirs["lm_head.weight"].flatten().tolist()
        assert max(abs(x - y) for x, y in zip(tensor_floats(ours["transformer.wte.weight"]), head)) < 1e-5, f"{name}: the head is not tied"


def preferences_with_modules_refer_to_the_base(b):
    """The reference has the modules of the base, not those that train: rewards are zero in the first step only."""
    base = base_model(b)
    lines = [line for line in b.text.read_text().splitlines() if len(line) > 12][:16]
    records = [dict(prompt=a[:8], chosen=a[8:], rejected=z[:9]) for a, z in zip(lines, reversed(lines))]
    b.work.joinpath("pairs.jsonl").write_text("\n".join(json.dumps(r) for r in records) + "\n")
    losses = {}
    for name, more in (("own", {}), ("precomputed", dict(precompute_ref_log_probs=True))):
        b.train(1, adapting(b, base, name, **DORA, task="dpo", train_file=b.work / "pairs.jsonl", block_size=None, max_length=32,
                            train_sampling_strategy=None, per_device_train_batch_size=4, max_steps=4, **more))
        steps = [m for m in b.metrics(name) if "loss" in m]
        assert abs(steps[0]["rewards/margins"]) < 1e-4 and abs(steps[-1]["rewards/margins"]) > 1e-3, steps
        losses[name] = [m["loss"] for m in steps]
    close(losses["own"], losses["precomputed"], 2e-5, "a reference model and its log-probabilities")


def wrong_modules_and_initial_adapters(b):
    base = base_model(b)
    for code, words, part in ((64, dict(init_lora_weights="pissa"), "only forms that leave the base as it is"),
                              (64, dict(use_peft_lora=None, lora_r=None, lora_alpha=None, lora_target_modules=None, use_dora=True),
                               "--use_dora has no effect without --use_peft_lora"),
                              (78, dict(lora_modules_to_save="classifier"), "classifier names no module of the model"),
                              (78, dict(lora_modules_to_save="_proj"), "both name transformer.h.0.attn.c_proj")):
        refused(b, code, adapting(b, base, "wrong", **dict(LORA, **words)), part)
