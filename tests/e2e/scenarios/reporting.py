"""What a run reports, which checkpoint is the best, and where the configuration may come from."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import zlib

from support import refused, zero


def scalars(file):
    """(step, tag, value) of a TensorBoard event file, without the library."""
    data, out = file.read_bytes(), []

    def varint(at):
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                return value, at

    def fields(at, end):
        while at < end:
            key, at = varint(at)
            if key & 7 == 0:
                value, at = varint(at)
            elif key & 7 == 2:
                size, at = varint(at)
                value, at = (at, at + size), at + size
            else:
                size = {1: 8, 5: 4}[key & 7]
                value, at = data[at:at + size], at + size
            yield key >> 3, value

    at = 0
    while at < len(data):
        size = struct.unpack_from("<Q", data, at)[0]
        event = dict(fields(at + 12, at + 12 + size))
        for number, value in fields(*event[5]) if 5 in event else ():
            entry = dict(fields(*value))
            out.append((event.get(2, 0), data[slice(*entry[1])].decode(), struct.unpack("<f", entry[2])[0]))
        at += size + 16
    return out


def near(a, b):
    return abs(a - b) <= 1e-6 * abs(b)


def reports_go_where_the_blocks_say(b):
    blocks = zero(1, steps_per_print=2, memory_breakdown=True, dump_state=True,
                  tensorboard={"enabled": True, "output_path": str(b.work / "tb"), "job_name": "job"},
                  csv_monitor={"enabled": "true", "output_path": str(b.work / "csv")},
                  flops_profiler={"enabled": True, "profile_step": 2, "output_file": str(b.work / "flops.txt")},
                  comms_logger={"enabled": True})
    words = dict(deepspeed=b.config("ds.json", blocks), max_steps=4, logging_strategy="no", report_to="tensorboard",
                 include_num_input_tokens_seen="all", per_device_train_batch_size=4)
    log = b.train(2, b.common("run", **words)).stderr
    metrics = [m for m in b.metrics("run") if "loss" in m]
    assert [line.split("step ")[1][:3] for line in log.splitlines() if "tokens/s" in line and "/4" in line] == ["2/4", "4/4"], log
    for text in ("time of step 2 (ms): data", '"steps_per_print"', "memory of rank 0 (now / peak): weights", "reduce_scatter", "busbw"):
        assert text in log, (text, log)
    logged = json.loads((b.work / "run/comms_logger.json").read_text())
    assert {"reduce_scatter", "all_gather"} <= {o["operation"] for o in logged["operations"]} and len(logged["came_last"]) == 2, logged
    rows = (b.work / "csv/DeepSpeedJobName/Train_Samples_train_loss.csv").read_text().splitlines()
    assert rows[0] == "step,train_loss" and [int(r.split(",")[0]) for r in rows[1:]] == [8, 16, 24, 32], rows
    assert all(near(float(r.split(",")[1]), m["loss"]) for r, m in zip(rows[1:], metrics))
    assert [m["num_input_tokens_seen"] for m in metrics] == [8 * 32 * s for s in (1, 2, 3, 4)]
    (events,) = (b.work / "tb/job").iterdir()
    found = [(step, value) for step, tag, value in scalars(events) if tag == "Train/Samples/train_loss"]
    assert [step for step, _ in found] == [8, 16, 24, 32] and all(near(v, m["loss"]) for (_, v), m in zip(found, metrics))
    (events,) = (b.work / "run/runs").iterdir()
    assert [s for s, tag, _ in scalars(events) if tag == "train/learning_rate"] == [2, 4]
    table = (b.work / "flops.txt").read_text()
    assert "profile of step 2 on rank 0 of 2 ranks: 4 sequences of 32 tokens" in table and "block.1" in table, table


def tensorboard_reads_event_files(b):
    """The real library reads what the small writer wrote, across a resume."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        print("skipped: Python has no tensorboard")
        sys.exit(77)
    words = dict(report_to="tensorboard", save_strategy="steps", save_steps=2, logging_dir=str(b.work / "runs"))
    b.train(1, b.common("run", max_steps=4, **words))
    b.train(1, b.common("run", max_steps=6, resume_from_checkpoint=2, **words))
    events = EventAccumulator(str(b.work / "runs"))
    events.Reload()
    losses = events.Scalars("train/loss")
    assert [e.step for e in losses] == [1, 2, 3, 4, 5, 6], losses
    assert all(near(e.value, loss) for e, loss in zip(losses, b.losses("run")))


