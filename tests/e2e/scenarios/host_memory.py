"""What leaves a device for host memory in a pass: activation checkpoints and weights."""
import json
import os
import subprocess

from support import refused, zero

BOUND = ["--device_memory", "256MiB"]
DEEP = "n_embd=64,n_layer=12,n_head=2,vocab_size=4096,n_positions=64,resid_pdrop=0.1,embd_pdrop=0.0,attn_pdrop=0.0"


def checkpointing(to_the_host, stage=1):
    return zero(stage, bf16={"enabled": True}, activation_checkpointing={"cpu_checkpointing": to_the_host, "partition_activations": True})


def activation_checkpoints_leave_the_device(b):
    """Trains the same model with a smaller peak on the device; what it needs is what the plan says; on CPUs a note."""
    results, memory, text = {}, {}, {}
    words = dict(bf16=True, config_overrides=DEEP, gradient_checkpointing=True, block_size=64, per_device_train_batch_size=64, max_steps=3)
    for place in (False, True):
        run = f"host_{place}"
        ds = b.config(f"{run}.json", checkpointing(place))
        done = b.train(2, b.common(run, deepspeed=ds, **words) + BOUND)
        results[place] = (b.losses(run), (b.work / run / "model.safetensors").read_bytes())
        memory[place] = b.status(run)["memory"]
        text[place] = done.stdout + done.stderr
    assert results[True] == results[False], [r[0] for r in results.values()]
    stream = 64 * 64 * 64 * 2  # rows, tokens, width, bf16
    granule = 2 << 20
    saved = memory[False]["device"]["peak"] - memory[True]["device"]["peak"]
    assert abs(saved - 10 * stream) <= granule and saved > 0, (saved, stream, memory)
    more = memory[True]["pinned"]["peak"] - memory[False]["pinned"]["peak"]
    piece = 5 << 19  # of the last save, which holds one or two of them when the memory is read
    assert abs(more - 10 * stream) <= piece, (more, stream, memory)
    assert "activation checkpoints: 5.0 MiB per rank in host memory" in text[True], text[True]
    assert "partition_activations: no effect: without model parallelism" in text[True], text[True]
    assert "activation checkpoints:" not in text[False], text[False]
    assert "computes on CPUs" not in text[True], text[True]

    plan = json.loads(b.tool(["estimate", "--num_gpus_per_node", "2", "--json", "--"] + b.common("plan", deepspeed=b.config("plan.json", checkpointing(True)),
                                                                                                **words)).stdout)
    one = next(p for p in plan["plans"] if p["stage"] == 1 and p["gradient_checkpointing"])
    assert one["host_checkpoints"] == 10 * stream, one

    on_cpus = b.train(1, b.common("cpus", deepspeed=b.config("cpus.json", checkpointing(True)), **words))
    assert "cpu_checkpointing: no effect where the model computes on CPUs" in on_cpus.stderr + on_cpus.stdout, on_cpus.stderr
    words["gradient_checkpointing"] = False
    without = b.train(1, b.common("without", deepspeed=b.config("without.json", checkpointing(True)), **words) + BOUND)
    assert "cpu_checkpointing: no effect without --gradient_checkpointing" in without.stderr + without.stdout, without.stderr
    words["gradient_checkpointing"] = True
    refused(b, 70, b.common("bounded", deepspeed=b.config("bounded.json", checkpointing(True)), **words) + BOUND + ["--host_memory", "64KiB"],
            "55.8 KiB per rank are left (--host_memory); use a smaller --per_device_train_batch_size")


WIDE = "n_embd=256,n_layer=20,n_head=4,vocab_size=4096,n_positions=64,resid_pdrop=0.0,embd_pdrop=0.0,attn_pdrop=0.0"
WEIGHTS = 2 * (20 * (12 * 256 * 256 + 13 * 256) + (4096 + 64 + 2) * 256)  # bytes in bf16


def streamed(place, drive, optimizer="cpu"):
    document = zero(3, bf16={"enabled": True})
    document["zero_optimization"].update(stage3_prefetch_bucket_size=0, sub_group_size=200000, offload_optimizer={"device": optimizer})
    if place != "none":
        document["zero_optimization"]["offload_param"] = {"device": place, "nvme_path": str(drive), "max_in_cpu": 1000000}
    return document


