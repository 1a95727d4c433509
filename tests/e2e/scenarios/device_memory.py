"""A device simulated in host memory: bounded, with the optimizer on it, on the CPU or on a drive."""
import json
import re

from support import refused, zero

BOUND = ["--device_memory", "256MiB"]


def from_a_device(device, folder, stage, **more):
    document = zero(stage, bf16={"enabled": True}, **more)
    if device != "none":
        block = {"device": device, "nvme_path": str(folder), "buffer_count": 3}
        document["zero_optimization"].update(offload_optimizer=block, sub_group_size=5000)
    return document


def bytes_by_space(b, name):
    return json.loads((b.work / name / "status.json").read_text())["memory"]


def simulated_device_offload_changes_no_bit(b):
    """The optimizer on the device, on the CPU and on a drive: one model; checkpoints of each resume with the others."""
    drive = b.work / "drive"
    drive.mkdir()
    for stage, ranks in ((2, 1), (3, 2)):
        results, memory = {}, {}
        for device in ("none", "cpu", "nvme"):
            run = f"{device}_{stage}"
            ds = b.config(f"{run}.json", from_a_device(device, drive, stage))
            done = b.train(ranks, b.common(run, bf16=True, deepspeed=ds, save_strategy="steps", save_steps=4, max_steps=8) + BOUND)
            results[device] = (b.losses(run), (b.work / run / "model.safetensors").read_bytes())
            memory[device] = bytes_by_space(b, run)
            text = done.stdout + done.stderr
            assert "simulated in host memory" in text, text
            assert ("optimizer on the CPU: 100 % of the elements" in text) == (device != "none"), text
            pinned = re.findall(r"([0-9.]+) \w+ of it pinned", text)
            assert bool(pinned) == (device != "none") and all(float(size) > 0 for size in pinned), text
        assert results["cpu"] == results["none"] and results["nvme"] == results["none"], [r[0] for r in results.values()]
        assert memory["cpu"]["device"]["now"] < memory["none"]["device"]["now"], memory
        assert memory["nvme"]["nvme"]["now"] > 0 and "nvme" not in memory["cpu"], memory

    for device, start, stage, ranks, batch in (("cpu", "nvme_3", 1, 1, 16), ("none", "cpu_3", 2, 2, 16), ("nvme", "none_2", 3, 2, 8)):
        ds = b.config("resumed.json", from_a_device(device, drive, stage))
        b.train(ranks, b.common(f"resumed_{device}", bf16=True, deepspeed=ds, max_steps=8, per_device_train_batch_size=batch // ranks,
                                resume_from_checkpoint=str(b.work / start / "checkpoints/step_00000004")) + BOUND)
        ours, theirs = b.losses(f"resumed_{device}"), b.losses(start)[4:]
        assert len(ours) == 4 and all(abs(a - c) < 5e-3 for a, c in zip(ours, theirs)), (device, ours, theirs)


def memory_bounds_end_a_run(b):
    """Too little memory of a space: 70, with the bytes, by purpose, and what to change; wrong sizes: 64."""
    drive = b.work / "drive"
    run = b.common("run", bf16=True, deepspeed=b.config("ds.json", from_a_device("none", drive, 2)))
    refused(b, 70, run + ["--device_memory", "64KiB"], "are free, this process holds")
    refused(b, 70, run + ["--device_memory", "64KiB"], "raise --device_memory")
    refused(b, 70, run + ["--host_memory", "64KiB"], "raise --host_memory")
    refused(b, 64, run + ["--device_memory", "plenty"], "--device_memory: 'plenty' is not a size")
    refused(b, 78, run + ["--device_memory", "1000TB"], "simulates these devices in its memory")
    for option, value in (("--device_graphs", "true"), ("--device_attention", "cudnn"), ("--device_gelu", "fused"),
                          ("--device_product_algorithms", "algorithms.txt")):
        refused(b, 78, run + BOUND + [option, value], f"{option} {value} needs a GPU")
    refused(b, 78, run + BOUND + ["--nccl_cta_policy", "zero"], "needs GPUs")
    stage0 = zero(0, bf16={"enabled": True})
    stage0["zero_optimization"]["offload_optimizer"] = {"device": "cpu"}
    refused(b, 78, b.common("zero", bf16=True, deepspeed=b.config("zero.json", stage0)) + BOUND, "at ZeRO stage 0, which has no offload")
    lamb = from_a_device("cpu", drive, 1, optimizer={"type": "Lamb", "params": {"lr": "auto"}})
    lamb["zero_optimization"]["offload_optimizer"]["ratio"] = 0.5
    refused(b, 78, b.common("lamb", bf16=True, deepspeed=b.config("lamb.json", lamb)) + BOUND, "leave ratio out")
    half = from_a_device("nvme", drive, 2)
    half["bf16"]["bf16_master_weights_and_grads"] = True
    refused(b, 78, b.common("half", bf16=True, deepspeed=b.config("half.json", half)) + BOUND, "use fp32 master weights, or device \"cpu\"")


def simulated_device_offload_trains_adapters(b):
    """LoRA with the optimizer on the device, on the CPU, in part on the CPU, and on a drive: the same losses."""
    b.train(1, b.common("base", max_steps=2))
    drive = b.work / "drive"
    drive.mkdir()
    for stage, ranks in ((1, 1), (3, 2)):
        losses = {}
        for device, ratio in (("none", 1), ("cpu", 1), ("cpu", 0.3), ("nvme", 1)):
            run = f"lora_{stage}_{device}_{ratio}"
            document = from_a_device(device, drive, stage)
            if ratio != 1:
                document["zero_optimization"]["offload_optimizer"]["ratio"] = ratio
            words = b.common(run, bf16=True, deepspeed=b.config(f"{run}.json", document), model_name_or_path=str(b.work / "base"), model_type=None,
                             config_overrides=None, tokenizer_name=None, use_peft_lora=True, lora_r=4, lora_alpha=8, lora_target_modules="all-linear")
            b.train(ranks, words + BOUND)
            losses[device, ratio] = b.losses(run)
        assert all(of == losses["none", 1] for of in losses.values()), losses