def evaluations_continue_prompts(b):
    """Samples of every evaluation, on ranks that share the weights; those after the training are what --do_generate prints."""
    prompts = b.work / "prompts.txt"
    prompts.write_text("The ship\nA \"quoted\" word\n")
    words = dict(deepspeed=b.config("ds.json", zero(3)), validation_file=str(b.text), do_eval=True, eval_strategy="steps", eval_steps=2, max_steps=4,
                 eval_prompts=str(prompts), prompt_file=str(prompts), do_generate=True, max_new_tokens=8)
    done = b.train(2, b.common("run", **words) + ["--report_to", "tensorboard", "wandb"])
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    samples = {m["step"]: m["samples"] for m in b.metrics("run") if "samples" in m}
    assert sorted(samples) == [2, 4] and samples[4] == printed and samples[2] != samples[4], (samples, printed)
    text = printed[0]["prompt"] + printed[0]["text"]
    assert f"sample after step 4: {json.dumps(printed[0]['prompt'])} " in done.stderr, done.stderr
    (events,) = (b.work / "run/runs").iterdir()
    assert text.encode() in events.read_bytes() and b"eval/samples/1" in events.read_bytes()
    (file,) = (b.work / "run/wandb").glob("*/run-*.wandb")
    assert [row["eval/samples/0"] for row in wandb_rows(wandb_records(file)) if "eval/samples/0" in row][-1] == text
    words.update(eval_prompts=str(b.work / "missing.txt"))
    refused(b, 74, b.common("missing", **words), "cannot read the prompts in")
    refused(b, 64, b.common("no", do_eval=None, eval_prompts=str(prompts)), "--eval_prompts are continued by evaluations")


def best_checkpoint_is_kept_and_exported(b):
    words = dict(eval_strategy="steps", eval_steps=1, save_strategy="best", load_best_model_at_end=True, greater_is_better=True,
                 early_stopping_patience=3, save_total_limit=1)
    log = b.train(1, b.common("run", max_steps=20, **words)).stderr
    assert "early stopping after step 4 of 20: no better evaluation than eval_loss" in log, log
    assert "loaded the best checkpoint, of step 1" in log, log
    evaluations = [m["eval_loss"] for m in b.metrics("run") if "eval_loss" in m]
    assert evaluations[-1] == evaluations[0] and len(evaluations) == 5, evaluations
    assert b.status("run")["state"] == "done"
    again = b.train(1, b.common("run", max_steps=20, **words)).stderr
    assert "early stopping after step 4" in again and len(b.losses("run")) == 4, again
    refused(b, 64, b.common("no", load_best_model_at_end=True), "--eval_strategy is no")


def best_saved_checkpoint_is_exported(b):
    """Evaluations between saves: the best saved step is exported, not one that was never saved; its checkpoint stays."""
    words = dict(eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=2, load_best_model_at_end=True, save_total_limit=1)
    log = b.train(1, b.common("higher", max_steps=6, greater_is_better=True, **words)).stderr  # the loss falls: step 1 is the best
    assert "the best evaluation is of step 1, which was not saved" in log and "no saved step had the best evaluation" in log, log
    log = b.train(1, b.common("lower", max_steps=6, learning_rate=0.05, **words)).stderr
    evaluations = {m["step"]: m["eval_loss"] for m in b.metrics("lower") if "eval_loss" in m}
    best, saved = float("inf"), -1
    for step in range(1, 7):
        if evaluations[step] < best:
            best, best_step = evaluations[step], step
        if step % 2 == 0 and best_step == step:
            saved = step
    assert (b.work / f"lower/checkpoints/step_{saved:08}").exists(), (evaluations, saved)
    assert best_step == 6 or f"loaded the best checkpoint, of step {saved}" in log, log


