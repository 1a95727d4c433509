"""Model files and checkpoints of other programs: export, import, consolidation."""
import json
import os
import pickle
import shutil
import struct
import zipfile

from gpt2_reference import Gpt2
from support import close, corpus, zero, safetensors, tokenizer_with_more_tokens, write_safetensors, continues, refused


def model_files_while_training(b):
    """stage3_gather_16bit_weights_on_model_save writes the 16-bit model next to the shards, save_only_model in place of them."""
    config = b.config("ds.json", {**zero(3, bf16={"enabled": True}), "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True}})
    settings = dict(max_steps=6, save_strategy="steps", save_steps=2, per_device_train_batch_size=4, bf16=True)
    b.train(2, b.common("beside", deepspeed=config, **settings))
    step = lambda run, number: b.work / run / f"checkpoints/step_{number:08}"
    for number in (2, 6):
        b.tool(["export", b.work / "beside", b.work / f"export{number}", "--tag", number, "--dtype", "bf16"])
        assert safetensors(step("beside", number) / "model.safetensors") == safetensors(b.work / f"export{number}/model.safetensors")
        assert json.loads((step("beside", number) / "config.json").read_text()).get("torch_dtype", "bfloat16") == "bfloat16"
        b.tool(["checkpoint", "verify", step("beside", number)])
    assert safetensors(b.work / "beside/model.safetensors") == safetensors(step("beside", 6) / "model.safetensors")
    alone = b.common("alone", save_only_model=True, save_total_limit=2, deepspeed=b.config("plain.json", zero(3, bf16={"enabled": True})), **settings)
    b.train(2, alone)
    assert sorted(p.name for p in (b.work / "alone/checkpoints").iterdir()) == ["step_00000004", "step_00000006"]
    names = sorted(p.name for p in step("alone", 4).iterdir())
    assert "model.safetensors" in names and "config.json" in names and "tokenizer.json" in names and not [n for n in names if "shard" in n or "manifest" in n], names
    assert safetensors(step("alone", 6) / "model.safetensors") == safetensors(step("beside", 6) / "model.safetensors")
    assert safetensors(b.work / "alone/model.safetensors")["transformer.wte.weight"][0] == "F32"
    evaluate = dict(model_type=None, config_overrides=None, do_train=None, do_eval=True, tokenizer_name=None)
    b.train(2, b.common("evaluated", model_name_or_path=str(step("alone", 6)), **evaluate))
    refused(b, 65, alone + ["--resume_from_checkpoint", str(step("alone", 4))], "--save_only_model", "--model_name_or_path")
    refused(b, 65, alone + ["--resume_from_checkpoint", "6"], "--save_only_model")
    refused(b, 64, alone, "--save_only_model")


def consolidation(b):
    b.train(3, b.common("run", per_device_train_batch_size=2, save_strategy="steps", save_steps=3))
    for suffix in ("safetensors", "bin", "h5"):
        b.tool([b.work / "run", b.work / f"all.{suffix}"], program="zero-to-fp32")
        assert (b.work / f"all.{suffix}").stat().st_size > 4 * 100_000
    b.tool([b.work / "run", b.work / "early", "--tag", "step_00000003", "--max_shard_size", "200KB"], program="zero-to-fp32")
    assert (b.work / "early/model.safetensors.index.json").exists()
    whole, model = safetensors(b.work / "all.safetensors"), safetensors(b.work / "run/model.safetensors")
    assert whole == model and whole["transformer.wte.weight"][:2] == ("F32", [4096, 32])
    listed = b.tool(["checkpoint", "ls", b.work / "run"]).stdout
    assert "step_00000003" in listed and "step_00000006" in listed and "latest" in listed, listed
    b.tool(["checkpoint", "verify", b.work / "run"])
    assert "structure only" in b.tool(["checkpoint", "verify", b.work / "run", "--quick"]).stdout
    assert json.loads(b.tool(["checkpoint", "info", b.work / "run", "--json"]).stdout)["step"] == 6
    same = json.loads(b.tool(["checkpoint", "diff", b.work / "run", b.work / "all.safetensors", "--tolerance", "0", "--json"]).stdout)
    assert same["max"] == 0 and len(same["tensors"]) == len(whole), same["max"]
    b.tool(["checkpoint", "diff", b.work / "run", b.work / "run", "--tag_b", "3"])
    b.tool(["checkpoint", "diff", b.work / "run", b.work / "run", "--tag_b", "3", "--tolerance", "1e-9"], expect=65)
    b.tool(["checkpoint", "prune", b.work / "run"], expect=64)
    assert "would be removed" in b.tool(["checkpoint", "prune", b.work / "run", "--keep", "1", "--dry-run"]).stdout
    assert (b.work / "run/checkpoints/step_00000003").exists()
    b.tool(["checkpoint", "prune", b.work / "run", "--keep", "1"])
    assert not (b.work / "run/checkpoints/step_00000003").exists() and (b.work / "run/checkpoints/step_00000006").exists()
    step = b.work / "run/checkpoints/step_00000006"
    piece = json.loads((step / "manifest.json").read_text())["tensors"][0]["pieces"][1]
    shard = step / "shard_00001.h5"
    data = bytearray(shard.read_bytes())
    data[piece["file_offsets"][0] + 40] ^= 1
    shard.write_bytes(data)
    assert "shard_00001.h5" in b.tool(["checkpoint", "verify", b.work / "run"], expect=65).stderr
    b.tool([b.work / "run", b.work / "bad.safetensors"], expect=65, program="zero-to-fp32")
    assert not (b.work / "bad.safetensors").exists()
    b.tool([b.work / "nowhere", b.work / "x.bin"], expect=74, program="zero-to-fp32")


def huggingface_round_trip(b):
    """The exported model evaluates as the trained one did, and as plain Python does."""
    held_out = b.work / "validation.txt"
    held_out.write_text("".join(line + "\n" for line in corpus(40).splitlines()[30:]))
    data = dict(validation_file=str(held_out), do_eval=True)
    b.train(2, b.common("run", per_device_train_batch_size=4, max_steps=20, **data))
    evaluate = dict(model_type=None, config_overrides=None, do_train=None, **data)
    b.train(2, b.common("eval", model_name_or_path=str(b.work / "run"), tokenizer_name=None, **evaluate))
    b.tool([b.work / "run/config.json", "x"], expect=74, program="zero-to-fp32")
    trained, loss = (json.loads((b.work / name / "eval_results.json").read_text())["eval_loss"] for name in ("run", "eval"))
    assert loss == trained, "the same weights on the same ranks have the same bits"
    tokens = [int(t) for t in b.tool(["tokenize", b.source / "configs/gpt2-8m", held_out.read_text()]).stdout.split()]
    blocks = [tokens[at:at + 32] for at in range(0, len(tokens) - 31, 32)]
    model = Gpt2(b.work / "run")
    reference = [value for block in blocks for value in model.losses(block)]
    assert len(blocks) >= 2, len(tokens)
    close([loss], [sum(reference) / len(reference)], 5e-7, "evaluation against GPT-2 in plain Python")
    accuracy = json.loads((b.work / "eval/eval_results.json").read_text())["eval_accuracy"]
    assert abs(accuracy - sum(model.hits(block) for block in blocks) / len(reference)) < 1e-12 and accuracy > 0, accuracy
    config = json.loads((b.work / "run/config.json").read_text())
    assert config["architectures"] == ["GPT2LMHeadModel"] and config["n_embd"] == 32


def imported_training_continues(b):
    for case, ranks, stage in (("z0_w2", 1, 2), ("z1_w1", 1, 1), ("z1_w1", 2, 3), ("z3_w3", 3, 3), ("z3_w3", 1, 0), ("z2_w2_elastic", 2, 2), ("universal_z3", 2, 2)):
        losses, expected = continues(b, case, ranks, stage)
        close(losses, expected, 1e-5, f"{case} on {ranks} ranks in stage {stage} against DeepSpeed continuing")


def imported_sgd_continues(b):
    for case, ranks, stage in (("sgd_z0_w2", 1, 1), ("sgd_z1_w2", 2, 2), ("sgd_z3_w2", 3, 3), ("sgd_plain_z2_w2", 2, 3), ("sgd_plain_z3_w2", 1, 0)):
        losses, expected = continues(b, case, ranks, stage)
        close(losses, expected, 1e-5, f"{case} on {ranks} ranks in stage {stage} against DeepSpeed continuing")


def imported_trainer_continues(b):
    """Schedule, optimizer and order of the data continue as transformers' Trainer continued itself."""
    data = b.source / "tests/checkpoint/data"
    expected = json.loads((data / "trainer/gpt2/expected.json").read_text())
    for ranks in (1, 3):
        run = f"trainer{ranks}"
        done = b.tool(["import", data / "trainer/gpt2", b.work / run / "checkpoints"])
        assert "step 4" in done.stdout and "optimizer step 4" in done.stdout, done.stdout
        trained = b.train(ranks, b.common(run, model_type=None, config_overrides=None, config_name=str(data / "trainer/gpt2"), keep_linebreaks="false",
                                          train_file=str(data / "deepspeed/text.txt"), validation_file=str(data / "deepspeed/text.txt"), tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow"),
                                          block_size=16, max_steps=6, per_device_train_batch_size=2, gradient_accumulation_steps=3 // ranks,
                                          learning_rate=5e-3, weight_decay=0.1, lr_scheduler_type="cosine", warmup_steps=2, seed=42,
                                          train_sampling_strategy="random"))
        assert "train_batch_size" not in trained.stderr, trained.stderr
        assert "train_batch_size was" not in trained.stderr, trained.stderr
        assert ranks > 1 or "with this batch size" not in trained.stderr, trained.stderr
        losses = [m["loss"] for m in b.metrics(run) if "loss" in m]
        close(losses, expected["losses_after"], 1e-5, f"on {ranks} ranks against the Trainer continuing")


def adapters_of_the_trainer_are_named(b):
    """Before the config.json that such a checkpoint does not have."""
    saved = b.work / "checkpoint-4"
    saved.mkdir()
    for name in ("trainer_state.json", "optimizer.pt"):
        shutil.copy(b.source / "tests/checkpoint/data/trainer/gpt2" / name, saved)
    (saved / "adapter_config.json").write_text("{}")
    done = b.tool(["import", saved, b.work / "imported"], expect=65)
    assert f"--model_name_or_path BASE --adapter {saved}" in done.stderr and not (b.work / "imported").exists(), done.stderr


def imported_weights_start_without_states(b):
    data = b.source / "tests/checkpoint/data/deepspeed"
    run = dict(model_type=None, config_overrides=None, tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow"),
               train_file=str(data / "text.txt"), block_size=16, max_steps=3)
    b.train(2, b.common("from_weights", model_name_or_path=str(data / "bin_model"), **run))
    done = b.tool(["import", data / "bin_model", b.work / "from_checkpoint/checkpoints"])
    assert "no optimizer states" in done.stdout, done.stdout
    for optimizer in ("adamw_torch", "sgd"):
        out = f"from_{optimizer}"
        trained = b.train(2, b.common(out, config_name=str(data / "bin_model"), resume_from_checkpoint=str(b.work / "from_checkpoint"), optim=optimizer, **run))
        log = trained.stdout + trained.stderr
        assert log.count("has no optimizer states; those of AdamW start at zero") == (optimizer == "adamw_torch"), log
    close(b.losses("from_adamw_torch"), b.losses("from_weights"), 1e-7, "weights of a checkpoint against weights of a model directory")
    assert b.losses("from_sgd") != b.losses("from_adamw_torch")
    # a checkpoint of plain SGD has no states either, but its optimizer has made updates
    b.tool(["import", data / "sgd_plain_z2_w2", b.work / "plain/checkpoints"])
    refused(b, 78, b.common("refused", config_name=str(data / "bin_model"), resume_from_checkpoint=str(b.work / "plain"), **run), "has the states fp32", "AdamW")


def imported_mixed_precision_continues(b):
    losses, expected = continues(b, "z2_w2_fp16", 2, 2, fp16=True)
    close(losses, expected, 2e-5, "fp16 against DeepSpeed continuing")
    losses, expected = continues(b, "universal_z2", 1, 0, fp16=True)
    close(losses, expected, 2e-5, "fp16 from the universal form against DeepSpeed continuing")
    losses, expected = continues(b, "z2_w2_aligned", 2, 2, bf16=True)
    close(losses, expected, 2e-4, "bf16 against DeepSpeed continuing")


def exported_models_load(b):
    data = b.source / "tests/checkpoint/data/deepspeed"
    b.train(1, b.common("run", max_steps=3, save_strategy="steps", save_steps=3))
    b.tool(["export", b.work / "run", b.work / "bf16", "--dtype", "bf16", "--max_shard_size", "200KB"])
    config = json.loads((b.work / "bf16/config.json").read_text())
    assert config.get("dtype", config.get("torch_dtype")) == "bfloat16", config
    assert (b.work / "bf16/tokenizer.json").exists() and (b.work / "bf16/model.safetensors.index.json").exists()
    evaluate = dict(model_type=None, config_overrides=None, do_train=None, do_eval=True, tokenizer_name=None)
    losses = []
    for name in ("run", "bf16"):
        b.train(2, b.common(f"eval_{name}", model_name_or_path=str(b.work / name), **evaluate))
        losses.append(json.loads((b.work / f"eval_{name}/eval_results.json").read_text())["eval_loss"])
    close(losses[1:], losses[:1], 1e-2, "bf16 weights against fp32 weights")
    b.tool(["import", data / "bin_model", b.work / "imported"])
    b.tool(["export", b.work / "imported", b.work / "from_bin"])
    losses = []
    evaluate.update(tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow"), train_file=str(data / "text.txt"), block_size=16)
    for model in (data / "bin_model", b.work / "from_bin"):
        b.train(2, b.common(f"eval_{model.name}", model_name_or_path=str(model), **evaluate))
        losses.append(json.loads((b.work / f"eval_{model.name}/eval_results.json").read_text())["eval_loss"])
    assert losses[0] == losses[1], "pytorch_model.bin and the safetensors made of it differ"
    b.tool(["zero-to-fp32", data / "z3_w2_bf16", b.work / "weights", "--tag", "step3", "--exclude_frozen_parameters", "--safe_serialization", "--debug"])
    assert len(safetensors(b.work / "weights/model.safetensors")) == 14


class Evil:
    """Unpickled by Python, this makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def hostile_pickles(b):
    marker = b.work / "it_ran"
    model = b.work / "model"
    model.mkdir()
    shutil.copy(b.source / "tests/checkpoint/data/deepspeed/bin_model/config.json", model)
    for payload in (Evil(marker), {"transformer.wte.weight": Evil(marker)}):
        with zipfile.ZipFile(model / "pytorch_model.bin", "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(payload, protocol=2))
        refused(b, 65, b.common("x", model_type=None, config_overrides=None, model_name_or_path=str(model), overwrite_output_dir=True,
                                tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow")), "pytorch_model.bin")
        b.tool(["import", model, b.work / "checkpoints"], expect=65)
    assert not marker.exists(), "a pickle ran a command"
    with zipfile.ZipFile(model / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}, protocol=2))
    assert "compressed" in b.tool(["import", model, b.work / "checkpoints"], expect=65).stderr
    b.tool(["import", b.work / "nowhere", b.work / "checkpoints"], expect=74)
    assert not (b.work / "checkpoints/latest").exists()


# --- errors -----------------------------------------------------------------------------------------------------------------------


def a_tied_head_that_is_stored_apart(b):
    """Both tensors are kept with a warning where they differ; tensors of no model are listed; an index may name a tied head that no shard has."""
    b.train(1, b.common("base", max_steps=1))
    tensors = safetensors(b.work / "base/model.safetensors")
    embedding = tensors["transformer.wte.weight"]
    values = [1.5 * v for (v,) in struct.iter_unpack("<f", embedding[2])]
    head = (embedding[0], embedding[1], struct.pack(f"<{len(values)}f", *values))

    def evaluated(name, stored, tied=True, index=None):
        shutil.copytree(b.work / "base", b.work / name, ignore=shutil.ignore_patterns("checkpoints", "*.jsonl", "status.json", ".*"))
        config = json.loads((b.work / name / "config.json").read_text())
        (b.work / name / "config.json").write_text(json.dumps(dict(config, tie_word_embeddings=tied)))
        (b.work / name / "model.safetensors").unlink()
        write_safetensors(b.work / name / ("model.safetensors" if index is None else "model-00001-of-00001.safetensors"), stored)
        if index is not None:
            (b.work / name / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        out = "eval-" + name
        done = b.train(2, b.common(out, model_type=None, config_overrides=None, tokenizer_name=None, model_name_or_path=str(b.work / name), do_train=None,
                                   do_eval=True, max_steps=None, learning_rate=None, logging_steps=None, save_strategy=None))
        return done.stderr, json.loads((b.work / out / "eval_results.json").read_text())["eval_loss"]

    apart = dict(tensors, **{"lm_head.weight": head})
    log, both = evaluated("both", apart)
    assert "warning: " in log and "tie_word_embeddings is true, but lm_head.weight has other values than the embedding" in log, log
    assert both == evaluated("untied", apart, tied=False)[1]
    _, plain = evaluated("plain", tensors)
    assert plain != both, plain
    log, same = evaluated("same", dict(tensors, **{"lm_head.weight": embedding}))
    assert same == plain and "tie_word_embeddings" not in log, log
    log, value_head = evaluated("value_head", dict(tensors, **{"v_head.summary.weight": ("F32", [1], struct.pack("<f", 1))}))
    assert value_head == plain and "not in the model, and left out: v_head.summary.weight" in log, log
    names = dict.fromkeys([*tensors, "lm_head.weight"], "model-00001-of-00001.safetensors")
    assert evaluated("indexed", tensors, index=names)[1] == plain
    b.tool(["import", b.work / "both", b.work / "imported"])


def tokens_beyond_the_embedding(b):
    """Like run_clm.py's, a pretrained model grows to the tokenizer's tokens: new rows are the mean of the others; it resumes and is exported so."""
    b.train(1, b.common("base", max_steps=2))
    tokenizer = tokenizer_with_more_tokens(b)
    start = dict(model_type=None, config_overrides=None, model_name_or_path=str(b.work / "base"), tokenizer_name=str(tokenizer),
                 per_device_train_batch_size=4)
    config = b.config("ds.json", zero(3))
    log = b.train(2, b.common("still", learning_rate=0, max_steps=1, deepspeed=config, **start)).stderr
    assert "has 4098 tokens and the model 4096 rows of embeddings" in log, log
    rows = {}
    for run in ("base", "still"):
        dtype, shape, data = safetensors(b.work / run / "model.safetensors")["transformer.wte.weight"]
        assert dtype == "F32" and shape == [4096 if run == "base" else 4098, 32], (run, shape)
        rows[run] = [struct.unpack_from("<32f", data, 128 * i) for i in range(shape[0])]
    assert rows["still"][:4096] == rows["base"]
    mean = [sum(column) / 4096 for column in zip(*rows["base"])]
    for row in rows["still"][4096:]:
        assert all(abs(x - m) < 1e-7 for x, m in zip(row, mean)), (row, mean)
    assert json.loads((b.work / "still/config.json").read_text())["vocab_size"] == 4098
    steps = dict(start, save_strategy="steps", save_steps=2, lr_scheduler_type="constant")
    b.train(2, b.common("run", max_steps=2, deepspeed=config, **steps))
    b.train(1, b.common("run", max_steps=4, **dict(steps, per_device_train_batch_size=8)))
    b.train(1, b.common("whole", max_steps=4, **dict(steps, per_device_train_batch_size=8)))
    close(b.losses("run"), b.losses("whole"), 1e-5, "a grown model, resumed")
    grown = b.train(1, b.common("again", max_steps=1, **dict(start, model_name_or_path=str(b.work / "run")))).stderr
    assert "rows of embeddings" not in grown, grown
