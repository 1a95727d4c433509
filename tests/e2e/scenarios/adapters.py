"""LoRA adapters and frozen parameters by the real programs: the same training everywhere, files as PEFT has them, resume, evaluation, merge."""
import json
import shutil
import struct

from support import close, zero, safetensors, tokenizer_with_more_tokens, write_safetensors

LORA = dict(use_peft_lora=True, lora_r=4, lora_alpha=8, lora_target_modules="all-linear")


def base_model(b):
    """A model that has learned a little."""
    b.train(1, b.common("base", max_steps=10))
    return b.work / "base"


def adapting(b, base, output, **flags):
    return b.common(output, **dict(dict(model_type=None, config_overrides=None, model_name_or_path=base, tokenizer_name=None), **flags))


def evaluated(b, output, ranks, base, **flags):
    """eval_loss of an evaluation without training."""
    only = dict(do_train=None, do_eval=True, validation_file=b.text, train_file=None, max_steps=None, learning_rate=None, save_strategy=None,
                logging_steps=None, train_sampling_strategy=None, per_device_train_batch_size=None)
    b.train(ranks, adapting(b, base, output, **dict(only, **flags)))
    return json.loads((b.work / output / "eval_results.json").read_text())["eval_loss"]


def losses_are_close_in_16_bits(b, base, words, losses):
    """Under autocast, and with the 16-bit weights of a DeepSpeed block."""
    for kind in ("bf16", "fp16"):
        block = zero(3, **{kind: {"enabled": True}})
        for name, more in ((kind, {kind: True}), (kind + "_weights", dict(deepspeed=b.config("ds.json", block)))):
            b.train(2, adapting(b, base, name, **words, per_device_train_batch_size=4, **more))
            close(b.losses(name), losses, 2e-2, name)


def adapters_train_alike_everywhere(b):
    base = base_model(b)
    runs = []
    for ranks, stage, extra in ((1, 0, {}), (2, 0, {}), (2, 1, {}), (2, 2, {}), (2, 3, {}), (4, 3, {}), (4, 2, dict(gradient_accumulation_steps=2))):
        name = f"{ranks}_{stage}"
        steps = extra.get("gradient_accumulation_steps", 1)
        done = b.train(ranks, adapting(b, base, name, **LORA, per_device_train_batch_size=8 // ranks // steps, deepspeed=b.config("ds.json", zero(stage)),
                                       **extra))
        trained = 2 * 4 * ((32 + 96) + (32 + 32) + (32 + 128) + (128 + 32))  # r (in + out) of four layers in two blocks
        assert f"of which {trained:,} (" in done.stderr, done.stderr
        runs.append(b.losses(name))
        close(runs[-1], runs[0], 2e-6, f"{ranks} ranks, stage {stage}")
        files = {p.name for p in (b.work / name).iterdir()}
        assert {"adapter_config.json", "adapter_model.safetensors"} <= files and "model.safetensors" not in files and "config.json" not in files, files
    assert runs[0][-1] < runs[0][0], runs[0]
    tensors = safetensors(b.work / "2_3/adapter_model.safetensors")
    assert len(tensors) == 2 * 2 * 4 and all(dtype == "F32" for dtype, _, _ in tensors.values()), tensors.keys()
    assert tensors["base_model.model.transformer.h.1.mlp.c_proj.lora_A.weight"][1] == [4, 128], tensors.keys()
    assert tensors["base_model.model.transformer.h.0.attn.c_attn.lora_B.weight"][1] == [96, 4], tensors.keys()
    config = json.loads((b.work / "2_3/adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"], config["fan_in_fan_out"]) == ("LORA", 4, 8, True), config
    assert config["base_model_name_or_path"] == str(base), config
    losses_are_close_in_16_bits(b, base, LORA, runs[0])


