"""Optimizer states on the CPU and on a drive: the same run, nothing left behind, clear refusals."""
import os
import signal
import subprocess
import time

from support import refused, zero


def offloaded(device, folder, stage=3, **more):
    block = {"device": device, "nvme_path": str(folder), "buffer_count": 3}
    document = zero(stage, bf16={"enabled": True}, aio={"block_size": 16384, "queue_depth": 3}, **more)
    document["zero_optimization"].update(offload_optimizer=block, sub_group_size=5000)
    if device == "cpu" and stage == 3:
        document["zero_optimization"]["offload_param"] = {"device": "cpu", "pin_memory": True}
    return document


def offload_changes_no_bit(b):
    """CPU and NVMe give the model of the run that keeps its states in memory; a checkpoint resumes with either."""
    drive = b.work / "drive"
    drive.mkdir()
    results = {}
    for device in ("none", "cpu", "nvme"):
        ds = b.config(f"{device}.json", offloaded(device, drive))
        done = b.train(2, b.common(device, bf16=True, deepspeed=ds, save_strategy="steps", save_steps=4, max_steps=8))
        results[device] = (b.losses(device), (b.work / device / "model.safetensors").read_bytes())
        assert ("on NVMe per rank" in done.stderr + done.stdout) == (device == "nvme"), done.stderr
    assert results["cpu"] == results["none"] and results["nvme"] == results["none"], [r[0] for r in results.values()]
    assert not list(drive.iterdir()), list(drive.iterdir())
    b.tool(["checkpoint", "diff", b.work / "none/checkpoints/step_00000008", b.work / "nvme/checkpoints/step_00000008"])

    # from the drive to memory and back, on other ranks and stages
    start = str(b.work / "nvme/checkpoints/step_00000004")
    for device, ranks, stage in (("nvme", 1, 1), ("none", 4, 2)):
        ds = b.config("resumed.json", offloaded(device, drive, stage=stage))
        b.train(ranks, b.common(f"resumed_{device}", bf16=True, deepspeed=ds, max_steps=8, per_device_train_batch_size=16 // ranks,
                                resume_from_checkpoint=start))
    ours, theirs = b.losses("resumed_nvme"), b.losses("resumed_none")
    assert len(ours) == len(theirs) == 4 and all(abs(a - c) < 2e-3 for a, c in zip(ours, theirs)), (ours, theirs)


def offload_leaves_nothing_after_a_kill(b):
    drive = b.work / "drive"
    drive.mkdir()
    ds = b.config("ds.json", offloaded("nvme", drive, stage=2))
    words = b.common("run", bf16=True, deepspeed=ds, save_strategy="steps", save_steps=5, max_steps=100000)
    run = subprocess.Popen(b.command(2, words), env=b.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.time() + 60
    while not (b.work / "run/checkpoints/latest").exists() and time.time() < until:
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    assert not list(drive.iterdir()), list(drive.iterdir())


def offload_refusals_name_the_cause(b):
    drive = b.work / "drive"
    drive.mkdir()
    file = b.work / "file"
    file.write_text("")
    run = b.common("wrong", bf16=True)
    refused(b, 74, run + ["--deepspeed", b.config("a.json", offloaded("nvme", b.work / "missing"))], "missing: No such file")
    refused(b, 74, run + ["--deepspeed", b.config("b.json", offloaded("nvme", file))], "cannot make a swap file in")
    refused(b, 78, run + ["--deepspeed", b.config("c.json", offloaded("nvme", ""))], "nvme_path")
