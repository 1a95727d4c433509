"""Silent corruption and slow ranks: a bit flipped in the memory of a running rank, and a rank that gets half of its core."""
import os
import signal
import threading
import time

from scenarios.recovery import Supervised
from support import TINY, rank_of, safetensors, wait_for, zero

UNCHANGED = 1e-30  # a learning rate that changes no weight other than zeros
SLOWER = "n_embd=192,n_layer=4,n_head=2,vocab_size=4096,n_positions=64,resid_pdrop=0.0,embd_pdrop=0.0,attn_pdrop=0.0"


def places_of(pid, pattern):
    """Addresses of a pattern in the writable memory of a process."""
    found = []
    if not os.access(f"/proc/{pid}/mem", os.W_OK):
        print("SKIPPED: the memory of other processes may not be written here; train.verification covers it")
        raise SystemExit(77)
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            area, rights = line.split()[:2]
            begin, end = (int(at, 16) for at in area.split("-"))
            if not rights.startswith("rw") or end - begin > 1 << 28 or "[v" in line:
                continue
            try:
                memory.seek(begin)
                held = memory.read(end - begin)
            except OSError:
                continue
            at = held.find(pattern)
            while at >= 0:
                found.append(begin + at)
                at = held.find(pattern, at + 1)
    return found


def flip(pid, address, bit=1):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        byte = memory.read(1)[0] ^ (1 << bit)
        memory.seek(address)
        memory.write(bytes([byte]))


def a_flipped_weight_is_found_and_its_node_left_out(b):
    """Four ranks as four nodes at stage 0. The memory of one of them gets one wrong bit: within verify_steps steps the run ends, names rank, node and unit, and starts again without the node."""
    flip_and_lose_a_node(b, stage=0)


def a_flipped_master_weight_of_one_rank_is_found(b):
    """Stage 3: the master weights of a rank get one wrong bit, of which no other rank has a copy."""
    flip_and_lose_a_node(b, stage=3)