def configurations_of_other_tools(b):
    """FSDP's names, Accelerate's YAML and Hjson train as the JSON of the same stage does."""
    flags = dict(max_steps=2, per_device_train_batch_size=4)
    b.train(2, b.common("json", deepspeed=b.config("ds.json", zero(3)), **flags))
    log = b.train(2, b.common("fsdp", fsdp="full_shard auto_wrap", **flags)).stderr
    assert "fsdp: full_shard is ZeRO stage 3" in log and "ZeRO stage 3 on 2 ranks" in log, log
    yaml = b.work / "accelerate.yaml"
    yaml.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: 'no'\nnum_processes: 2\n"
                    "deepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: none\n")
    b.train(2, b.common("yaml", accelerate_config=str(yaml), **flags))
    hjson = b.work / "ds.hjson"
    hjson.write_text("zero_optimization: {\n  stage: \"3\"  # text counts\n}\ntrain_batch_size: auto\n")
    b.train(2, b.common("hjson", deepspeed=str(hjson), **flags))
    for name in ("fsdp", "yaml", "hjson"):
        assert all(abs(x - y) <= 2e-6 * y for x, y in zip(b.losses(name), b.losses("json"))), name
    yaml.write_text("mixed_precision: [fp16\n")
    refused(b, 65, b.common("wrong", accelerate_config=str(yaml)), "not valid YAML: line")
    refused(b, 64, b.common("wrong", fsdp="full_shard ofload"), "known are full_shard")
    checked = json.loads(b.tool(["config", "check", hjson, "--ranks", "2"]).stdout)
    assert checked["stage"] == {"value": 3, "origin": "deepspeed"}, checked["stage"]


def configuration_can_be_explained(b):
    text = b.tool(["config", "explain", "stage"]).stdout
    assert "zero_optimization.stage (DeepSpeed JSON)" in text and "0: nothing is partitioned" in text, text
    text = b.tool(["config", "explain", "report_to"]).stdout
    assert "report_to (tessera-train)" in text and "`comet_ml`" in text, text
    assert "did you mean zero_optimization.stage?" in b.tool(["config", "explain", "zero_optimization.satge"], expect=64).stderr
    rates = b.tool(["config", "lr", "--steps", "4", "--", "--learning_rate", "1e-3", "--warmup_steps", "2"]).stdout.splitlines()
    assert rates == ["step,learning_rate", "1,0", "2,0.0005", "3,0.001", "4,0.0005"], rates
    picture = pathlib.Path(b.work / "lr.svg")
    b.tool(["config", "lr", "--steps", "100", "--plot", picture])
    assert "polyline" in picture.read_text()
    wrong = b.tool(["config", "check", "--", "--bf16", "--max_steps", "5", "--num_train_epochs", "1"])
    assert "warning: --max_steps overrides --num_train_epochs" in wrong.stderr, wrong.stderr


def wandb_records(file):
    """The records of a .wandb file: field number of the content, and its fields. LevelDB's log format with zlib's checksums."""
    log = file.read_bytes()
    assert log[:7] == b":W&B\xe1\xbe\x00", log[:7]
    at, data, records = 7, b"", []
    while at < len(log):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        checksum, length, kind = struct.unpack_from("<IHB", log, at)
        content = log[at + 7:at + 7 + length]
        assert zlib.crc32(bytes([kind]) + content) == checksum and (kind in (1, 2)) == (data == b""), (at, kind)
        assert at // 32768 == (at + 6 + length) // 32768, "a fragment crosses the border of a block"
        data += content
        at += 7 + length
        if kind in (1, 4):
            records.append([(field, value) for field, value in protobuf_fields(data)])
            data = b""
    assert [record[0] for record in records] == [(1, i + 1) for i in range(len(records))], "records are numbered"
    return [record[1] for record in records]


def protobuf_fields(data):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        assert key & 7 in (0, 2), key
        value = varint()
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        yield key >> 3, value


def wandb_rows(records):
    """The values of each history row."""
    rows = []
    for field, content in records:
        if field == 2:
            items = [dict(protobuf_fields(item)) for number, item in protobuf_fields(content) if number == 1]
            rows.append({item[2].decode(): json.loads(item[16]) for item in items})
    return rows


