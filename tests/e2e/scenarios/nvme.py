"""Weights and optimizer states on drives: the same run, what is really used, faults of the drive."""
import json
import os
import random
import resource
import subprocess

from support import refused, safetensors, zero


def on_drive(folder, stage=3, optimizer=True, weights=True, **more):
    document = zero(stage, bf16={"enabled": True}, aio={"block_size": 16384, "queue_depth": 3}, **more)
    block = document["zero_optimization"]
    block["sub_group_size"] = 5000
    if optimizer:
        block["offload_optimizer"] = {"device": "nvme", "nvme_path": str(folder), "buffer_count": 3}
    if weights:
        block["offload_param"] = {"device": "nvme", "nvme_path": str(folder), "buffer_count": 2, "buffer_size": 10000000, "max_in_cpu": 0}
    return document


def drives(b, *names):
    for name in names:
        (b.work / name).mkdir()
    return ":".join(str(b.work / name) for name in names)


def weights_on_a_drive_change_no_bit(b):
    """Training, evaluation and generation with weights and states on two striped drives, on 1 and 2 ranks."""
    path = drives(b, "drive_a", "drive_b")
    for ranks in (1, 2):
        found = {}
        for name, document in (("memory", zero(3, bf16={"enabled": True})), ("drive", on_drive(path)), ("weights", on_drive(path, optimizer=False))):
            output = f"{name}{ranks}"
            words = b.common(output, bf16=True, deepspeed=b.config("ds.json", document), do_eval=True, validation_file=str(b.text), eval_strategy="steps",
                             eval_steps=3, max_eval_samples=16, per_device_train_batch_size=8 // ranks)
            done = b.train(ranks, words)
            found[name] = (b.losses(output), [m["eval_loss"] for m in b.metrics(output) if "eval_loss" in m], safetensors(b.work / output / "model.safetensors"))
            assert ("weights in " + str(b.work / "drive_a") in done.stderr) == (name != "memory"), done.stderr
            assert ("offload" in b.status(output)) == (name != "memory"), b.status(output)
        assert found["drive"] == found["memory"] and found["weights"] == found["memory"], ranks
        offload = b.status(f"drive{ranks}")["offload"]
        assert offload["method"] in ("io_uring", "threads") and offload["block_size"] == 16384 and offload["queue_depth"] == 3, offload
        assert offload["weights_bytes_per_rank"] > 0 and offload["optimizer_bytes_per_rank"] > 5 * offload["weights_bytes_per_rank"], offload
    assert not any(list((b.work / name).iterdir()) for name in ("drive_a", "drive_b"))


def generation_from_a_drive(b):
    """Generated text is equal with weights in memory and on the drive, on 1 and 2 ranks."""
    path = drives(b, "drive")
    b.train(1, b.common("model", deepspeed=b.config("ds.json", zero(3))))
    texts = set()
    for ranks, document in ((1, zero(3)), (1, on_drive(path, optimizer=False)), (2, on_drive(path))):
        document.pop("bf16", None)
        texts.add(b.train(ranks, words_of_generation(b, "model", b.config("generate.json", document))).stdout)
    assert len(texts) == 1 and len(texts.pop()) > 10, texts


def words_of_generation(b, model, config):
    return ["--model_name_or_path", str(b.work / model), "--do_generate", "--prompt", "line", "--max_new_tokens", "8", "--temperature", "0",
            "--deepspeed", config]


def checkpoints_from_and_to_a_drive(b):
    """A checkpoint of weights and states on the drive resumes in memory on other ranks and stages, and the reverse: the same states."""
    path = drives(b, "drive")
    documents = {"drive": on_drive(path), "memory": zero(3, bf16={"enabled": True})}
    for name, document in documents.items():
        b.train(2, b.common(name, bf16=True, deepspeed=b.config("ds.json", document), save_strategy="steps", save_steps=3))
    b.tool(["checkpoint", "diff", b.work / "drive/checkpoints/step_00000006", b.work / "memory/checkpoints/step_00000006"])
    for source, ranks, stage in (("drive", 1, 1), ("memory", 4, 3)):
        target = zero(stage, bf16={"enabled": True}) if source == "drive" else documents["drive"]
        words = b.common(f"from_{source}", bf16=True, deepspeed=b.config("ds.json", target), per_device_train_batch_size=16 // ranks,
                         resume_from_checkpoint=str(b.work / source / "checkpoints/step_00000003"))
        b.train(ranks, words)
        ours, theirs = b.losses(f"from_{source}"), b.losses("memory")[-3:]
        assert len(ours) == 3 and all(abs(a - c) < 2e-3 for a, c in zip(ours, theirs)), (ours, theirs)


def swap_without_io_uring(b):
    """Where the system refuses io_uring, threads do the same, and the run says so."""
    path = drives(b, "drive")
    words = dict(bf16=True, deepspeed=b.config("ds.json", on_drive(path)))
    b.train(2, b.common("ring", **words))
    done = b.train(2, b.common("threads", **words), faults="call=ring,do=EACCES")
    assert "swap files by threads with pread and pwrite (no io_uring: Permission denied)" in done.stderr, done.stderr
    offload = b.status("threads")["offload"]
    assert offload["method"] == "threads" and offload["why_not_io_uring"] == "Permission denied", offload
    assert b.losses("threads") == b.losses("ring")


def swap_faults_end_the_run(b):
    """A read or write that fails ends all ranks with 74 and one message; the checkpoint before it is complete, and the run resumes from it."""
    path = drives(b, "drive")
    common = dict(bf16=True, deepspeed=b.config("ds.json", on_drive(path)), save_strategy="steps", save_steps=2, max_steps=8)
    b.train(2, b.common("whole", **common))
    dice, seed = random.Random(int(os.environ.get("TESSERA_CRASH_SEED", "1"))), os.environ.get("TESSERA_CRASH_SEED", "1")
    ended = 0
    for number in range(int(os.environ.get("TESSERA_CRASH_ROUNDS", "4"))):
        call, action = dice.choice(("read", "write")), dice.choice(("EIO", "ENOSPC", "kill"))
        faults = f"call={call},path=/drive/,rank={dice.randrange(2)},nth={dice.randrange(20, 400)},do={action}"
        told = f"round {number}: {faults}; again with TESSERA_CRASH_SEED={seed}"
        done = subprocess.run(b.command(2, b.common("faulty", **common)), env=b.faulty(faults), capture_output=True, text=True, timeout=240)
        if done.returncode != 0:
            ended += 1
            if action != "kill":
                assert done.returncode == 74, f"{told}\nexit code {done.returncode}\n{done.stderr}"
                assert f"cannot {call} " in done.stderr and " of its swap file in " in done.stderr and "another nvme_path" in done.stderr, f"{told}\n{done.stderr}"
            if (b.work / "faulty/checkpoints/latest").exists():
                b.tool(["checkpoint", "verify", b.work / "faulty"])
        assert not list((b.work / "drive").iterdir()), told
    b.train(2, b.common("faulty", **common))
    assert ended > 0 and b.losses("faulty")[-2:] == b.losses("whole")[-2:], (ended, b.losses("faulty"), b.losses("whole"))
    assert safetensors(b.work / "faulty/model.safetensors") == safetensors(b.work / "whole/model.safetensors")


def swap_refusals_name_the_cause(b):
    path = drives(b, "drive")
    run = b.common("wrong", bf16=True)

    def deepspeed(document):
        return run + ["--deepspeed", b.config("wrong.json", document)]

    small = on_drive(path)
    small["zero_optimization"]["offload_param"]["buffer_size"] = 100
    refused(b, 78, deepspeed(small), "offload_param.buffer_size is 100 elements")
    refused(b, 78, deepspeed(on_drive(path + ":")), "has an empty name")
    refused(b, 74, deepspeed(on_drive(b.work / "missing")), "cannot make a swap file in", "nvme_path names an existing directory on a local drive")
    refused(b, 74, deepspeed(on_drive(b.text)), "cannot make a swap file in", "Not a directory")
    refused(b, 74, deepspeed(on_drive("/proc")), "cannot make a swap file in")
    unaligned = on_drive(path)
    unaligned["aio"]["block_size"] = 5000
    refused(b, 78, deepspeed(unaligned), "aio.block_size is 5000; it must be a multiple of 4096")
    many = on_drive(path)
    many["zero_optimization"].pop("sub_group_size")
    many["zero_optimization"]["offload_param"]["buffer_size"] = 100000000
    many["zero_optimization"]["offload_optimizer"]["buffer_count"] = 1024
    words = deepspeed(many)
    words[words.index("--config_overrides") + 1] = "n_embd=768,n_layer=12,n_head=12"
    limit = 900 << 20
    large = subprocess.run(b.command(1, words), env=b.environment(), capture_output=True, text=True, timeout=120,
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
    assert large.returncode == 70 and "for tiles of swapped states" in large.stderr and "buffer_count (1024)" in large.stderr, large.stderr
    document = on_drive(path, stage=1, weights=False)
    document["zero_optimization"].pop("sub_group_size")
    words = b.common("large", bf16=True, deepspeed=b.config("large.json", document), config_overrides="n_embd=16384,n_layer=96,n_head=128")  # 3.4 TiB
    refused(b, 74, words, f"nvme_path {b.work}/drive on host ", "free, and swap files of 2 ranks there need", "name more drives in nvme_path")
    assert not list((b.work / "drive").iterdir())
    memory = b.train(1, b.common("tmpfs", bf16=True, deepspeed=b.config("tmpfs.json", on_drive("/dev/shm"))))
    assert "nvme_path /dev/shm is on a file system in memory" in memory.stderr, memory.stderr


def estimate_knows_swap_files(b):
    """Bytes per rank in memory and on the drive equal those of the run."""
    path = drives(b, "drive")
    words = b.common("run", bf16=True, deepspeed=b.config("ds.json", on_drive(path)))
    b.train(2, words)
    plan = json.loads(b.tool(["estimate", "--num_gpus_per_node", 2, "--json", "--"] + words + ["--use_cpu"]).stdout)["plans"]
    plan = next(p for p in plan if p["stage"] == 3 and not p["gradient_checkpointing"])
    assert not list((b.work / "drive").iterdir())
    offload = b.status("run")["offload"]
    assert plan["nvme"] == offload["weights_bytes_per_rank"] + offload["optimizer_bytes_per_rank"], (plan, offload)
    assert plan["weights"] == 0 and plan["master_weights"] == 0 and plan["optimizer_state"] == 0, plan


def gpt2_xl_in_six_gibibytes(b):
    """A model of 1.5 B parameters trains with 6 GiB for all memory that has no file behind it (RLIMIT_DATA), weights and states on the drive;
    then it generates with half of the memory of its weights."""
    path = drives(b, "drive")
    document = on_drive(path)
    document["zero_optimization"].update(stage3_prefetch_bucket_size=0, stage3_max_live_parameters=100000000, sub_group_size=4194304)
    document["zero_optimization"]["offload_param"].update(buffer_size=100000000, buffer_count=2)
    document["aio"] = {"block_size": 1048576, "queue_depth": 16}
    shape = "n_embd=1600,n_layer=48,n_head=25,n_positions=1024,vocab_size=50257"
    words = b.common("xl", bf16=True, deepspeed=b.config("ds.json", document), config_overrides=shape, per_device_train_batch_size=1, block_size=256,
                     max_steps=3, gradient_checkpointing=True, warmup_steps=0, learning_rate=1e-4)

    def limited(words, limit):
        done = subprocess.run(b.command(1, words), env=dict(os.environ), capture_output=True, text=True, timeout=5000,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)))
        assert done.returncode == 0, done.stderr
        print(done.stdout + done.stderr)

    limited(words, 6 << 30)
    losses = b.losses("xl")
    assert len(losses) == 3 and losses[-1] < losses[0], losses
    # its weights have 2.9 GiB
    document["zero_optimization"].pop("offload_optimizer")
    limited(words_of_generation(b, "xl", b.config("generate.json", document)) + ["--bf16"], 3 << 29)
