"""The tools of a login node: what they check, print and refuse before a job starts."""
import json
import os
import re
import signal
import subprocess
import time

from support import TINY, launcher_options, wait_for, zero


def config_check_takes_any_part(b):
    """A DeepSpeed JSON, a run file, options, or both; what cannot work ends as it would in a run."""
    ds = b.config("ds.json", zero(2, bf16={"enabled": True}, gradient_clipping=0.5))
    alone = b.tool(["config", "check", ds])
    resolved = json.loads(alone.stdout)
    assert resolved["stage"] == {"value": 2, "origin": "deepspeed"} and resolved["max_grad_norm"] == {"value": 0.5, "origin": "deepspeed"}, resolved
    assert resolved["micro_batch_size"] == {"value": 8, "origin": "default"} and resolved["train_batch_size"]["value"] == 8, resolved
    assert alone.stderr == "", alone.stderr

    both = json.loads(b.tool(["config", "check", ds, "--world-size", 16, "--", "--per_device_train_batch_size", "4"]).stdout)
    assert both["train_batch_size"]["value"] == 64 and both["micro_batch_size"] == {"value": 4, "origin": "flag"} and both["stage"]["value"] == 2, both
    options = b.tool(["config", "check", "--ranks", 2, "--", "--learning_rate", "3e-4"])
    assert json.loads(options.stdout)["learning_rate"] == {"value": 3e-4, "origin": "flag"}
    assert options.stderr.startswith("note: a run needs more: nothing to do"), options.stderr

    run_file = b.config("run.json", {"model_type": "gpt2", "tokenizer_name": "t", "train_file": "text", "do_train": True, "warmup_steps": 7, "deepspeed": zero(3)})
    for words in (["config", "check", run_file], ["config", "check", "--", run_file]):
        run = json.loads(b.tool(words).stdout)
        assert run["warmup_steps"] == {"value": 7.0, "origin": "run file"} and run["stage"]["value"] == 3, run

    # sizes that follow the model: its rule without a model, its number with one
    sizes = b.config("auto.json", {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"}})
    assert json.loads(b.tool(["config", "check", sizes]).stdout)["reduce_bucket_size"] == {"value": "auto: hidden size * hidden size", "origin": "derived"}
    assert json.loads(b.tool(["config", "check", sizes, "--hidden_size", 100]).stdout)["reduce_bucket_size"]["value"] == 10000
    tiny = ["--", "--model_type", "gpt2", "--config_overrides", "n_embd=32,n_head=2"]
    assert json.loads(b.tool(["config", "check", sizes] + tiny).stdout)["param_persistence_threshold"]["value"] == 320

    for code, words, text in ((64, [], "nothing to check"),
                              (64, [ds, "--", "--do_train"], "no model"),
                              (64, [ds, "--ranks", 0], "--ranks"),
                              (64, [ds, "--", "--learning_rat", "1"], "learning_rate"),
                              (64, [ds, "--", "--deepspeed", ds], "--deepspeed"),
                              (74, [b.work / "missing.json"], "missing.json"),
                              (78, [b.config("list.json", [1])], "list.json"),
                              (78, [b.config("typo.json", zero(2, gradient_cliping=1.0))], "gradient_clipping"),
                              (78, [b.config("batch.json", zero(2, train_batch_size=17)), "--ranks", 2], "17")):
        refused = b.tool(["config", "check"] + words, expect=code)
        assert text in refused.stderr and refused.stdout == "" and refused.stderr.count("\n") == 1, (words, refused)


def estimate_agrees_with_the_run(b):
    """The planned bytes of model states and activations are those that the run logs."""
    sizes = dict(block_size=128, per_device_train_batch_size=4, config_overrides=TINY.replace("n_embd=32", "n_embd=192").replace("n_positions=64", "n_positions=128"))
    for stage in (0, 2, 3):
        ds = b.config("ds.json", zero(stage, bf16={"enabled": True}))
        words = b.common(f"stage{stage}", max_steps=1, deepspeed=ds, **sizes)
        plans = json.loads(b.tool(["estimate", "--num_gpus_per_node", 2, "--json", "--"] + words + ["--use_cpu"]).stdout)["plans"]
        planned = next(p for p in plans if p["stage"] == stage and not p["gradient_checkpointing"])
        logged = re.search(r"\(weights ([\d.]+ \w+), gradients ([\d.]+ \w+), master weights ([\d.]+ \w+), optimizer states ([\d.]+ \w+);"
                           r".*activations ([\d.]+ \w+)", b.train(2, words).stderr).groups()
        for key, text in zip(("weights", "gradients", "master_weights", "optimizer_state", "activations"), logged):
            number, unit = text.split()
            value = float(number) * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit)
            assert abs(planned[key] - value) <= 0.01 * value + 0.05 * 1024 ** ["B", "KiB", "MiB", "GiB"].index(unit), (stage, key, planned[key], text)


def submit_checks_before_it_queues(b):
    """Options of sbatch and arguments of the training are refused before sbatch is called; GPUs are requested once."""
    good = b.common("run")
    script = b.tool(["submit", "multi-node", "--dry-run", "--site", "juwels", "--gpus-per-node", 2, "--time", "1-12:00:00", "--"] + good).stdout
    assert "#SBATCH --gres=gpu:2\n" in script and "#SBATCH --gpus-per-node" not in script and "#SBATCH --time=1-12:00:00" in script, script
    for option, value in (("--time", "abc"), ("--nodes", "0"), ("--nodes", ""), ("--ntasks-per-node", "-1"), ("--gpus-per-node", "none"), ("--after", "x"), ("--sbatch=--nodes=0", None)):
        done = b.tool(["submit", "multi-node", "--dry-run", option, *([value] if value is not None else []), "--"] + good, expect=64)
        assert option.removeprefix("--sbatch=").split("=")[0] in done.stderr and done.stdout == "", done
    assert "#SBATCH --constraint=gpu\n" in b.tool(["submit", "multi-node", "--dry-run", "--sbatch=--constraint=gpu", "--"] + good).stdout
    runs = b.work / "runs"
    runs.mkdir()
    for code, words, text in ((64, ["multi-node", "--"] + b.common("run", learning_rate="fast"), "fast"),
                              (64, ["requeue"], "nothing to do"),
                              (74, ["requeue", "--"] + b.common("run", train_file=str(b.work / "missing.txt")), "missing.txt"),
                              (78, ["single-node", "--ntasks-per-node", 3, "--"] + b.common("run", deepspeed=b.config("batch.json", zero(2, train_batch_size=16))), "16"),
                              (64, ["array", "--", runs], "no run files"),
                              (64, ["array"], "directory")):
        done = b.tool(["submit", words[0], "--dry-run"] + words[1:], expect=code)
        assert text in done.stderr and done.stdout.startswith("#!"), done
    b.tool(["submit", "requeue", "--dry-run", "--no-check"])
    (runs / "one.json").write_text(json.dumps({"learning_rate": "fast"}))
    b.tool(["submit", "array", "--dry-run", "--", runs], expect=78)
    b.tool(["submit", "consolidate", "--dry-run", "--", "run", "model.safetensors"])


def pbs_script_starts_its_ranks(b):
    """There is no PBS here: a program named qsub starts the script that it reads, as a job of one node with PBS_NODEFILE, and qstat tells its time limit."""
    tools = b.work / "bin"
    tools.mkdir()
    (b.work / "nodes").write_text("localhost\n" * 2)
    started = time.strftime("%a %b %d %H:%M:%S %Y")
    for name, text in (("qsub", f'cat >{b.work}/job.sh; cd /; PBS_JOBID=17.head PBS_O_WORKDIR={b.work} PBS_NODEFILE={b.work}/nodes exec bash {b.work}/job.sh'),
                       ("qstat", f'echo "    Resource_List.walltime = 01:00:00"; echo "    stime = {started}"'),
                       ("mpiexec", f'[[ $1 == --version ]] && exec {b.mpiexec} --version; exec {b.mpiexec} {" ".join(launcher_options(b.mpiexec))} "$@"')):
        (tools / name).write_text("#!/bin/bash\n" + text + "\n")
        (tools / name).chmod(0o755)
    environment = dict(b.environment(), PATH=f"{tools}:{b.bin}:{os.environ['PATH']}")
    words = [str(b.bin / "tessera"), "submit", "multi-node", "--pbs", "--nodes", "1", "--ntasks-per-node", "2", "--time", "60", "--"]
    done = subprocess.run(words + b.common("run"), env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    script = (b.work / "job.sh").read_text()
    assert "#PBS -l select=1:ncpus=32:mpiprocs=2\n" in script and "#PBS -l walltime=01:00:00\n" in script, script
    assert b.status("run")["world_size"] == 2 and b.status("run")["PBS_JOBID"] == "17.head", b.status("run")
    assert "time limit in " in done.stderr and len(b.losses("run")) == 6, done.stderr
    polaris = b.tool(["submit", "multi-node", "--dry-run", "--site", "polaris", "--account", "me", "--"] + b.common("run")).stdout
    assert "#PBS -l select=2:ncpus=64:mpiprocs=4:ngpus=4\n" in polaris and "#PBS -A me\n" in polaris, polaris
    refused = b.tool(["submit", "multi-node", "--dry-run", "--pbs", "--qos", "high", "--"] + b.common("run"), expect=64)
    assert "PBS has no equivalent of --qos" in refused.stderr, refused.stderr


def launch_takes_torchruns_options(b):
    """Numbers of nodes and ranks are translated, what has no effect is said, and no other Python program is replaced."""
    done = b.tool(["launch", "--dry-run", "--nproc_per_node=2", "--standalone", "--rdzv-id", "7", "run_clm.py", "--log_level", "debug", "--do_train"])
    lines = done.stderr.splitlines()
    assert re.fullmatch(r"mpi\S+ .*-np 2 \S*/tessera-train --log_level debug --do_train", lines[-1]), lines
    assert sorted(line.split(" has no effect")[0] for line in lines if "has no effect" in line) == ["note: --rdzv_id", "note: --standalone"], lines
    hosts = b.work / "hosts"
    hosts.write_text("n1 slots=8\nn2 slots=8\n")
    two = b.tool(["launch", "--dry-run", "-H", hosts, "--nnodes", 2, "--nproc-per-node", 4, "run_clm.py"])
    assert "-np 8 --host n1:4,n2:4" in two.stderr or "-hosts n1:4,n2:4 -np 8" in two.stderr, two.stderr  # Open MPI, Hydra
    for words, text in ((["train.py", "--lr", "1"], "train.py is a Python program"), (["--nnodes=1:2", "run_clm.py"], "1:2"), (["--num_processes", 2, "run_clm.py"], "--num_processes"),
                        (["--do_train"], "--do_train"), (["--num_gpus", 0, "run_clm.py"], "'0'")):
        refused = b.tool(["launch", "--dry-run"] + words, expect=64)
        assert text in refused.stderr and "mpirun" not in refused.stderr.split("note")[0].replace("srun or mpirun", ""), refused.stderr


def doctor_knows_a_living_run(b):
    """A run without a batch system: alive while it trains; after a kill without a checkpoint there is nothing to resume."""
    words = b.common("run", max_steps=1000000)
    run = subprocess.Popen(b.command(1, words), env=b.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: (b.work / "run/metrics.jsonl").exists() and len(b.losses("run")) >= 2, 60)
        told = b.tool(["doctor", "--why", b.work / "run"]).stdout
        assert "the run is running (process " in told and "killed" not in told and "no action needed" in told, told
    finally:
        owner = json.loads((b.work / "run/.lock").read_text())
        os.kill(owner["pid"], signal.SIGKILL)
        run.wait(timeout=60)
    told = b.tool(["doctor", "--why", b.work / "run"]).stdout
    assert "it was killed" in told and "starts from the first step" in told and "resume" not in told, told