def weights_stream_to_the_device(b):
    """A model larger than the device trains, is evaluated and generates, with weights in host memory and on a drive: the same bits."""
    drive = b.work / "drive"
    drive.mkdir()
    words = dict(bf16=True, config_overrides=WIDE, gradient_checkpointing=True, per_device_train_batch_size=2, max_steps=3, validation_file=str(b.text), do_eval=True,
                 max_eval_samples=8, per_device_eval_batch_size=2)
    for ranks in (1, 2):
        results, memory = {}, {}
        for place in ("none", "cpu", "nvme"):
            run = f"{place}_{ranks}"
            bound = "256MiB" if place == "none" else f"{WEIGHTS * 8 // 10}"
            done = b.train(ranks, b.common(run, deepspeed=b.config(f"{run}.json", streamed(place, drive)), **words) + ["--device_memory", bound])
            metrics = b.metrics(run)
            results[place] = (b.losses(run), [m["eval_loss"] for m in metrics if "eval_loss" in m], (b.work / run / "model.safetensors").read_bytes())
            memory[place] = b.status(run)["memory"]
            text = done.stdout + done.stderr
            (offloaded,) = [line for line in text.splitlines() if "offloaded states per rank" in line]
            assert ("(weights " in offloaded) == (place != "none"), offloaded
        assert results["cpu"] == results["none"] and results["nvme"] == results["none"], [r[:2] for r in results.values()]
        assert memory["none"]["device"]["peak"] - memory["cpu"]["device"]["peak"] > WEIGHTS // ranks // 2, memory
        assert memory["nvme"]["nvme"]["now"] > 0 and memory["nvme"]["pinned"]["now"] < memory["cpu"]["pinned"]["now"], memory

    for run in ("cpu_1", "cpu_2", "nvme_1", "nvme_2"):  # the depth is chosen in the third step
        prefetch = b.status(run)["prefetch"]
        assert 1 <= prefetch["units_ahead"] <= prefetch["max_units_ahead"], (run, prefetch)
        assert prefetch["transfer_seconds"] > 0 and prefetch["compute_seconds"] > 0 and prefetch["waiting_seconds"] >= 0, (run, prefetch)
        assert (1 <= prefetch["read_units_ahead"] <= prefetch["max_read_units_ahead"]) == run.startswith("nvme"), (run, prefetch)
    assert "weights are transferred 1 unit ahead of the computation, and read " in text, text  # stage3_prefetch_bucket_size is 0

    texts = set()
    for place, ranks in (("none", 1), ("cpu", 1), ("cpu", 2), ("nvme", 1)):
        bound = "256MiB" if place == "none" else f"{WEIGHTS // 2}"
        generate = ["--model_name_or_path", str(b.work / "none_1"), "--do_generate", "--prompt", "the", "--max_new_tokens", "6", "--temperature", "0", "--bf16",
                    "--deepspeed", b.config("generate.json", streamed(place, drive)), "--device_memory", bound]
        texts.add(b.train(ranks, generate).stdout)
    assert len(texts) == 1, texts

    refused(b, 70, b.common("all", deepspeed=b.config("all.json", streamed("none", drive)), **dict(words, max_steps=1)) + ["--device_memory", "4MiB"],
            "raise --device_memory")
    adapter = b.common("lora", deepspeed=b.config("lora.json", streamed("cpu", drive)), bf16=True, model_name_or_path=str(b.work / "none_1"), model_type=None,
                       config_overrides=None, tokenizer_name=None, use_peft_lora=True, lora_target_modules="all-linear")
    log = b.train(2, adapter + BOUND).stderr  # the same bits as without offload: offloaded_adapters.py
    assert "host memory of offloaded states per rank" in log and len(b.losses("lora")) == 6, log


def host_memory_prefers_the_nodes_of_the_cores(b):
    """On a machine with two NUMA nodes, which hwloc describes instead of this one, a rank that is bound to one of them places its host memory
    there; one that the system lacks is named. Without a choice nothing is said. The result does not depend on it."""
    def run(name, cores, machine):
        words = b.common(name, bf16=True, deepspeed=b.config(f"{name}.json", streamed("cpu", b.work)), max_steps=2) + BOUND
        done = subprocess.run(["taskset", "-c", cores, *b.command(1, words)], env=dict(b.environment(), **machine), capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stderr, b.losses(name)

    two_nodes = dict(HWLOC_SYNTHETIC="pack:2 node:1 core:1 pu:1")
    if len(os.sched_getaffinity(0)) < 2 or not {0, 1} <= os.sched_getaffinity(0):
        print("SKIPPED: needs cores 0 and 1")
        raise SystemExit(77)
    near, losses = run("near", "0", two_nodes)
    assert "host memory of rank 0 prefers NUMA node 0, next to its cores" in near or "(the system refuses mbind)" in near, near
    for name, cores, machine, said in (("everywhere", "0,1", two_nodes, ""), ("real", "0", {}, None)):
        log, found = run(name, cores, machine)
        assert said is None or "NUMA" not in log, log
        assert found == losses, (name, found, losses)