def adapters_cost_only_themselves(b):
    """The bytes of gradients, master weights and moments in the log are those of the adapters; checkpoints hold nothing else."""
    base = base_model(b)
    block = zero(2, bf16={"enabled": True})
    done = b.train(2, adapting(b, base, "run", use_peft_lora=True, lora_r=4, lora_target_modules="c_attn", per_device_train_batch_size=4,
                               deepspeed=b.config("ds.json", block), save_strategy="steps", save_steps=6))
    trained = 2 * (4 * 32 + 96 * 4)  # two layers, r 4; shards need no padding
    assert f"of which {trained:,} (" in done.stderr, done.stderr
    assert f"gradients {trained // 2 * 2 / 1024:.1f} KiB" in done.stderr, done.stderr
    assert f"master weights {trained // 2 * 4 / 1024:.1f} KiB" in done.stderr, done.stderr
    assert f"optimizer states {trained // 2 * 8 / 1024:.1f} KiB" in done.stderr, done.stderr
    manifest = json.loads((b.work / "run/checkpoints/step_00000006/manifest.json").read_text())
    assert sum(t["shape"][0] * t["shape"][1] for t in manifest["tensors"]) == trained, manifest["tensors"]
    assert manifest["frozen"]["adapter_config"]["target_modules"] == ["c_attn"], manifest["frozen"]


