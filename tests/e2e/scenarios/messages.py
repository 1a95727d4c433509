"""What the programs say: lines of a run, memory before training, answers to signals, wrong command lines."""
import os
import re
import resource
import signal
import subprocess

from support import TINY, ranks_of, refused, wait_for


def first_line_and_summary(b):
    done = b.train(2, b.common("run", per_device_train_batch_size=4, max_steps=5, logging_steps=500, save_strategy="steps", save_steps=5))
    assert re.findall(r"step (\d)/5 ", done.stderr) == ["1", "5"], done.stderr
    summary = next(line for line in done.stderr.splitlines() if " trained " in line)
    # 5 steps of 8 samples of 32 tokens
    assert re.search(r"trained 5 steps in \d+s: 1,280 tokens, \d+ tokens/s, loss [\d.]+ in the last step, [\d.]+ on average", summary), summary
    files = done.stderr.splitlines()[-1]
    assert "files in" in files and "checkpoints (1), the model (" in files and "metrics.jsonl, train_results.json" in files, done.stderr
    again = b.train(2, b.common("run", per_device_train_batch_size=4, max_steps=5, save_strategy="steps", save_steps=5))
    assert "trained" not in again.stderr, again.stderr


def memory_is_refused_before_training(b):
    """With an address space of 6 GiB: the message names a batch size; that one trains."""
    if "TESSERA_SANITIZE" in os.environ:
        print("SKIPPED: the address sanitizer needs more address space")
        raise SystemExit(77)
    def train(batch, expect, **more):
        words = b.common("run", per_device_train_batch_size=batch, block_size=1024, max_steps=1, overwrite_output_dir=True,
                         config_overrides="n_embd=768,n_head=12,n_layer=2,vocab_size=4096,n_positions=1024", **more)
        limit = (6 << 30, 6 << 30)
        return b.train(1, words, expect=expect, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    b.text.write_text(b.text.read_text() * 20)
    refusal = train(600, 70).stderr
    found = re.search(r"micro-batch with 600 x 1024 tokens need (\d+\.\d) GiB on each of 1 rank .* \d\.\d GiB per rank are left "
                      r"\(address space limit .*\); use --per_device_train_batch_size (\d+) with", refusal)
    assert found, refusal
    assert "step 1/1" not in refusal and not (b.work / "run/metrics.jsonl").exists(), refusal
    # kept by each of 2 layers: 15 values of n_embd per token (docs: 15 R width), and the input
    least = 600 * 1024 * 768 * 4 * (2 * 16) / 2**30
    assert least < float(found.group(1)) < 2 * least, (least, refusal)
    fits = int(found.group(2))
    assert 0 < fits < 100, refusal
    train(min(fits, 2), 0)


def signal_within_a_step(b):
    """A step of very many micro-steps: the run answers inside it. Resumed, it continues from the last complete step."""
    long_step = dict(per_device_train_batch_size=1, gradient_accumulation_steps=100000, max_steps=3, num_train_epochs=None, save_strategy="no",
                     config_overrides=TINY.replace("n_embd=32", "n_embd=384").replace("n_layer=2", "n_layer=4"))  # an epoch is one step of many seconds
    for stage in (0, 3):
        run = f"stage{stage}"
        document = {"zero_optimization": {"stage": stage}}
        started = subprocess.Popen(b.command(2, b.common(run, deepspeed=b.config(f"{run}.json", document), **long_step)), env=b.environment(),
                                   stderr=subprocess.PIPE, text=True)
        wait_for(lambda: (b.work / run / "status.json").exists() and b.status(run)["state"] == "running", 100)
        os.kill(ranks_of(started.pid)[1], signal.SIGTERM)
        _, stderr = started.communicate(timeout=100)
        assert started.returncode == 75, f"exit {started.returncode}\n{stderr}"
        status = b.status(run)
        assert status["step"] == 0 and "stopped by SIGTERM before step 1 of 3 was complete" in status["reason"], status
        assert b.losses(run) == [], "no step was complete"


def wrong_commands(b):
    """One prefix, the nearest name, the help of the command that was called, and 64."""
    for program, words, message in (
            ("tessera", [], "tessera needs a command: "),
            ("tessera", ["chekpoint"], "unknown command 'chekpoint'; did you mean checkpoint?; see tessera --help"),
            ("tessera", ["checkpoint", "verfy", "x"], "unknown command 'verfy'; did you mean verify?; see tessera checkpoint --help"),
            ("tessera", ["checkpoint", "prune", "x", "--keep", "-1"], "--keep is -1; it must be an integer of at least 1; see tessera checkpoint prune --help"),
            ("tessera", ["export", "x"], "argument output_dir is missing"),
            ("tessera", ["plot", "x", "--outptu", "y"], "unknown option --outptu; did you mean --output?; see tessera plot --help"),
            ("tessera", ["manual", "tesera"], "which is \"tesera\"; it must be one of tessera-train, tessera, zero-to-fp32, completion; did you mean tessera?"),
            ("zero-to-fp32", ["x"], "argument output is missing"),
            ("zero-to-fp32", ["x", "y", "--dtipe", "z"], "unknown option --dtipe; did you mean --dtype?; see zero-to-fp32 --help"),
            ("tessera-train", ["--do_trian"], "unknown option --do_trian; did you mean --do_train?; see tessera-train --help"),
            ("tessera-train", ["--learning_rate", "nan"], "--learning_rate is nan; it must be a number of at least 0"),
            ("tessera-train", ["--max_steps", "1e30"], "--max_steps is 1e30; it must be an integer of at least -1")):
        done = b.tool(words, expect=64, program=program)
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith(f"{program}: error: ") and message in lines[0], (words, done.stderr)
        assert not re.search(r"\d{20}|e\+308|-nan", done.stderr), done.stderr


def sizes_are_quoted(b):
    """A batch that cannot be: the message names what was written, never a derived 0."""
    document = {"train_batch_size": 12, "train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": 1}}
    done = refused_text(b, b.common("x", per_device_train_batch_size=None, deepspeed=b.config("a.json", document)))
    assert "train_batch_size is 12, but it must be train_micro_batch_size_per_gpu 8 * gradient_accumulation_steps * ranks 2, a multiple of 16;" in done, done
    assert " 0" not in done.split("train_batch_size is 12")[1], done
    document = {"train_batch_size": 17, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}
    done = refused_text(b, b.common("x", per_device_train_batch_size=None, deepspeed=b.config("b.json", document)))
    assert "train_batch_size is 17, but it must be train_micro_batch_size_per_gpu 4 * gradient_accumulation_steps 2 * ranks 2 = 16;" in done, done


