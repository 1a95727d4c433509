"""Adapters and frozen parameters with weights in host memory or on a drive: the runs without offload, bit by bit."""
import json
import shutil

from support import safetensors, zero

LORA = dict(use_peft_lora=True, lora_r=4, lora_alpha=8, lora_target_modules="all-linear")
BOUND = dict(device_memory="256MiB")


def weights_placed(device, folder, max_in_cpu=0, optimizer="none"):
    document = zero(3, bf16={"enabled": True}, aio={"block_size": 16384, "queue_depth": 3})
    block = document["zero_optimization"]
    block["sub_group_size"] = 5000
    if device != "none":
        block["offload_param"] = {"device": device, "nvme_path": str(folder), "buffer_count": 2, "buffer_size": 10000000, "max_in_cpu": max_in_cpu}
    if optimizer != "none":
        block["offload_optimizer"] = {"device": optimizer, "nvme_path": str(folder), "buffer_count": 3}
    return document


def words_of_adapters(b, output, base, **flags):
    return b.common(output, **dict(dict(bf16=True, model_type=None, config_overrides=None, model_name_or_path=base, tokenizer_name=None), **flags))


def loss_with_adapters(b, output, ranks, base, **flags):
    only = dict(do_train=None, do_eval=True, validation_file=b.text, train_file=None, max_steps=None, learning_rate=None, save_strategy=None,
                logging_steps=None, train_sampling_strategy=None, per_device_train_batch_size=None)
    b.train(ranks, words_of_adapters(b, output, base, **dict(only, **flags)))
    return json.loads((b.work / output / "eval_results.json").read_text())["eval_loss"]


def text_with_adapters(b, ranks, base, config, **flags):
    words = ["--model_name_or_path", str(base), "--do_generate", "--prompt", "line", "--max_new_tokens", "8", "--temperature", "0", "--bf16",
             "--deepspeed", config]
    return b.train(ranks, words + [str(w) for name, value in flags.items() for w in ("--" + name, value)]).stdout


def places_of_weights(drive):
    """Name, configuration and more flags."""
    return (("memory", weights_placed("none", drive), {}),
            ("drive", weights_placed("nvme", drive), {}),
            ("drive_in_part", weights_placed("nvme", drive, max_in_cpu=15000, optimizer="nvme"), {}),
            ("device", weights_placed("none", drive), BOUND),
            ("host", weights_placed("cpu", drive, optimizer="cpu"), BOUND),
            ("device_drive", weights_placed("nvme", drive, optimizer="cpu"), BOUND))


