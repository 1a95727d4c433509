"""Model states that are shared within groups of ranks: MiCS, hybrid_shard."""
import json

from support import close, refused, zero


def _model(b, run):
    return (b.work / run / "model.safetensors").read_bytes()


def _mics(b, size, **more):
    return b.config(f"mics{size}_{len(more)}.json", {**zero(3), "zero_optimization": {"stage": 3, "mics_shard_size": size, **more}})


def shard_groups_train_as_plain_zero(b):
    """Two nodes of two ranks, a copy of the states on each: the sums of all ranks in the same order, so the same bits."""
    flags = dict(max_steps=4, max_grad_norm=0)
    b.train(4, b.common("plain", deepspeed=b.config("plain.json", zero(3)), **flags), nodes="2,2")
    log = b.train(4, b.common("mics", deepspeed=_mics(b, 2), **flags), nodes="2,2").stderr
    assert "ZeRO stage 3 in groups of 2 ranks on 4 ranks (2 nodes)" in log, log
    done = b.train(4, b.common("hybrid", fsdp="hybrid_shard auto_wrap", **flags), nodes="2,2")
    assert "within each node; gradients are summed over the nodes" in done.stderr, done.stderr
    for run in ("mics", "hybrid"):
        assert b.losses(run) == b.losses("plain") and len(b.losses(run)) == 4, (run, b.losses(run), b.losses("plain"))
        assert _model(b, run) == _model(b, "plain"), run
    # with another order of the sums, clipping and micro-steps: equal within rounding
    flags = dict(max_steps=6, gradient_accumulation_steps=2, per_device_train_batch_size=4)
    b.train(4, b.common("plain_accumulated", fsdp="shard_grad_op", **flags), nodes="2,2")
    for run, words, nodes in (("hybrid2", dict(fsdp="_hybrid_shard_zero2"), "2,2"), ("mics_node", dict(deepspeed=_mics(b, 2)), None),
                              ("mics_three", dict(deepspeed=_mics(b, 2)), "3,1")):
        b.train(4, b.common(run, **words, **flags), nodes=nodes)
        close(b.losses(run), b.losses("plain_accumulated"), 2e-5, run)


def shard_groups_gather_in_two_levels(b):
    """A group of four ranks on two nodes, of six on three."""
    two = _mics(b, 4, mics_hierarchical_params_gather=True)
    flags = dict(max_steps=3, max_grad_norm=0)
    results = []
    for run, ds in (("flat", _mics(b, 4)), ("two", two)):
        b.train(8, b.common(run, deepspeed=ds, per_device_train_batch_size=2, **flags), nodes="2,2,2,2")
        results.append((b.losses(run), _model(b, run)))
    assert results[0] == results[1], [r[0] for r in results]
    done = b.train(4, b.common("inside", deepspeed=_mics(b, 2, mics_hierarchical_params_gather=True)), expect=78, nodes="2,2")
    assert "groups of 2 ranks are within nodes of 2" in done.stderr, done.stderr
    done = b.train(4, b.common("flat_wanted", deepspeed=two, collectives="flat"), expect=78, nodes="2,2")
    assert "--collectives is flat" in done.stderr, done.stderr


def checkpoints_of_shard_groups_are_written_once(b):
    """Saved by groups, continued with any other layout, and the other way round."""
    flags = dict(max_steps=6, save_strategy="steps", save_steps=3)
    groups = dict(deepspeed=_mics(b, 2), per_device_train_batch_size=4)
    b.train(4, b.common("all", **{**flags, **groups}), nodes="2,2")
    shards = sorted(p.name for p in (b.work / "all/checkpoints/step_00000003").glob("shard_*"))
    assert len(shards) == 2, shards
    manifest = json.loads((b.work / "all/checkpoints/step_00000003/manifest.json").read_text())
    assert manifest["world_size"] == 2 and manifest["resolved_config"]["engine"]["shard_group_size"]["value"] == 2, manifest["world_size"]
    b.tool(["checkpoint", "verify", b.work / "all"])
    expected = b.losses("all")
    plain = dict(deepspeed=b.config("stage1.json", zero(1)))
    layouts = {"stage1_on_2": (2, {**plain, "per_device_train_batch_size": 8}, None), "stage1_on_1": (1, {**plain, "per_device_train_batch_size": 16}, None),
               "all_four": (4, dict(fsdp="full_shard", per_device_train_batch_size=4), "2,2"),
               "hybrid": (4, dict(fsdp="hybrid_shard_zero2", per_device_train_batch_size=4), "2,2"),
               "groups_of_four": (8, dict(deepspeed=_mics(b, 4), per_device_train_batch_size=2), "4,4")}
    for name, (ranks, words, nodes) in layouts.items():
        run = b.work / name
        (run / "checkpoints").mkdir(parents=True)
        (run / "checkpoints/step_00000003").symlink_to(b.work / "all/checkpoints/step_00000003")
        b.train(ranks, b.common(name, **{**flags, **words}, save_only_model=None), nodes=nodes)
        close([m["loss"] for m in b.metrics(name) if "loss" in m and m["step"] > 3], expected[3:], 2e-5, name)
    b.train(2, b.common("other", **{**flags, "max_steps": 3, **plain, "per_device_train_batch_size": 8, "lr_scheduler_type": "constant"}))
    b.train(4, b.common("other", **{**flags, **groups, "lr_scheduler_type": "constant"}), nodes="2,2")
    b.train(4, b.common("straight", **{**flags, **groups, "lr_scheduler_type": "constant"}), nodes="2,2")
    close(b.losses("other")[-3:], b.losses("straight")[-3:], 2e-5, "from stage 1 on 2 ranks to groups")


