"""No command destroys a run: what --overwrite_output_dir removes, what a stopped, killed or requeued run does, and how a run ends."""
import json
import os
import re
import shutil
import signal
import subprocess
import time

from support import TINY, damage, rank_of, ranks_of, refused, wait_for, zero


def steps_of(b, run):
    return sorted(int(p.name[5:]) for p in (b.work / run / "checkpoints").glob("step_*"))


def train_in_job(b, ranks, words, expect=0, **variables):
    """A training with these variables of the batch system in its environment."""
    done = subprocess.run(b.command(ranks, words), env=dict(b.environment(), **variables), capture_output=True, text=True, timeout=240)
    assert done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{done.stderr}"
    return done


def signal_after(b, run, words, steps, number):
    """Sends a signal to every rank once the run has made this many steps more. Returns the exit code and standard error."""
    before = len(b.losses(run)) if (b.work / run / "metrics.jsonl").exists() else 0
    started = subprocess.Popen(b.command(2, words), env=b.environment(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (b.work / run / "metrics.jsonl").exists() and len(b.losses(run)) > before + steps, 60)
    for pid in ranks_of(started.pid):
        os.kill(pid, number)
    _, stderr = started.communicate(timeout=60)
    return started.returncode, stderr


def overwrite_resumes_an_unfinished_run(b):
    """Stopped by signals, killed, stopped by the time limit: the advised command, with --overwrite_output_dir in it, resumes."""
    settings = dict(max_steps=400, per_device_train_batch_size=4, save_strategy="steps", save_steps=100)
    b.train(2, b.common("whole", **settings))
    words = b.common("run", overwrite_output_dir=True, **settings)
    for number, code in ((signal.SIGUSR1, 75), (signal.SIGTERM, 75), (signal.SIGINT, 75), (signal.SIGKILL, None)):
        if number == signal.SIGKILL:
            wanted = b.status("run")["step"]
        ended, stderr = signal_after(b, "run", words, 5, number)
        assert ended == code if code else ended != 0, f"exit {ended}\n{stderr}"
    kept = steps_of(b, "run")
    assert wanted in kept, (wanted, kept)
    done = b.train(2, words)
    lines = [line for line in done.stderr.splitlines() if "--overwrite_output_dir" in line]
    assert len(lines) == 1 and f"step_{kept[-1]:08}" in lines[0] and "--resume_from_checkpoint never" in lines[0], done.stderr
    assert set(kept) <= set(steps_of(b, "run")), "a resume removes checkpoints"
    assert b.losses("run") == b.losses("whole"), "losses differ after four interruptions"


def requests_travel_while_weights_are_updated(b):
    """Without clipping and overflow check the update does not wait for the all-reduce that carries the requests of the ranks: one rank's requests
    still save and stop all ranks after the same step, and the resumed run has the losses of one run."""
    ds = b.config("ds.json", zero(1, bf16={"enabled": True, "check_grad_overflow": False}))
    settings = dict(max_steps=300, per_device_train_batch_size=4, bf16=True, deepspeed=ds, max_grad_norm=0)
    b.train(2, b.common("complete", **settings))
    words = b.common("run", **settings)
    started = subprocess.Popen(b.command(2, words), env=b.environment(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (b.work / "run/metrics.jsonl").exists() and len(b.losses("run")) > 5, 60)
    one = ranks_of(started.pid)[1]
    os.kill(one, signal.SIGUSR2)
    wait_for(lambda: list((b.work / "run/checkpoints").glob("step_????????")), 60)
    os.kill(one, signal.SIGTERM)
    _, stderr = started.communicate(timeout=60)
    assert started.returncode == 75, (started.returncode, stderr)
    step = b.status("run")["step"]
    assert len(steps_of(b, "run")) == 2 and steps_of(b, "run")[-1] == step == len(b.losses("run")), (steps_of(b, "run"), step)
    b.train(2, words)
    assert b.losses("run") == b.losses("complete")


def overwrite_starts_fresh_after_a_completed_run(b):
    settings = dict(max_steps=6, save_strategy="steps", save_steps=3)
    words = b.common("run", overwrite_output_dir=True, **settings)
    b.train(2, words)
    first = b.status("run")
    assert first["completed"] is True and first["step"] == first["total_steps"] == 6, first
    b.train(2, b.common("run", do_train=None, do_eval=True))
    refused(b, 74, b.common("run", overwrite_output_dir=True, **dict(settings, train_file=str(b.work / "none.txt"))), "none.txt")
    assert steps_of(b, "run") == [3, 6], "neither an evaluation nor an attempt that was refused removes anything"
    done = b.train(2, words)
    (line,) = [line for line in done.stderr.splitlines() if "starting fresh" in line]
    for part in ("step_00000003 (", "step_00000006 (", "metrics.jsonl (", "MiB"):
        assert part in line, f"'{part}' is not in: {line}"
    assert "resuming" not in done.stderr and b.status("run")["run_id"] != first["run_id"]
    assert len(b.losses("run")) == 6 and steps_of(b, "run") == [3, 6]
    assert "are already done" in b.train(2, b.common("run", **settings)).stderr, "without the flag nothing is removed"


def never_starts_fresh(b):
    settings = dict(max_steps=400, per_device_train_batch_size=4, save_strategy="steps", save_steps=100)
    code, stderr = signal_after(b, "run", b.common("run", **settings), 5, signal.SIGTERM)
    assert code == 75, stderr
    kept, run_id = steps_of(b, "run"), b.status("run")["run_id"]
    refused(b, 64, b.common("run", resume_from_checkpoint="never", **settings), f"step_{kept[-1]:08}", "--overwrite_output_dir")
    assert steps_of(b, "run") == kept
    done = b.train(2, b.common("run", overwrite_output_dir=True, resume_from_checkpoint="never", **dict(settings, max_steps=4)))
    assert "starting fresh" in done.stderr and f"step_{kept[-1]:08} (" in done.stderr, done.stderr
    assert len(b.losses("run")) == 4 and b.status("run")["run_id"] != run_id


def a_requeued_job_keeps_its_progress(b):
    """A job that Slurm starts again resumes its own run, with each flag that starts fresh, and also when the run is complete."""
    for name, flags in (("overwritten", {}), ("never", {"resume_from_checkpoint": "never"})):
        settings = dict(flags, per_device_train_batch_size=4, overwrite_output_dir=True, save_strategy="steps", save_steps=2)
        b.train(2, b.common(name, max_steps=4, **settings))  # another job's, complete
        other = b.status(name)["run_id"]
        job = {"SLURM_JOB_ID": "4711", "TESSERA_LAUNCHER_CHECK": "0"}
        done = train_in_job(b, 2, b.common(name, max_steps=6, time_limit=0.0001, **settings), 75, **job)
        assert "starting fresh" in done.stderr, done.stderr
        mine = b.status(name)["run_id"]
        assert mine != other
        done = train_in_job(b, 2, b.common(name, max_steps=6, **settings), SLURM_RESTART_COUNT="1", **job)
        assert "starting fresh" not in done.stderr and "step_00000001" in done.stderr, done.stderr
        assert b.status(name)["run_id"] == mine and b.metrics(name)[0]["step"] == 1 and len(b.losses(name)) == 6
        done = train_in_job(b, 2, b.common(name, max_steps=6, **settings), SLURM_RESTART_COUNT="2", **job)
        assert "are already done" in done.stderr and b.status(name)["run_id"] == mine, done.stderr
        done = train_in_job(b, 2, b.common(name, max_steps=6, **settings), SLURM_RESTART_COUNT="1", **dict(job, SLURM_JOB_ID="4712"))
        assert "starting fresh" in done.stderr and b.status(name)["run_id"] != mine, "the first attempt of another job did not reach its training"
    stopped = b.common("plain", max_steps=6, overwrite_output_dir=True, save_strategy="steps", save_steps=2)
    b.train(2, stopped + ["--time_limit", "0.0001"], expect=75)
    done = train_in_job(b, 2, stopped, SLURM_RESTART_COUNT="1")
    assert "resuming from" in done.stderr and len(b.losses("plain")) == 6, done.stderr


def a_stale_time_limit_is_ignored(b):
    """SLURM_JOB_END_TIME in the past, as in a terminal of an earlier job: a warning, and the run completes."""
    done = train_in_job(b, 2, b.common("run", max_steps=3), SLURM_JOB_ID="4711", SLURM_JOB_END_TIME="1767225600", TESSERA_LAUNCHER_CHECK="0")
    assert "warning: SLURM_JOB_END_TIME=1767225600 is" in done.stderr and "time limit in" not in done.stderr, done.stderr
    assert len(b.losses("run")) == 3


def attempts_without_progress_end(b):
    """One step per start, three times: 78 with the reason, and a complete checkpoint; the next start counts again."""
    words = b.common("run", max_steps=9, time_limit=0.0001, save_strategy="no")
    for step, code in ((1, 75), (2, 75), (3, 78), (4, 75)):
        done = b.train(2, words, expect=code)
        assert b.status("run")["step"] == step and steps_of(b, "run")[-1] == step, b.status("run")
        assert ("the last 3 attempts were stopped after at most one step each" in done.stderr) == (code == 78), done.stderr


def one_rank_of_a_larger_job_is_named(b):
    """A batch script of 8 tasks that starts the program once: a warning with both numbers."""
    job = dict(SLURM_JOB_ID="4711", SLURM_NTASKS="8", TESSERA_LAUNCHER_CHECK="0")
    done = train_in_job(b, 1, b.common("run", max_steps=1), **job)
    assert "warning: the job has 8 tasks (SLURM_NTASKS), but this program runs on 1 rank" in done.stderr, done.stderr


def damage_is_named_and_nothing_is_removed(b):
    """All checkpoints damaged: 65 with the damage; a directory that cannot be read: 74. No message advises to remove the run."""
    settings = dict(max_steps=6, save_strategy="steps", save_steps=3)
    b.train(2, b.common("run", **settings))
    shard = ""
    for step in (3, 6):
        shard = damage(b, "run", step, "truncated")
    (b.work / "run/status.json").unlink()
    for flags in ({}, {"overwrite_output_dir": True}, {"resume_from_checkpoint": "true"}, {"resume_from_checkpoint": "auto"}):
        done = b.train(2, b.common("run", **settings, **flags), expect=65)
        message = next(line for line in done.stderr.splitlines() if "damaged" in line)
        assert "both checkpoints" in message and shard in message and "step_00000006" in message, message
        assert "overwrite" not in message and "never" not in message, message
        assert steps_of(b, "run") == [3, 6]
    shutil.rmtree(b.work / "run/checkpoints")
    (b.work / "run/checkpoints").write_text("a file where the directory belongs")
    done = b.train(2, b.common("run", overwrite_output_dir=True, **settings), expect=74)
    assert "checkpoints" in done.stderr and "Not a directory" in done.stderr, done.stderr
    if os.geteuid() != 0:
        (b.work / "run/checkpoints").unlink()
        (b.work / "run/checkpoints").mkdir(mode=0o000)
        refused(b, 74, b.common("run", overwrite_output_dir=True, **settings), "Permission denied", "checkpoints")


def a_second_interrupt_is_recorded(b):
    """A second SIGINT, more than a second after the first, ends a run that cannot finish its step; status.json says so."""
    words = b.common("run", max_steps=100000, save_strategy="steps", save_steps=5, per_device_train_batch_size=1)
    started = subprocess.Popen(b.command(2, words), env=b.environment(), stderr=subprocess.PIPE, text=True)
    wait_for(lambda: (b.work / "run/checkpoints/latest").exists() and "last_checkpoint" in b.status("run"), 60)
    ranks = sorted(ranks_of(started.pid), key=rank_of)
    os.kill(ranks[1], signal.SIGSTOP)  # rank 0 waits for it
    os.kill(ranks[0], signal.SIGINT)
    time.sleep(1.3)
    os.kill(ranks[0], signal.SIGINT)
    wait_for(lambda: not os.path.exists(f"/proc/{ranks[0]}/exe"), 60)
    os.kill(ranks[1], signal.SIGCONT)
    _, stderr = started.communicate(timeout=60)
    assert started.returncode not in (0, 75), f"exit {started.returncode}\n{stderr}"
    status, newest = b.status("run"), (b.work / "run/checkpoints/latest").read_text().strip()
    assert status["state"] == "failed" and status["exit_code"] == 130, status
    # a save that was being published when the process ended is on disk, but not in status.json
    last = status["last_checkpoint"]
    assert "second SIGINT" in status["reason"] and last in status["reason"] and int(newest[5:]) - int(last[5:]) in (0, 5), (newest, status)
    assert b.tool(["status", "--code", b.work / "run"]).stdout.strip() == "130"
    words[words.index("--max_steps") + 1] = str(status["step"] + 3)
    done = b.train(2, words + ["--overwrite_output_dir"])
    assert len(b.losses("run")) == status["step"] + 3 and newest in done.stderr, done.stderr


def saves_that_failed_are_no_success(b):
    """The last save failed: 74 with the model in place; also where a stop was asked for."""
    settings = dict(max_steps=6, save_strategy="steps", save_steps=2, per_device_train_batch_size=4)
    done = b.train(2, b.common("none", **settings), expect=74, faults="call=write,path=/checkpoints/,rank=1,do=ENOSPC")
    for part in ("training is complete", "its model is in", "No space left", "no checkpoint was written"):
        assert part in done.stderr, f"'{part}' is not said:\n{done.stderr}"
    status = b.status("none")
    assert status["state"] == "failed" and status["exit_code"] == 74 and status["step"] == 6 and "completed" not in status, status
    assert (b.work / "none/model.safetensors").exists() and steps_of(b, "none") == []
    words = b.common("last", overwrite_output_dir=True, **settings)
    done = b.train(2, words, expect=74, faults="call=write,path=/checkpoints/step_00000006,rank=0,do=EIO")
    assert "the newest one is of step 4" in done.stderr and steps_of(b, "last") == [2, 4], done.stderr
    done = b.train(2, words)
    assert "step_00000004" in done.stderr and steps_of(b, "last") == [2, 4, 6] and b.status("last")["completed"] is True, done.stderr
    words = b.common("stopped", **settings)
    done = b.train(2, words + ["--time_limit", "0.0001"], expect=74, faults="call=fsync,path=step_00000001,rank=0,do=EIO")
    assert "stopped by the time limit after step 1 of 6" in done.stderr and "there is no other" in done.stderr, done.stderr
    assert b.status("stopped")["exit_code"] == 74 and b.status("stopped")["step"] == 1
    b.train(2, words)
    assert b.losses("stopped") == b.losses("last")


def resume_names_the_import_command(b):
    """--resume_from_checkpoint with a checkpoint of DeepSpeed, or of the Hugging Face Trainer, says what to do; the named command works."""
    source = b.source / "tests/checkpoint/data/deepspeed/z2_w2_fp16"
    model = json.loads((source / "config.json").read_text())
    shutil.copytree(source, b.work / "ds/checkpoint-3")
    (b.work / "ds/config.json").write_text(json.dumps(model))
    words = b.common("run", model_type=None, config_overrides=None, config_name=str(source), tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow"),
                     train_file=str(b.source / "tests/checkpoint/data/deepspeed/text.txt"), block_size=16, max_steps=5, per_device_train_batch_size=3,
                     save_strategy="steps", save_steps=5, fp16=True, overwrite_output_dir=True)
    done = b.train(2, words + ["--resume_from_checkpoint", str(b.work / "ds/checkpoint-3")], expect=64)
    command = re.search(r"`tessera (import [^`]*)`", done.stderr).group(1).split()
    assert command == ["import", str(b.work / "ds/checkpoint-3"), str(b.work / "run/checkpoints")], command
    b.tool(command)
    done = b.train(2, words)
    assert "step_00000003" in done.stderr and [m["step"] for m in b.metrics("run") if "loss" in m] == [4, 5], done.stderr
    done = b.train(2, words + ["--resume_from_checkpoint", str(b.work / "ds/checkpoint-3")], expect=64)
    assert f"{b.work}/run.imported" in done.stderr and steps_of(b, "run") == [3, 5], done.stderr
    (b.work / "hf").mkdir()
    (b.work / "hf/trainer_state.json").write_text("{}")
    refused(b, 64, words + ["--resume_from_checkpoint", str(b.work / "hf")], "Hugging Face Trainer", "--model_name_or_path")


def resume_says_what_changed(b):
    """Every changed value is named; other data need --allow_changed_data, and the refusal lists all of them."""
    settings = dict(max_steps=4, save_strategy="steps", save_steps=2, per_device_train_batch_size=4, train_sampling_strategy="random")
    b.train(2, b.common("run", **settings))
    later = dict(settings, max_steps=6)
    copy = b.work / "copy.txt"
    shutil.copy(b.text, copy)
    done = b.train(1, b.common("run", **dict(later, train_file=str(copy), per_device_train_batch_size=8, learning_rate=1e-3, adam_beta2=0.95, bf16=True, seed=8,
                                             data_seed=7, save_steps=3, deepspeed=b.config("ds.json", zero(2)), config_overrides=TINY.replace("resid_pdrop=0.0", "resid_pdrop=0.1"))))
    (numbers,) = [line for line in done.stderr.splitlines() if "changed since step_00000004 was saved" in line]
    (rest,) = [line for line in done.stderr.splitlines() if "changed without effect" in line]
    for part in ("learning_rate was 0.01, is 0.001", "beta2 was 0.999, is 0.95", "dtype was fp32, is bf16", "total_steps was 4, is 6", "resid_pdrop was 0.0, is 0.1",
                 "seed was 7, is 8"):
        assert part in numbers, f"'{part}' is not in: {numbers}"
    for part in ("world_size was 2, is 1", "stage was 0, is 2", "micro_batch_size was 4, is 8", "save_steps was 2.0, is 3.0"):
        assert part in rest, f"'{part}' is not in: {rest}"
    assert "copy.txt" not in done.stderr.split("tokenized")[0], "the same text in another place is no change"
    shutil.rmtree(b.work / "run")
    b.train(2, b.common("run", **settings))
    done = b.train(2, b.common("run", **dict(later, per_device_train_batch_size=2)))
    assert "train_batch_size was 8, is 4" in done.stderr and "the samples between are read again" in done.stderr, done.stderr
    shutil.rmtree(b.work / "run")
    b.train(2, b.common("run", **settings))
    b.text.write_text(b.text.read_text().replace("manual", "book"))
    other = dict(later, block_size=16, validation_split_percentage=10, data_seed=9, max_train_samples=100)
    parts = (f"the content of train_file {b.text} has changed", "block_size was 32, is 16", "the part of train_file was all but the first 5 %, is all but the first 10 %",
             "data_seed was 7, is 9", "--allow_changed_data")
    (b.work / "run/status.json").unlink()  # as of a run that has not finished
    for flags in ({}, {"overwrite_output_dir": True}):
        refused(b, 64, b.common("run", **other, **flags), *parts)
    assert steps_of(b, "run") == [2, 4] and len(b.losses("run")) == 4
    done = b.train(2, b.common("run", allow_changed_data=True, **other))
    assert "step 5 reads the new data" in done.stderr and all(part in done.stderr for part in parts) and len(b.losses("run")) == 6, done.stderr
    refused(b, 64, b.common("run", allow_changed_data=False, **dict(other, max_steps=8, train_sampling_strategy="sequential")),
            "train_sampling_strategy was random, is sequential")
    refused(b, 65, b.common("run", config_overrides=TINY.replace("n_embd=32", "n_embd=64"), **other), "another model", "n_embd was 32, is 64")