def offloaded_adapters_change_no_bit(b):
    """Training with evaluations and checkpoints, then evaluation and generation with the adapters."""
    b.train(1, b.common("base", max_steps=10))
    base, drive = b.work / "base", b.work / "drive"
    drive.mkdir()
    for ranks in (1, 2):
        found = {}
        for name, document, more in places_of_weights(drive):
            output, config = f"{name}{ranks}", b.config(f"{name}.json", document)
            b.train(ranks, words_of_adapters(b, output, base, **LORA, deepspeed=config, do_eval=True, validation_file=str(b.text), eval_strategy="steps",
                                    eval_steps=3, max_eval_samples=16, per_device_train_batch_size=8 // ranks, save_strategy="steps", save_steps=3, **more))
            only = dict(adapter=b.work / output, **more)
            found[name] = (b.losses(output), [m["eval_loss"] for m in b.metrics(output) if "eval_loss" in m],
                           safetensors(b.work / output / "adapter_model.safetensors"),
                           loss_with_adapters(b, "evaluated", ranks, base, deepspeed=config, **only), text_with_adapters(b, ranks, base, config, **only))
            if "drive" in name:
                assert b.status(output)["offload"]["weights_bytes_per_rank"] > 0, b.status(output)
        for name, found_here in found.items():
            wanted = found["memory" if "memory" == name or name.startswith("drive") else "device"]
            assert found_here == wanted, (name, ranks, found_here[0], wanted[0])
    assert not list(drive.iterdir())


def offloaded_adapters_resume_anywhere(b):
    """From the drive to memory and back, on other numbers of ranks."""
    b.train(1, b.common("base", max_steps=2))
    base, drive = b.work / "base", b.work / "drive"
    drive.mkdir()
    words = dict(LORA, max_steps=8, save_strategy="steps", save_steps=4)
    documents = {"memory": weights_placed("none", drive), "drive": weights_placed("nvme", drive, optimizer="nvme")}
    for name, document in documents.items():
        b.train(2, words_of_adapters(b, name, base, **words, per_device_train_batch_size=4, deepspeed=b.config("ds.json", document)))
    for source, target, ranks in (("drive", "memory", 2), ("memory", "drive", 2), ("drive", "drive", 1)):
        output = f"{source}_{target}_{ranks}"
        shutil.copytree(b.work / source, b.work / output)
        shutil.rmtree(b.work / output / "checkpoints/step_00000008")
        b.train(ranks, words_of_adapters(b, output, base, **words, per_device_train_batch_size=8 // ranks, deepspeed=b.config("ds.json", documents[target])))
        if ranks == 2:
            assert b.losses(output) == b.losses("memory"), (output, b.losses(output), b.losses("memory"))
            assert safetensors(b.work / output / "adapter_model.safetensors") == safetensors(b.work / "memory/adapter_model.safetensors")
        else:
            assert len(b.losses(output)) == len(b.losses("memory")), b.losses(output)


def frozen_parameters_on_a_drive_stay(b):
    """The model of a run with frozen parameters is saved with all of its weights."""
    b.train(1, b.common("base", max_steps=2))
    base, drive = b.work / "base", b.work / "drive"
    drive.mkdir()
    found = {}
    for name, document, more in places_of_weights(drive):
        b.train(2, words_of_adapters(b, name, base, frozen_parameters=r".*\.w[tp]e\..*|.*\.h\.0\..*", per_device_train_batch_size=4,
                            deepspeed=b.config(f"{name}.json", document), **more))
        found[name] = (b.losses(name), safetensors(b.work / name / "model.safetensors"))
    for name, found_here in found.items():
        assert found_here == found["memory" if name.startswith("drive") else "device" if name != "memory" else "memory"], name
    before = safetensors(base / "model.safetensors")
    after = found["drive"][1]
    assert set(after) == set(before) and any(after[t][:2] == before[t][:2] for t in after)


def plan_of_offloaded_adapters_is_the_memory_of_the_run(b):
    """Bytes where the model computes, at the peak of the run, within 1 %; those on the drive exactly, by tessera plan and by tessera estimate."""
    shape = dict(block_size=64, per_device_train_batch_size=16, max_steps=1, bf16=True)
    b.train(1, b.common("base", **shape, config_overrides="n_embd=512,n_layer=8,n_head=8,n_positions=64,vocab_size=4096"))
    drive = b.work / "drive"
    drive.mkdir()
    for i, (device, stage, optimizer, weights, ranks) in enumerate(((True, 1, "nvme", "none", 1), (True, 3, "nvme", "nvme", 2), (True, 3, "cpu", "nvme", 1),
                                                                    (False, 2, "nvme", "none", 2), (False, 3, "nvme", "nvme", 2))):
        block = {"stage": stage, "offload_optimizer": {"device": optimizer, "nvme_path": str(drive)},
                 "offload_param": {"device": weights, "nvme_path": str(drive), "max_in_cpu": 0}}
        config = b.config(f"ds{i}.json", {"zero_optimization": block, "bf16": {"enabled": True}})
        flags = dict(LORA, **shape, deepspeed=config)
        b.train(ranks, words_of_adapters(b, f"run{i}", b.work / "base", **flags, gradient_checkpointing=False) + (["--device_memory", "1GiB"] if device else []))
        used = b.status(f"run{i}")["memory"]
        of_run = ["--model_name_or_path", b.work / "base", "--gradient_checkpointing", "false"]
        for name, value in flags.items():
            of_run += ["--" + name] + ([] if value is True else [value]) if name != "max_steps" else []
        of_run += ["--device_attention", "portable"] if device else ["--use_cpu"]
        b.tool(["plan", "--gpus_per_node", ranks, "--json", b.work / "plan.json", "--", *of_run])
        (plan,) = json.loads((b.work / "plan.json").read_text())["choices"]
        space = "device" if device else "host"
        assert abs(plan[space]["total"] / used[space]["peak"] - 1) < 0.01, (i, plan[space], used)
        assert plan["nvme_bytes"] == used["nvme"]["peak"], (i, plan["nvme_bytes"], used)
        estimates = json.loads(b.tool(["estimate", "--num_gpus_per_node", ranks, "--json", "--", *of_run]).stdout)["plans"]
        estimate = next(p for p in estimates if p["stage"] == stage and not p["gradient_checkpointing"])
        assert estimate["nvme"] == used["nvme"]["peak"], (i, estimate, used)