def shard_groups_that_do_not_fit_are_refused(b):
    def problem(*parts, nodes="2,2", ranks=4, **words):
        done = b.train(ranks, b.common("wrong", **words), expect=78, nodes=nodes)
        for part in parts:
            assert part in done.stderr, done.stderr

    problem("mics_shard_size is 3 on 4 ranks; it must divide", deepspeed=_mics(b, 3))
    problem("mics_shard_size is 8 on 4 ranks", deepspeed=_mics(b, 8))
    problem("partitions nothing", deepspeed=_mics(b, 1))
    problem("mics_shard_size is 2 at stage 2", deepspeed=b.config("two.json", {**zero(2), "zero_optimization": {"stage": 2, "mics_shard_size": 2}}))
    problem("the same number of consecutive ranks", fsdp="hybrid_shard", nodes="2,1", ranks=3)
    refused(b, 64, b.common("wrong", fsdp="hybrid_shards"), "hybrid_shard")


def secondary_shards_change_no_bit(b):
    """zero_hpz_partition_size 2 on two nodes: the losses and weights of plain stage 3."""
    hpz = b.config("hpz.json", {**zero(3), "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0, "zero_hpz_partition_size": 2}})
    flags = dict(max_steps=4, gradient_accumulation_steps=2, per_device_train_batch_size=4, validation_file=str(b.text), do_eval=True,
                 eval_strategy="steps", eval_steps=2, max_eval_samples=16)
    b.train(4, b.common("plain", deepspeed=b.config("plain.json", zero(3)), **flags), nodes="2,2")
    b.train(4, b.common("hpz", deepspeed=hpz, **flags), nodes="2,2")
    assert b.losses("hpz") == b.losses("plain") and len(b.losses("hpz")) == 4, (b.losses("hpz"), b.losses("plain"))
    assert _model(b, "hpz") == _model(b, "plain")
    done = b.train(4, b.common("three", deepspeed=b.config("three.json", {**zero(3), "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3}})),
                   expect=78, nodes="2,2")
    assert "zero_hpz_partition_size is 3 on 4 ranks" in done.stderr, done.stderr
    both = b.config("both.json", {**zero(3), "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2, "mics_shard_size": 2}})
    assert "MiCS gathers within its groups already" in b.train(4, b.common("both", deepspeed=both), expect=78, nodes="2,2").stderr


def plans_know_shard_groups(b):
    """Eight ranks on two nodes: states of four ranks, and only the gradients of a shard between nodes."""
    words = ["--num_nodes", "2", "--num_gpus_per_node", "4", "--json", "--", "--model_type", "gpt2", "--config_overrides",
             "n_embd=256,n_layer=2,n_head=4", "--per_device_train_batch_size", "1", "--block_size", "128", "--bf16"]

    def states(*more):
        plans = json.loads(b.tool(["estimate"] + words + list(more)).stdout)["plans"]
        return next(p for p in plans if p["stage"] == 3)

    hybrid, plain = states("--fsdp", "hybrid_shard"), states("--fsdp", "full_shard")
    for part in ("weights", "gradients", "master_weights", "optimizer_state"):
        assert abs(hybrid[part] / plain[part] - 2) < 0.02, (part, hybrid[part], plain[part])
    done = b.tool(["config", "explain", "mics_shard_size"])
    assert "share one copy" in done.stdout, done.stdout
    done = b.tool(["config", "check", "--ranks", "4", _mics(b, 2)])
    assert json.loads(done.stdout)["shard_group_size"]["value"] == 2, done.stdout
    assert "must divide" in b.tool(["config", "check", "--ranks", "4", _mics(b, 3)], expect=78).stderr