def refused_text(b, words):
    return b.train(2, words, expect=78).stderr


def tokenize_reads_files_and_standard_input(b):
    tokenizer, text = b.source / "configs/gpt2-8m", "the hacker reads the manual.\na system breaks nothing at all.\n"
    (b.work / "two.txt").write_text(text)
    expected = b.tool(["tokenize", tokenizer, text]).stdout
    assert len(expected.split()) > 8, expected
    assert b.tool(["tokenize", tokenizer, "--file", b.work / "two.txt"]).stdout == expected
    for words in ([], ["-"], ["--file", "-"]):
        done = subprocess.run([b.bin / "tessera", "tokenize", tokenizer] + words, input=text, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, expected), (words, done)
    b.tool(["tokenize", tokenizer, "--file", b.work / "missing.txt"], expect=74)


def selftest_marks_what_it_left_out(b):
    done = b.tool(["selftest", "--dir", b.work])
    skipped = [line.split(":")[0] for line in done.stdout.splitlines() if " SKIPPED " in line]
    last = done.stdout.splitlines()[-1]
    assert "this installation works on this machine" in last, done.stdout
    assert ("not tested: " + ", ".join(skipped) in last) if skipped else "not tested" not in last, done.stdout
    assert " ok " in done.stdout and not re.search(r"ok .*skipped", done.stdout), done.stdout


def signal_while_text_is_generated(b):
    """The text appears token by token; SIGTERM ends it on both ranks with 75 and the text so far."""
    words = b.common("run", max_steps=1, do_generate=True, prompt="the hacker", max_new_tokens=1000000, per_device_train_batch_size=4,
                     config_overrides=TINY.replace("n_positions=64", "n_positions=200000"))
    output = b.work / "text.out"
    with output.open("w") as out:
        started = subprocess.Popen(b.command(2, words), env=b.environment(), stdout=out, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: len(output.read_text(errors="replace")) > 40, 100)
        os.kill(ranks_of(started.pid)[1], signal.SIGTERM)
        _, stderr = started.communicate(timeout=60)
    assert started.returncode == 75 and "stopped by SIGTERM while text was generated" in stderr, (started.returncode, stderr)
    assert output.read_text(errors="replace").startswith("the hacker")
    assert b.status("run")["exit_code"] == 75, b.status("run")


# each tool with the positional arguments that name an input, here a path that does not exist
READERS = {"checkpoint ls": 1, "checkpoint info": 1, "checkpoint verify": 1, "checkpoint diff": 2, "checkpoint convert": 2, "zero-to-fp32": 2,
           "import": 2, "export": 2, "plot": 1, "config check": 1, "tokenize": 1, "status": 1, "submit": 1, "launch": 1}


def exit_codes_agree(b):
    """One kind of error has one exit code in all programs."""
    missing, broken = b.work / "missing", b.work / "broken.json"
    broken.write_text('{"zero_optimization": {')
    for tool, inputs in READERS.items():
        words = tool.split()
        assert "missing" in b.tool(words + [missing] + [b.work / f"new{i}" for i in range(inputs - 1)], expect=74).stderr, tool
        assert "--no-such-option" in b.tool(words + ["--no-such-option"], expect=64).stderr, tool
        if tool not in ("launch", "config check"):  # these need no input
            assert "missing" in b.tool(words, expect=64).stderr, tool
    for program, words in (("tessera-train", []), ("tessera", []), ("zero-to-fp32", [])):
        assert "--no-such-option" in b.tool(words + ["--no-such-option"], expect=64, program=program).stderr, program
    refused(b, 65, [str(broken)] + b.common("x"), "broken.json")
    refused(b, 65, b.common("x", deepspeed=str(broken)), "broken.json")
    assert "broken.json" in b.tool(["config", "check", broken], expect=65).stderr
    (b.work / "model").mkdir()
    (b.work / "model/config.json").write_text(broken.read_text())
    assert "config.json" in b.tool(["import", b.work / "model", b.work / "new"], expect=65).stderr
    assert "config.json" in refused(b, 65, b.common("x", model_type=None, config_overrides=None, config_name=str(b.work / "model"))).stderr
    # a write that fails: the device is full, whatever the program
    run = b.work / "run"
    b.train(1, b.common("run", max_steps=1, save_strategy="steps", save_steps=1))
    full = b.work / "full.svg"
    full.symlink_to("/dev/full")  # not the device itself: a defect would replace it
    assert "full.svg" in b.tool(["plot", run, "-o", full], expect=74).stderr
    assert full.is_char_device(), "a device was replaced by a file"
    assert not list(b.work.glob("new*"))