def adapters_resume_anywhere(b):
    base = base_model(b)
    for stage, dropout in ((0, 0.0), (3, 0.1)):
        words = dict(LORA, lora_dropout=dropout, max_steps=8, save_strategy="steps", save_steps=4, per_device_train_batch_size=4,
                     train_sampling_strategy="random", deepspeed=b.config("ds.json", zero(stage)))
        b.train(2, adapting(b, base, "whole", **words))
        for name, ranks, other in (("same", 2, stage), ("other", 4, 3 - stage), ("one", 1, 1)):
            shutil.copytree(b.work / "whole", b.work / name)
            shutil.rmtree(b.work / name / "checkpoints/step_00000008")
            again = dict(words, per_device_train_batch_size=8 // ranks, deepspeed=b.config("ds.json", zero(other)))
            done = b.train(ranks, adapting(b, base, name, **again))
            assert "step_00000004" in done.stderr, done.stderr
            close(b.losses(name), b.losses("whole"), 0 if name == "same" else 2e-6, f"{name}, stage {stage}")
        files = [safetensors(b.work / d / "adapter_model.safetensors") for d in ("whole", "same")]
        assert files[0] == files[1], "adapters differ after the resume"
        for name in ("whole", "same", "other", "one"):
            shutil.rmtree(b.work / name)


def quantized_bases_train_alike_everywhere(b):
    """Losses are equal on any number of ranks and stage, and near those of the base's values. A resume elsewhere continues. The adapter is
    a plain one, which the base in codes and in values takes."""
    base = base_model(b)
    b.train(1, adapting(b, base, "values", **LORA))
    for kind in (dict(load_in_4bit=True), dict(load_in_4bit=True, bnb_4bit_use_double_quant=True, bf16=True), dict(load_in_8bit=True)):
        runs = []
        for ranks, stage in ((1, 0), (2, 1), (2, 3), (4, 3)):
            name = f"{len(kind)}{'load_in_8bit' in kind}_{ranks}_{stage}"
            done = b.train(ranks, adapting(b, base, name, **LORA, **kind, per_device_train_batch_size=8 // ranks, deepspeed=b.config("ds.json", zero(stage))))
            assert "frozen matrices in " + ("int8" if "load_in_8bit" in kind else "nf4") in done.stderr, done.stderr
            runs.append(b.losses(name))
            close(runs[-1], runs[0], 1e-3 if "bf16" in kind else 2e-6, f"{name}")
        assert runs[0] != b.losses("values"), "the base is no different"
        close(runs[0], b.losses("values"), 5e-3, f"{kind} and values")

    words = dict(LORA, load_in_4bit=True, max_steps=8, save_strategy="steps", save_steps=4, deepspeed=b.config("ds.json", zero(3)))
    b.train(2, adapting(b, base, "complete", **words, per_device_train_batch_size=4))
    shutil.copytree(b.work / "complete", b.work / "resumed")
    shutil.rmtree(b.work / "resumed/checkpoints/step_00000008")
    done = b.train(1, adapting(b, base, "resumed", **dict(words, deepspeed=b.config("ds.json", zero(0))), per_device_train_batch_size=8))
    assert "step_00000004" in done.stderr, done.stderr
    close(b.losses("resumed"), b.losses("complete"), 2e-6, "resumed on one rank")
    in_codes = evaluated(b, "in_codes", 2, base, adapter=b.work / "complete", load_in_4bit=True)
    in_values = evaluated(b, "in_values", 1, base, adapter=b.work / "complete")
    assert in_codes != in_values, in_codes
    close([in_codes], [in_values], 1e-3, "an evaluation in codes and in values")


def peft_loads_adapters_over_a_base_in_4_bits(b):
    """An adapter of a QLoRA run has the same loss in PEFT over bitsandbytes' Linear4bit, and over the base's values. Skipped where peft or
    bitsandbytes is not installed. Sizes are multiples of 64 (tests/oracles/weight_codes.py)."""
    try:
        import torch
        from bitsandbytes.nn import Linear4bit
        from peft import PeftModel
        from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    except ImportError as error:
        print(f"SKIPPED: {error}")
        raise SystemExit(77)
    torch.set_num_threads(1)
    sizes = "vocab_size=4096,hidden_size=64,intermediate_size=128,num_hidden_layers=2,num_attention_heads=2,num_key_value_heads=2,max_position_embeddings=64"
    b.train(1, b.common("base", model_type="llama", config_overrides=sizes, max_steps=10))
    base = b.work / "base"
    codes = dict(load_in_4bit=True, bnb_4bit_use_double_quant=True)
    b.train(2, adapting(b, base, "run", **LORA, **codes, per_device_train_batch_size=4, max_steps=10, deepspeed=b.config("ds.json", zero(3))))
    text = b.work / "text.txt"
    text.write_text(b.text.read_text()[:2000])
    ids = [int(x) for x in b.tool(["tokenize", base, "-f", text]).stdout.split()]
    rows = torch.tensor(ids[:len(ids) // 32 * 32]).view(-1, 32)
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32)
    for name, ours, theirs in (("codes", codes, dict(quantization_config=config, device_map="cpu")), ("values", {}, {})):
        want = evaluated(b, name, 1, base, adapter=b.work / "run", validation_file=text, **ours)
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, **theirs), b.work / "run").eval()
        layers = [m for m in model.modules() if isinstance(m, Linear4bit)]
        assert len(layers) == (14 if theirs else 0), layers
        for layer in layers:
            layer.support_avx512bf16_for_cpu = False  # such processors would evaluate in bf16, with scales in bf16
        with torch.no_grad():
            got = [model(input_ids=rows, labels=rows).loss.item()]
            with model.disable_adapter():
                assert abs(model(input_ids=rows, labels=rows).loss.item() - want) > 1e-2, "the adapter has no effect"
        close(got, [want], 5e-6, f"PEFT over the base's {name}")


def adapters_are_evaluated_and_merged(b):
    base = base_model(b)
    b.train(1, adapting(b, base, "run", **LORA, max_steps=40, learning_rate=3e-2, save_strategy="steps", save_steps=40, do_eval=True,
                        validation_file=b.text))
    want = json.loads((b.work / "run/eval_results.json").read_text())["eval_loss"]
    without = evaluated(b, "without", 1, base)
    assert want < without - 0.01, (want, without)
    for ranks, stage in ((1, 0), (2, 3)):
        got = evaluated(b, f"eval_{ranks}", ranks, base, adapter=b.work / "run", deepspeed=b.config("ds.json", zero(stage)))
        close([got], [want], 2e-6, f"--adapter on {ranks} ranks")
    shutil.copytree(b.work / "run", b.work / "checkpoint_only")
    (b.work / "checkpoint_only/adapter_model.safetensors").unlink()
    got = evaluated(b, "checkpoint_only", 2, base, **LORA, resume_from_checkpoint="auto")
    close([got], [want], 2e-6, "a checkpoint's adapters")

    shutil.copytree(b.work / "run", b.work / "neither")
    (b.work / "neither/adapter_model.safetensors").unlink()
    refusal = b.tool(["merge", base, b.work / "neither", b.work / "none"], expect=74)
    assert "has neither adapter_model.safetensors nor adapter_model.bin" in refusal.stderr, refusal.stderr

    b.tool(["merge", base, b.work / "run", b.work / "merged"])
    merged = safetensors(b.work / "merged/model.safetensors")
    assert set(merged) == set(safetensors(base / "model.safetensors")), merged.keys()
    close([evaluated(b, "eval_merged", 2, b.work / "merged")], [want], 2e-6, "the merged model")
    refusal = b.tool(["merge", base, b.work / "run", b.work / "merged"], expect=64)
    assert "--overwrite" in refusal.stderr, refusal.stderr

    for output in ("exported", "from_shards"):
        b.tool(["export" if output == "exported" else "zero-to-fp32", b.work / "run", b.work / output])
        assert safetensors(b.work / output / "adapter_model.safetensors") == safetensors(b.work / "run/adapter_model.safetensors"), output
        assert (b.work / output / "adapter_config.json").read_text() == (b.work / "run/adapter_config.json").read_text()

    generate = dict(model_type=None, config_overrides=None, train_file=None, block_size=None, do_train=None, max_steps=None, learning_rate=None,
                    logging_steps=None, save_strategy=None, train_sampling_strategy=None, per_device_train_batch_size=None, tokenizer_name=None,
                    do_generate=True, prompt="the hacker", temperature=0, max_new_tokens=12)
    texts = [b.train(ranks, b.common("generated", model_name_or_path=model, **generate, **more)).stdout
             for ranks, model, more in ((1, base, dict(adapter=b.work / "run")), (2, b.work / "merged", {}))]
    assert texts[0] == texts[1] and len(texts[0]) > 12, texts

    b.train(2, adapting(b, base, "continued", adapter=b.work / "run", max_steps=3, per_device_train_batch_size=4))
    assert b.losses("continued")[0] < b.losses("run")[0] - 0.01, (b.losses("continued"), b.losses("run"))


def adapters_of_a_grown_model_are_merged(b):
    """The tokenizer has more tokens than the base has rows: the merged model has the rows of the run, and PEFT's files bring their own."""
    base, tokenizer = base_model(b), tokenizer_with_more_tokens(b)
    words = dict(tokenizer_name=tokenizer, do_eval=True, validation_file=b.text)
    b.train(1, adapting(b, base, "run", **LORA, **words, learning_rate=3e-2))
    want = json.loads((b.work / "run/eval_results.json").read_text())["eval_loss"]
    log = b.tool(["merge", base, b.work / "run", b.work / "merged"]).stderr
    assert "has 4098 tokens and the model 4096 rows of embeddings" in log, log
    assert json.loads((b.work / "merged/config.json").read_text())["vocab_size"] == 4098
    assert (b.work / "merged/tokenizer.json").read_text() == (tokenizer / "tokenizer.json").read_text()
    close([evaluated(b, "eval_merged", 2, b.work / "merged")], [want], 2e-6, "the merged model")

    shutil.copytree(b.work / "run", b.work / "peft")
    tensors = safetensors(b.work / "run/adapter_model.safetensors")
    tensors["base_model.model.transformer.wte.weight"] = ("F32", [4100, 32], struct.pack("<f", 0.5) * (4100 * 32))
    write_safetensors(b.work / "peft/adapter_model.safetensors", tensors)
    b.tool(["merge", base, b.work / "peft", b.work / "with_rows"])
    assert safetensors(b.work / "with_rows/model.safetensors")["transformer.wte.weight"] == tensors["base_model.model.transformer.wte.weight"]
    assert json.loads((b.work / "with_rows/config.json").read_text())["vocab_size"] == 4100


def frozen_parameters_stay(b):
    base = base_model(b)
    pattern = r".*\.w[tp]e\..*|.*\.h\.0\..*"
    runs = []
    for ranks, stage in ((1, 0), (2, 3), (2, 2)):
        name = f"{ranks}_{stage}"
        words = dict(frozen_parameters=pattern, max_steps=8, save_strategy="steps", save_steps=4, per_device_train_batch_size=8 // ranks,
                     deepspeed=b.config("ds.json", zero(stage)))
        b.train(ranks, adapting(b, base, name, **words))
        runs.append(b.losses(name))
        close(runs[-1], runs[0], 2e-6, name)
        before, after = safetensors(base / "model.safetensors"), safetensors(b.work / name / "model.safetensors")
        assert set(before) == set(after)
        for tensor, value in after.items():
            is_frozen = ".h.0." in tensor or ".wte." in tensor or ".wpe." in tensor
            assert (value == before[tensor]) == is_frozen, tensor
        manifest = json.loads((b.work / name / "checkpoints/step_00000004/manifest.json").read_text())
        assert {t["name"] for t in manifest["tensors"]} == {t for t in after if after[t] != before[t]}
    shutil.rmtree(b.work / "2_3/checkpoints/step_00000008")
    b.train(1, adapting(b, base, "2_3", **dict(words, per_device_train_batch_size=8)))
    close(b.losses("2_3"), runs[0], 2e-6, "resumed")
    done = b.tool(["export", b.work / "2_3", b.work / "exported"], expect=65)
    assert "has only the parameters that train" in done.stderr, done.stderr
    b.tool(["zero-to-fp32", b.work / "2_3", b.work / "part.safetensors"])
    assert ".h.1." in "".join(safetensors(b.work / "part.safetensors"))

    b.train(1, b.common("other", max_steps=2, seed=8))
    shutil.rmtree(b.work / "1_0/checkpoints/step_00000008")
    done = b.train(1, adapting(b, b.work / "other", "1_0", **dict(words, per_device_train_batch_size=8)), expect=78)
    assert "trained with other frozen weights" in done.stderr, done.stderr


def wrong_adapters(b):
    base = base_model(b)
    b.train(1, adapting(b, base, "run", **LORA, save_strategy="steps", save_steps=3))

    def says(code, flags, *parts, output="wrong"):
        done = b.train(1, adapting(b, base, output, **flags), expect=code)
        for part in parts:
            assert part in done.stderr, f"'{part}' is not said:\n{done.stderr}"

    says(64, dict(lora_r=4), "--lora_r has no effect without --use_peft_lora")
    says(64, dict(adapter=b.work / "run", lora_alpha=3), "--lora_alpha cannot go with --adapter")
    says(78, dict(use_peft_lora=True, lora_target_modules="q_proj"), "q_proj name no linear layer of a block; the first block has transformer.h.0.attn.c_attn")
    says(78, dict(frozen_parameters="wte"), "matches no parameter; it must match complete names, such as transformer.wte.weight")
    says(78, dict(frozen_parameters="("), "is not a regular expression")
    says(78, dict(frozen_parameters=".*"), "no parameter trains")
    says(78, dict(frozen_parameters=".*wpe.*", save_only_model=True), "--frozen_parameters with --save_only_model")
    says(74, dict(adapter=b.work / "nothing"), "there is no", "nothing/adapter_config.json")
    says(78, dict(LORA, lora_r=2, max_steps=9), "has adapters with r 4 that are scaled by 2; those of this run have r 2", output="run")
    says(78, dict(max_steps=9), "has the adapters of a run with --use_peft_lora", output="run")
    says(65, dict(LORA, lora_target_modules="c_attn", max_steps=9), "has 16 tensors, the model 4", output="run")

    config = json.loads((b.work / "run/adapter_config.json").read_text())
    for change, part in ((dict(use_qalora=True), "use_qalora is true"), (dict(modules_to_save=["lm_head"]), "without ensure_weight_tying"),
                         (dict(init_lora_weights="pissa"), "init_lora_weights is"),
                         (dict(rank_pattern={"c_fc": 2}), "rank_pattern"), (dict(peft_type="IA3"), "peft_type is 'IA3'")):
        (b.work / "run/adapter_config.json").write_text(json.dumps(dict(config, **change)))
        says(78, dict(adapter=b.work / "run"), part)
    (b.work / "run/adapter_config.json").write_text(json.dumps(dict(config, r=3)))
    says(65, dict(adapter=b.work / "run"), "lora_A.weight has shape [4, 32], the model wants [3, 32]")