def flip_and_lose_a_node(b, stage):
    run = Supervised(b, steps=100000, stage=stage)
    more = dict(learning_rate=UNCHANGED, weight_decay=0, verify_steps=4, threads=1, save_strategy="no", do_eval=None, eval_strategy="no")
    b.train(2, run.words("first", 2, **dict(more, max_steps=1)))
    model = safetensors(b.work / "first/model.safetensors")
    weights = next(value[2] for name, value in model.items() if name.endswith("h.0.mlp.c_fc.weight"))
    supervisor = run.start("run", "1,1,1,1", **more)
    wait_for(lambda: run.steps("run") >= 6 and len(run.ranks(supervisor)) == 4, 60)
    ranks = [run.ranks(supervisor)[2]] if stage < 3 else run.ranks(supervisor)
    places = [(pid, place) for pid in ranks for place in places_of(pid, weights[len(weights) // 2:][:64])]
    assert places, "the weights are not in the memory of the ranks"
    found = lambda: (b.work / "run/recovery.json").exists() and run.history("run")["failures"]
    # some places are copies that nothing reads; and ranks of a machine map memory of each other
    for pid, place in places:
        at = run.steps("run")
        flip(pid, place)
        wait_for(lambda: found() or run.steps("run") >= at + 10, 60)
        if found():
            break
    assert found(), f"none of {len(places)} flipped bits was found"
    failure = found()[0]
    assert failure["kind"] == "silent corruption" and failure["node_excluded"] and failure["exit_code"] == 69, failure
    assert "master weights or optimizer states of unit block.0" in failure["reason"], failure
    assert at <= failure["step"] <= at + 10, (failure, at)
    def two_ranks_train():
        status = b.status("run")
        return status["world_size"] == 2 and status["state"] == "running" and status.get("step", 0) >= 5
    wait_for(two_ranks_train, 60)
    supervisor.send_signal(signal.SIGTERM)
    said = run.finish(supervisor, 75)
    assert f"node {failure['node']} is not used again" in said, said
    assert run.history("run")["ranks"] == 2 and len(run.history("run")["failures"]) == 1, run.history("run")


def verified_steps_raise_no_alarm(b):
    """Every step verified, at each stage, with dropout, accumulation and 16-bit products: the losses of a run without verification, on two and three ranks."""
    overrides = TINY + ",resid_pdrop=0.1,embd_pdrop=0.1,attn_pdrop=0.1"
    steps = int(os.environ.get("TESSERA_VERIFIED_STEPS", 12))
    for stage in range(4):
        for ranks, more in ((2, {}), (3, dict(bf16=True, gradient_accumulation_steps=2)), (2, dict(recompute="block")), (2, dict(fp16=True))):
            flags = dict(config_overrides=overrides, deepspeed=b.config("ds.json", zero(stage)), max_steps=steps, threads=1, save_strategy="steps",
                         save_steps=steps // 2, **more)
            b.train(ranks, b.common("plain", overwrite_output_dir=True, **flags), timeout=1200)
            b.train(ranks, b.common("verified", overwrite_output_dir=True, verify_steps=1, **flags), timeout=1200)
            assert b.losses("verified") == b.losses("plain"), (stage, ranks, more)
            assert "corruption" not in b.status("verified")


def verification_is_refused_where_bits_may_differ(b):
    done = b.train(2, b.common("refused", verify_steps=2, deterministic="false"), expect=78)
    assert "--verify_steps with --deterministic false" in done.stderr, done.stderr
    done = b.train(1, b.common("one", verify_steps=2, threads=1))
    assert "--verify_steps has no effect on one rank" in done.stderr, done.stderr


def named_after(b, step):
    """The first record that names a slow rank after a step; None: there is none yet."""
    return next((m for m in b.metrics("run") if "stragglers" in m and m["step"] > step), None)


def a_throttled_rank_is_named(b):
    """Rank 1 is stopped for half of the time. It is named in the log, status.json and metrics.jsonl."""
    run = Supervised(b, steps=100000, stage=1)
    supervisor = run.start("run", "2", config_overrides=SLOWER, block_size=64, save_strategy="no", do_eval=None, eval_strategy="no")
    wait_for(lambda: run.steps("run") >= 30 and len(run.ranks(supervisor)) == 2, 120)
    victim = next(pid for pid in run.ranks(supervisor) if rank_of(pid) == 1)
    first, ends = run.steps("run"), threading.Event()

    def throttle():
        while not ends.is_set():
            os.kill(victim, signal.SIGSTOP)
            time.sleep(0.04)
            os.kill(victim, signal.SIGCONT)
            time.sleep(0.04)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        wait_for(lambda: named_after(b, first), 60)
        wait_for(lambda: b.status("run").get("stragglers"), 10)
    finally:
        ends.set()
        thread.join()
    named = named_after(b, first)
    print(f"throttled from step {first}, named after step {named['step']}: {named['stragglers']}")
    assert named["stragglers"][0]["rank"] == 1 and named["stragglers"][0]["slow"] == "computing", named
    assert named["step"] <= first + 25, (first, named)  # some steps pass until the first stop
    supervisor.send_signal(signal.SIGTERM)
    said = run.finish(supervisor, 75)
    assert "rank 1" in said and "times slower than the others" in said, said


def a_slow_disk_is_named(b):
    """Every write of rank 1 takes 20 ms longer."""
    words = b.common("run", config_overrides=SLOWER, block_size=64, save_strategy="steps", save_steps=3, max_steps=3, deepspeed=b.config("ds.json", zero(1)))
    done = b.train(2, words, faults="path=shard_,rank=1,do=slow")
    assert "rank 1 on node" in done.stderr and "s to write its part of the checkpoint" in done.stderr, done.stderr
    assert "to write its part" not in b.train(2, [*words, "--overwrite_output_dir"]).stderr