def trackers_read_the_run(b):
    """W&B's offline run and MLflow's file store have the values of metrics.jsonl, each step once, also after a resume that repeats steps."""
    words = dict(run_name="a \"run\"", save_strategy="steps", save_steps=2, eval_strategy="steps", eval_steps=3,
                 validation_file=str(b.text), do_eval=True, warmup_steps=1)
    environment = dict(b.environment(), WANDB_PROJECT="tests", WANDB_TAGS="one,two", MLFLOW_EXPERIMENT_NAME="tests")
    run = b.work / "run"

    def train(**more):
        flags = b.common("run", **{**words, **more}) + ["--report_to", "wandb", "mlflow"]
        done = subprocess.run(b.command(2, flags), env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        return done.stderr

    log = train(max_steps=5)
    (directory,) = (run / "wandb").iterdir()
    assert f"wandb sync {directory}" in log, log
    (file,) = directory.glob("run-*.wandb")
    first = wandb_records(file)
    assert first[-1][0] == 18, "the exit of a complete run is recorded"
    train(max_steps=200, resume_from_checkpoint=4, overwrite_output_dir=None)
    assert list((run / "wandb").iterdir()) == [directory], "a resume continues its run"
    records = wandb_records(file)
    fields = dict(protobuf_fields(records[1][1]))
    assert records[0][0] == 21 and records[1][0] == 17 and fields[3] == b"tests" and fields[8] == b'a "run"' and file.stat().st_size > 2 * 32768
    assert [value for number, value in protobuf_fields(records[1][1]) if number == 10] == [b"one", b"two"]
    config = {item[1].decode(): json.loads(item[16]) for item in (dict(protobuf_fields(item)) for number, item in protobuf_fields(fields[4]))}
    assert config["learning_rate"] == 0.01 and config["train_batch_size"] == 16 and config["model/num_parameters"] > 0, config
    rows = wandb_rows(records)
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    metrics = {line["step"]: line for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines()) if "loss" in line}
    losses = [(row["train/global_step"], row["train/loss"]) for row in rows if "train/loss" in row]
    assert losses == [(step, metrics[step]["loss"]) for step in range(1, 201)]
    assert [row["train/global_step"] for row in rows if "eval/loss" in row] == [*range(3, 201, 3), 200], "evaluations, and the one at the end"

    (store,) = [entry for entry in (run / "mlruns").iterdir()]
    (mlflow_run,) = [entry for entry in store.iterdir() if entry.is_dir()]
    meta = (mlflow_run / "meta.yaml").read_text()
    assert "status: 3\n" in meta and 'run_name: "a \\"run\\""\n' in meta and 'name: "tests"\n' in (store / "meta.yaml").read_text(), meta
    rows = [line.split() for line in (mlflow_run / "metrics/loss").read_text().splitlines()]
    assert [(int(step), float(value)) for _, value, step in rows] == losses
    assert (mlflow_run / "params/learning_rate").read_text() == "0.01"
    programs_read_the_trackers(file, run / "mlruns", losses)
    refused = subprocess.run(b.command(1, b.common("refused", report_to="mlflow")), env=dict(b.environment(), MLFLOW_TRACKING_URI="http://server"),
                             capture_output=True, text=True, timeout=60)
    assert refused.returncode == 78 and "MLFLOW_TRACKING_URI is http://server" in refused.stderr, refused.stderr


def programs_read_the_trackers(wandb_file, store, losses):
    """Reads both by the libraries of W&B and MLflow, where Python has them."""
    try:
        from wandb.proto import wandb_internal_pb2
    except ImportError:
        print("not compared with W&B's messages: Python has no wandb")
    else:
        for field, content in wandb_records(wandb_file):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(encoded_field(field, content))
            assert record.WhichOneof("record_type") in ("header", "run", "metric", "history", "summary", "exit"), record
    try:
        os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
        from mlflow.tracking import MlflowClient
    except ImportError:
        print("not read by MLflow: Python has no mlflow")
    else:
        client = MlflowClient(f"file://{store}")
        (run,) = client.search_runs([client.get_experiment_by_name("tests").experiment_id])
        assert run.info.run_name == 'a "run"' and run.info.status == "FINISHED", run.info
        assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "loss")] == losses


def encoded_field(field, content):
    def varint(value):
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    return varint(field << 3 | 2) + varint(len(content)) + content
