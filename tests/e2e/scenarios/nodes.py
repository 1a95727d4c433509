"""Several nodes, simulated on one machine: one message per node and shard, and the same bits as flat collectives."""
import json
import subprocess

from support import refused, zero


def two_levels_change_no_bit(b):
    """Equal and unequal nodes, bf16 and fp32, stages that reduce-scatter and that gather: losses and weights of the flat run."""
    for sizes, stage, bf16 in (("2,2", 3, True), ("2,1", 2, False)):
        ranks = sum(int(size) for size in sizes.split(","))
        results = {}
        for choice in ("flat", "two-level", "auto"):
            ds = b.config("ds.json", zero(stage, bf16={"enabled": bf16}))
            output = f"{choice}_{stage}"
            done = b.train(ranks, b.common(output, bf16=bf16, deepspeed=ds, max_steps=4, collectives=choice), nodes=sizes)
            results[choice] = (b.losses(output), (b.work / output / "model.safetensors").read_bytes())
            assert ("links: inside nodes" in done.stderr + done.stdout) == (choice == "auto"), done.stderr
        assert len(results["flat"][0]) == 4, results["flat"][0]
        assert results["two-level"] == results["flat"] and results["auto"] == results["flat"], [r[0] for r in results.values()]


def two_levels_refuse_what_is_wrong(b):
    refused(b, 64, b.common("run", collectives="rings"), "--collectives", "two-level")
    done = b.train(2, b.common("run"), expect=78, nodes="2,1")
    assert "TESSERA_SIMULATED_NODES" in done.stderr + done.stdout, done.stderr
    for name, value in (("TESSERA_LINKS", "5,40"), ("TESSERA_SIMULATED_NETWORK", "20")):
        launch = b.command(3, b.common("run", collectives="auto"))
        done = subprocess.run(launch, env=dict(b.environment(), TESSERA_SIMULATED_NODES="2,1", **{name: value}), capture_output=True, text=True, timeout=60)
        assert done.returncode == 78 and f"{name} is '{value}'" in done.stderr + done.stdout, done.stderr


def collectives_are_timed(b):
    """tessera bench-comm on two simulated nodes: table, JSON and picture; a wrong group ends all ranks with one message."""
    def bench(*words, expect):
        launch = b.command(3, [])[:-1] + [str(b.bin / "tessera"), "bench-comm", "--largest", "16KiB", "--repetitions", "3", *words]
        done = subprocess.run(launch, env=dict(b.environment(), TESSERA_SIMULATED_NODES="2,1"), capture_output=True, text=True, timeout=120)
        assert done.returncode == expect, done.stderr
        return done
    files = b.work / "comm.json", b.work / "comm.svg"
    table = bench("--groups", "world,node", "--json", files[0], "--plot", files[1], expect=0).stdout
    assert "3 ranks on 2 nodes" in table and "group node 0: 2 ranks" in table, table
    rows = json.loads(files[0].read_text())["rows"]
    assert len(rows) == 2 * 8 * 3 and not any(row["wrong"] for row in rows), rows
    assert all(row["mpi_median_seconds"] > 0 for row in rows), rows
    assert files[1].read_text().count("<polyline") == 2 * 8 * 2
    errors = bench("--groups", "shard:2", expect=78).stderr
    assert errors.count("tessera: error: groups of 2 ranks cannot be formed of 3 ranks") == 1, errors


def gpus_are_tested(b):
    """tessera selftest --gpus on simulated devices: under mpirun, by itself, and what it refuses."""
    tool = str(b.bin / "tessera")

    def run(words, code=0):
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
        return done.stdout + done.stderr

    alone = run([tool, "selftest", "--gpus", "--device_memory", "64MiB", "--ranks", "2"])
    assert "no fault on 2 devices" in alone and "1 link inside nodes" in alone, alone
    started = run(b.command(2, [])[:-1] + [tool, "selftest", "--gpus", "--device_memory", "64MiB"])
    assert "no fault on 2 devices" in started and "all-gather" in started, started
    run([tool, "selftest", "--ranks", "2"], 64)
    run([tool, "selftest", "--gpus", "--profile", "x.json"], 64)
    done = subprocess.run([tool, "selftest", "--gpus"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 or done.returncode == 78 and "--device_memory" in done.stderr, done.stdout + done.stderr


def bytes_of_each_level_are_planned(b):
    """sent_bytes of metrics.jsonl, counted by the operations that are called, against the plan's formulas: every step after the first one, within
    0.1 % for the few bytes of the norm."""
    cases = ((1, "flat", False), (1, "flat", True), (2, "two-level", False), (2, "two-level", True), (3, "flat", True), (3, "two-level", True))
    for stage, choice, overlaps in cases:
        name = f"{choice}{stage}{overlaps}"
        ds = b.config("ds.json", zero(stage, zero_optimization={"stage": stage, "overlap_comm": overlaps}))
        words = b.common(name, deepspeed=ds, max_steps=4, collectives=choice,
                         per_device_train_batch_size=1, gradient_accumulation_steps=2, gradient_checkpointing=False)
        b.train(4, words, nodes="2,2")
        records = [json.loads(line) for line in (b.work / name / "metrics.jsonl").read_text().splitlines()]
        sent = [record["sent_bytes"] for record in records if "sent_bytes" in record][1:]
        assert len(sent) == 3 and all(set(each) == {"intra_node", "inter_node"} for each in sent), sent
        assert sent[0] == sent[1] == sent[2], (name, sent)
        b.tool(["plan", "--nodes", 2, "--gpus_per_node", 2, "--json", b.work / "plan.json", "--", *words, "--use_cpu"])
        choices = json.loads((b.work / "plan.json").read_text())["choices"]
        plan = next(c for c in choices if c["recompute"] == "none" and c["offload_optimizer"] == "none" and "mics_shard_size" not in c)
        for level, bytes_ in sent[0].items():
            assert bytes_ > 10000 and abs(plan["wire"][level] / bytes_ - 1) < 1e-3, (name, level, sent, plan["wire"])
