#!/usr/bin/env python3
"""The parts of tests/gpu/run.sh after the build, from short probes to long figures; each leaves its
result on disk before the next one starts. What a failed probe shows to be unusable, later parts do
without."""
import argparse
import dataclasses
import datetime
import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import derived

ROOT = pathlib.Path(__file__).resolve().parents[2]
NO_GPU, USAGE = 77, 64
NOT_THERE = 127  # of a program
LOG_BYTES = 2 << 20  # of one log in the archive: its beginning and its end
STACKS_SECONDS = 30  # for the stacks of all processes of a part
WITH_DROPOUT = "gpt2-8m-with-dropout"  # of attention weights; cuDNN draws other masks than the host
OFFLOAD = "ds_offload.json"  # optimizer states in host memory
TRAIN = "TESSERA_TRAIN_ARGUMENTS"  # added to every tessera-train


@dataclasses.dataclass
class Part:
    name: str
    limit: int  # seconds
    command: list
    environment: dict = dataclasses.field(default_factory=dict)
    # environment of all later parts when this one does not hold, and what it means
    fallback: dict = dataclasses.field(default_factory=dict)
    fallback_text: str = ""
    figures: bool = False  # lines of JSON in the output
    tests: bool = False  # output of ctest: a line each
    needed: bool = False  # without it nothing else can run


def environment_of_run(report):
    """NCCL's own words, for parts that fail."""
    out = dict(os.environ, NCCL_DEBUG=os.environ.get("NCCL_DEBUG", "INFO"))
    out.setdefault("NCCL_DEBUG_FILE", str(report / "nccl.%h.%p.log"))
    if os.geteuid() == 0:
        out.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return out


def python(script, *arguments):
    return [sys.executable, str(ROOT / "tests/gpu" / script), *map(str, arguments)]


class Parts:
    """All parts of a run, in their order."""

    def __init__(self, a):
        self.a = a
        self.bin = a.build / "bin"
        self.tests = a.build / "tests/bin"
        self.bench = self.tests / "bench.gpu"
        self.list = []
        if a.build_command:
            self.add("configure", 240, ["sh", "-c", a.configure_command], needed=True)
            self.add("build", a.budget, ["sh", "-c", a.build_command])  # what does not compile leaves out its own parts
        self.add("start", 60, [self.bin / "tessera-train", "--version"], needed=True)
        if a.dry_run:
            self.without_device()
        else:
            self.probes()
            self.suite()
            if not a.quick:
                self.measurements()
                self.sanitizers()
            self.host_only()

    def add(self, name, limit, command, **more):
        self.list.append(Part(name, limit, [str(word) for word in command], **more))

    def test(self, name, limit, program, tests, **more):
        self.add(name, limit, [self.tests / f"test.gpu.{program}", f"--gtest_filter={tests}", "device"], **more)

    def figure(self, name, limit, *words, **more):
        self.add(name, limit, [self.bench, *words], figures=True, **more)

    def ctest(self, name, limit, *words):
        self.add(name, limit, ["ctest", "--test-dir", self.a.build, "--output-on-failure", "--no-tests=error", *words], tests=True)

    def train(self, device, output, steps, *words):
        if "--config_name" not in words:
            words += ("--config_name", ROOT / "configs/gpt2-8m")
        return ["sh", "-c", f'exec "$0" "$@" ${TRAIN}', self.bin / "tessera-train", "--device", device, "--tokenizer_name", ROOT / "configs/gpt2-8m",
                "--train_file", self.a.report / "text.txt", "--block_size", 128, "--output_dir", self.a.build / output, "--do_train",
                "--per_device_train_batch_size", 4, "--max_steps", steps, "--save_steps", 4, "--logging_steps", 1, "--seed", 1, *words]

    def parity(self, name, limit, device, precision):
        self.add(name, limit, python("parity_torch.py", "--bin", self.bin, "--device", device, "--precision", precision, "--work", self.a.build / name))

    def probes(self):
        """What must be known first: seconds each."""
        self.add("doctor", 30, [self.bin / "tessera", "doctor", "--gpus"])
        self.test("memory", 60, "memory", "*")
        self.test("flat", 60, "flat", "*")
        self.test("rows", 90, "rows", "*")
        self.test("products", 60, "products", "*")
        self.test("gelu_in_products", 60, "products", "*Products.Gelu*", fallback={"TESSERA_GELU": "separate", TRAIN: "--device_gelu separate"}, fallback_text="gelu_new as separate kernels")
        self.test("products_of_models", 120, "shapes", "*ModelProducts*")
        self.test("fp8_products_of_models", 60, "shapes", "Fp8*", fallback={TRAIN: "--fp8 false"}, fallback_text="bf16 instead of fp8 products")
        self.test("attention", 60, "shapes", "*ModelAttention*", fallback={"TESSERA_PORTABLE": "1", TRAIN: "--device_attention portable"}, fallback_text="portable attention")
        self.test("attention_dropout", 60, "training", "DeviceTraining.LearnsWith*")
        self.test("one_step", 40, "training", "Stages/*/stage0_bf16")
        self.test("nccl_one_rank", 40, "training", "*DeviceCollectives.*")
        self.figure("bench_train_124m", 40, "train", 12, 768, 12, 32, 1024, 8)
        self.parity("torch_parity_bf16", 60, "gpu", "bf16")
        self.parity("torch_parity", 60, "gpu", "fp32")

    def suite(self):
        self.ctest("suite", 200, "-R", r"gpu\..*(device|training\.np)")
        self.add("train_on_device", 60, self.train("gpu", "on-device", 8))
        self.add("train_on_host", 60, self.train("cpu", "on-host", 8))
        agree = python("losses_agree.py", self.a.build / "on-device", self.a.build / "on-host")
        self.add("losses_agree", 20, agree)
        self.add("resume_on_host", 60, self.train("cpu", "on-device", 12, "--resume_from_checkpoint", "latest"))
        self.add("resume_on_device", 60, self.train("gpu", "on-host", 12, "--resume_from_checkpoint", "latest"))
        self.add("losses_agree_resumed", 20, agree)
        for place, output in (("gpu", "on-device-offload"), ("cpu", "on-host-offload")):
            self.add(f"train_offload_{output[3:-8]}", 60, self.train(place, output, 8, "--dtype", "bfloat16", "--deepspeed", self.a.report / OFFLOAD))
        self.add("losses_agree_offload", 20, python("losses_agree.py", "--tolerance", 2e-2, self.a.build / "on-device-offload", self.a.build / "on-host-offload"))
        words = ("--bf16", "--config_name", self.a.report / WITH_DROPOUT)
        self.add("train_dropout_on_device", 60, self.train("gpu", "on-device-dropout", 8, *words))
        self.add("train_dropout_on_host", 60, self.train("cpu", "on-host-dropout", 8, *words))
        self.add("losses_agree_dropout", 20, python("losses_agree.py", "--tolerance", 5e-2, self.a.build / "on-device-dropout", self.a.build / "on-host-dropout"))
        for name, words in (("bf16", ("--bf16",)), ("bf16_weights", ("--dtype", "bfloat16")), ("fp8", ("--dtype", "bfloat16", "--fp8", "true"))):
            self.add(f"train_{name}_on_device", 60, self.train("gpu", f"on-device-{name}", 8, *words))
            self.add(f"train_{name}_on_host", 60, self.train("cpu", f"on-host-{name}", 8, *words))
            self.add(f"losses_agree_{name}", 20,
                     python("losses_agree.py", "--tolerance", 2e-2, self.a.build / f"on-device-{name}", self.a.build / f"on-host-{name}"))

    def measurements(self):
        self.figure("bench_gemm", 30, "gemm", 8192)
        self.figure("bench_optimizer", 60, "optimizer", 400000000)
        self.figure("bench_flat", 30, "flat", 200000000)
        self.figure("bench_rows", 30, "rows", 32768, 768, 50257)
        self.figure("bench_rows_1558m", 30, "rows", 8192, 1600, 50257)
        self.add("bench_torch_124m", 100, python("peer_torch.py", 12, 768, 12, 32, 1024, 8), figures=True)
        self.figure("bench_train_1558m", 80, "train", 48, 1600, 25, 8, 1024, 5)
        self.figure("bench_llama", 60, "train", 6, 4096, 32, 4, 4096, 5, environment={"TESSERA_MODEL": "llama"})
        self.figure("bench_llama_8k", 60, "train", 6, 4096, 32, 1, 8192, 5, environment={"TESSERA_MODEL": "llama"})
        self.figure("bench_llama_fp8", 60, "train", 6, 4096, 32, 4, 4096, 5, environment={"TESSERA_MODEL": "llama", "TESSERA_FP8": "1"})
        for precision in ("autocast", "fp32"):
            self.figure(f"bench_{precision}_124m", 60, "train", 12, 768, 12, 32, 1024, 4, environment={"TESSERA_PRECISION": precision})
        self.figure("bench_autocast_1558m", 80, "train", 48, 1600, 25, 4, 1024, 4, environment={"TESSERA_PRECISION": "autocast"})
        self.figure("bench_vocabulary_124m", 40, "train", 12, 768, 12, 32, 1024, 8, environment={"TESSERA_VOCABULARY": "50304"})
        self.train_figure("train_124m", 60, "n_embd=768,n_layer=12,n_head=12", 32, 12, "--bf16")
        self.train_figure("train_1558m_offload", 120, "n_embd=1600,n_layer=48,n_head=25", 16, 6, "--dtype", "bfloat16", "--deepspeed", self.a.report / OFFLOAD)
        self.add("bench_torch_1558m", 120, python("peer_torch.py", 48, 1600, 25, 8, 1024, 5), figures=True)
        for stage in (1, 2, 3):
            self.figure(f"bench_overlap_stage{stage}", 30, "overlap", 12, 768, 12, 8, 1024, stage, 8, 50, 4)
        for name, shape in (("124m", (12, 768, 12, 32, 1024, 8)), ("1558m", (48, 1600, 25, 8, 1024, 5))):
            self.figure(f"bench_fp8_{name}", 80, "train", *shape, environment={"TESSERA_FP8": "1"})
        self.figure("bench_portable_124m", 40, "train", 12, 768, 12, 32, 1024, 4, environment={"TESSERA_PORTABLE": "1"})
        for name, environment in (("", {}), ("_portable", {"TESSERA_PORTABLE": "1"})):
            self.figure(f"bench_dropout{name}_124m", 40, "train", 12, 768, 12, 32, 1024, 4, environment={"TESSERA_DROPOUT": "0.1", **environment})
        self.figure("bench_train_small", 20, "train", 8, 256, 8, 1, 128, 30)
        self.figure("bench_graphs_small", 20, "train", 8, 256, 8, 1, 128, 30, environment={"TESSERA_GRAPHS": "1"})
        self.figure("bench_separate_gelu_124m", 40, "train", 12, 768, 12, 32, 1024, 4, environment={"TESSERA_GELU": "separate"})
        self.figure("bench_nondeterministic_1558m", 80, "train", 48, 1600, 25, 8, 1024, 5, environment={"TESSERA_NONDETERMINISTIC": "1"})
        self.figure("bench_nondeterministic_124m", 40, "train", 12, 768, 12, 32, 1024, 4, environment={"TESSERA_NONDETERMINISTIC": "1"})
        self.start_up("gpu", 5)

    def train_figure(self, name, limit, shape, rows, steps, *words):
        """The tokens per second that tessera-train itself reports."""
        output = self.a.build / name
        self.add(name, limit, ["sh", "-c", f'"$0" "$@" ${TRAIN} && tail -n 4 {output}/metrics.jsonl', self.bin / "tessera-train", "--device", "gpu",
                               "--tokenizer_name", ROOT / "configs/gpt2-8m", "--model_type", "gpt2", "--config_overrides", shape,
                               "--train_file", self.a.report / "text.txt", "--block_size", 1024, "--output_dir", output, "--overwrite_output_dir", "--do_train",
                               "--per_device_train_batch_size", rows, "--max_steps", steps, "--save_strategy", "no", "--logging_steps", 1, "--seed", 1, *words], figures=True)

    def start_up(self, device, rounds):
        self.add("start_up", 60, python("start_up.py", "--bin", self.bin, "--hello", self.tests / "bench.gpu_hello", "--mpiexec", self.a.mpiexec,
                                        "--device", device, "--rounds", rounds), figures=True)

    def sanitizers(self):
        if not shutil.which("compute-sanitizer"):
            self.add("sanitizers", 5, ["sh", "-c", f"echo 'compute-sanitizer is in no directory of PATH'; exit {NO_GPU}"])
            return
        for name, limit, tool, program, tests, *more in (
                ("memcheck_pool", 30, "memcheck", "memory", "DeviceMemory.LedgerAndDriverAgree:DeviceMemory.TheHost*", "--track-stream-ordered-races", "all"),
                ("memcheck", 60, "memcheck", "training", "Stages/*/stage2_*"),
                ("memcheck_flat", 60, "memcheck", "flat", "*"),
                ("racecheck_flat", 60, "racecheck", "flat", "*"),
                ("memcheck_rows", 60, "memcheck", "rows", "*bf16"),
                ("racecheck_rows", 60, "racecheck", "rows", "*bf16"),
                ("racecheck", 60, "racecheck", "training", "Stages/*/stage0_*"),
                ("synccheck", 30, "synccheck", "training", "Stages/*/stage0_fp32"),
                ("initcheck", 40, "initcheck", "training", "Stages/*/stage0_fp32")):
            self.add(name, limit, ["compute-sanitizer", "--error-exitcode", 1, "--tool", tool, *more, self.tests / f"test.gpu.{program}",
                                   f"--gtest_filter={tests}", "device"])

    def host_only(self):
        """What needs no device comes last."""
        self.ctest("suite_on_host", 240, "-L", "gpu", "-E", r"gpu\..*(device|training\.np)")

    def without_device(self):
        self.ctest("without_device", 240, "-L", "gpu", "-L", "install")
        self.add("products_of_models", 60, [self.tests / "test.gpu.shapes"])
        self.add("train_on_host", 90, self.train("cpu", "on-host", 8))
        self.parity("torch_parity", 200, "cpu", "fp32")
        self.parity("torch_parity_bf16", 200, "cpu", "bf16")
        self.figure("bench_train", 60, "train", 2, 64, 2, 2, 64, 3)
        self.figure("bench_gemm", 60, "gemm", 256)
        self.figure("bench_optimizer", 60, "optimizer", 1000000)
        self.figure("bench_flat", 60, "flat", 1000000)
        self.figure("bench_rows", 60, "rows", 300, 64, 1001)
        self.figure("bench_overlap", 60, "overlap", 2, 64, 2, 2, 64, 1, 4, 1, 2)
        self.start_up("cpu", 2)


class Report:
    """report.json and report.txt, complete after every part."""

    def __init__(self, a, gpu):
        self.a = a
        self.gpu = gpu
        self.started = time.monotonic()
        self.results = {}
        self.failed_before = set()
        self.fallbacks = []
        file = a.report / "report.json"
        if a.resume and file.exists():
            earlier = json.loads(file.read_text())
            self.results = {entry["part"]: entry for entry in earlier["parts"] if entry["state"] in ("held", "skipped")}
            self.failed_before = {entry["part"] for entry in earlier["parts"] if entry["state"] != "left out"} - set(self.results)
            self.fallbacks = earlier["fallbacks"]
        else:
            (a.report / "report.txt").write_text("")
        self.say(f"GPU: {gpu}")

    def say(self, text):
        print(text, flush=True)
        with (self.a.report / "report.txt").open("a") as out:
            out.write(text + "\n")

    def failed(self):
        return any(entry["state"] not in ("held", "skipped", "left out") for entry in self.results.values())

    def write(self, finished):
        document = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%FT%TZ"), "gpu": self.gpu, "dry_run": self.a.dry_run, "finished": finished,
                    "held": bool(self.results) and not self.failed(), "seconds": round(time.monotonic() - self.started), "fallbacks": self.fallbacks,
                    "training": self.training_figures(), "parts": list(self.results.values())}
        new = self.a.report / "report.json.new"
        new.write_text(json.dumps(document, indent=1) + "\n")
        new.rename(self.a.report / "report.json")
        self.archive()

    def archive(self):
        """All logs in one file, and what matters in the directory of --copy, after every part: a run that is killed keeps them."""
        new = self.a.report / "logs.tar.gz.new"
        with tarfile.open(new, "w:gz", compresslevel=3) as tar:
            for log in sorted(self.a.report.glob("*.log")):
                add_log(tar, log)
        new.rename(self.a.report / "logs.tar.gz")
        if self.a.copy:
            for name in ("report.json", "report.txt", "logs.tar.gz"):
                shutil.copy(self.a.report / name, self.a.copy / name)

    def record(self, part, state, seconds, output=""):
        entry = {"part": part.name, "state": state, "seconds": round(seconds, 1)}
        if part.figures:
            entry["figures"] = figures_of(output)
        if state not in ("held", "left out"):
            entry["reason"] = f"not done in its time, {part.name}.stacks.log says where it was" if state == "out of time" else reason_in(output)
        self.results[part.name] = entry
        self.say(f"{part.name:<26} {state:<12} {seconds:6.1f} s")
        for figure in entry.get("figures", []):
            self.say("    " + json.dumps(figure))
        if part.tests:
            for line in output.splitlines():
                if " Test " in line and "#" in line and ("Passed" in line or "Failed" in line or "Skipped" in line or "Timeout" in line):
                    self.say("    " + line.split(": ", 1)[-1].strip())
        if state not in ("held", "skipped"):
            lines = output.splitlines()
            for line in [line for line in lines[:-15] if " error" in line or "FAILED" in line][:10] + lines[-15:]:
                self.say("    " + line)
            if part.fallback and state != "left out":
                text = f"{part.name} did not hold: later parts use {part.fallback_text}"
                self.fallbacks.append({"part": part.name, "environment": part.fallback, "text": text})
                self.say("    " + text)
        self.write(False)

    def training_figures(self):
        last = {name: entry["figures"][-1] for name, entry in self.results.items() if entry.get("figures")}
        return derived.training(last, self.gpu)

    def table(self):
        """What somebody reads who has not seen the lines above."""
        by_state = {}
        for name, entry in self.results.items():
            by_state.setdefault(entry["state"] if entry["state"] in ("held", "skipped", "left out") else "failed", []).append(name)
        self.say("")
        self.say(f"== {len(by_state.get('held', []))} of {len(self.results)} parts held on {self.gpu} ==")
        for name in by_state.get("failed", []):
            entry = self.results[name]
            self.say(f"{name} {entry['state']}: {entry['reason']} ({self.a.report}/{name}.log)")
        for fallback in self.fallbacks:
            self.say(f"fallback: {fallback['text']}")
        for name in by_state.get("skipped", []):
            self.say(f"skipped {name}: {self.results[name].get('reason', '')}")
        if "left out" in by_state:
            self.say(f"no time was left for {len(by_state['left out'])} parts, run again with --resume: {' '.join(by_state['left out'])}")
        rows = self.training_figures()
        if rows:
            self.say("")
            for line in derived.table(rows):
                self.say(line)
        self.say("")
        self.say(f"report.json, report.txt and logs.tar.gz are in {self.a.report}")

    def finish(self, code, finished=True):
        self.table()
        self.write(finished)
        sys.exit(code)


def add_log(tar, log):
    """A log that is too long without its middle."""
    with log.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(min(size, LOG_BYTES))
        if size > LOG_BYTES:
            file.seek(size - LOG_BYTES // 2)
            data = data[:LOG_BYTES // 2] + f"\n== {size - LOG_BYTES} bytes left out ==\n".encode() + file.read(LOG_BYTES // 2)
    entry = tarfile.TarInfo(log.name)
    entry.size, entry.mtime = len(data), int(time.time())
    tar.addfile(entry, io.BytesIO(data))


def reason_in(output):
    """The line of an output that says best why a part did not hold: the first one of an error, else the last one."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next((line for line in lines if any(word in line for word in (" error", "Error", "Failure", "FAILED"))), lines[-1] if lines else "no output")
    return first.removeprefix("skipped: ")[:200]


def figures_of(output):
    out = []
    for line in output.splitlines():
        if line.startswith("{"):
            try:
                out.append(json.loads(line))
            except ValueError:  # cut short in the middle of a line
                pass
    return out


def processes_of(group):
    """All processes of a group."""
    out = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[2]) == group:
                out.append(int(entry.name))
    return out


def dump_stacks(group, file, seconds=STACKS_SECONDS):
    """Where a part that is out of time waits: kernels on the device and stacks of the host. Debuggers of all processes together get @p seconds."""
    end = time.monotonic() + seconds
    debugger = shutil.which("cuda-gdb") or shutil.which("gdb")
    with file.open("w") as out:
        for process in processes_of(group):
            name = pathlib.Path(f"/proc/{process}/comm").read_text().strip() if pathlib.Path(f"/proc/{process}").exists() else "?"
            out.write(f"== {process} {name}\n")
            out.flush()
            left = end - time.monotonic()
            if debugger and left > 0 and (name.startswith("test.") or name.startswith("bench.") or name.startswith("tessera")):
                words = [debugger, "--batch", "-p", str(process)]
                if debugger.endswith("cuda-gdb"):
                    words += ["-ex", "info cuda kernels"]
                try:
                    subprocess.run(words + ["-ex", "thread apply all backtrace"], stdout=out, stderr=out, timeout=left, check=False)
                except subprocess.TimeoutExpired:
                    out.write("the debugger is out of time\n")
                continue
            for task in sorted(pathlib.Path(f"/proc/{process}/task").glob("*")):
                for what in ("comm", "wchan", "syscall"):
                    try:
                        out.write(f"{task.name} {what}: {(task / what).read_text().strip()}\n")
                    except OSError:
                        pass


class Runner:
    def __init__(self, a, report):
        self.a = a
        self.report = report
        self.group = None
        self.part = None
        self.began = 0.0
        signal.signal(signal.SIGTERM, self.cut_short)
        signal.signal(signal.SIGINT, self.cut_short)
        signal.signal(signal.SIGHUP, self.cut_short)

    def cut_short(self, number, _frame):
        if self.group:
            end_group(self.group)
            self.report.record(self.part, "cut short", time.monotonic() - self.began)
        self.report.say(f"ended by signal {number}")
        self.report.finish(128 + number, finished=False)

    def left(self):
        return self.a.budget - (time.monotonic() - self.report.started)

    def run(self, part):
        """True when the part held."""
        if self.left() < 10:
            self.report.record(part, "left out", 0)
            return False
        environment = environment_of_run(self.a.report)
        for fallback in self.report.fallbacks:
            words = [environment.get(TRAIN, ""), fallback["environment"].get(TRAIN, "")]
            environment.update(fallback["environment"])
            environment[TRAIN] = " ".join(words).strip()
        environment.update(part.environment)
        self.part, self.began = part, time.monotonic()
        if sys.stdout.isatty():  # nothing of it stays
            print(f"{part.name:<26} runs, at most {part.limit} s", end="\r", flush=True)
        log = self.a.report / f"{part.name}.log"
        limit = min(part.limit, self.left() - 5)
        with log.open("w") as out:
            code = self.call(part, out, environment, limit)
        state = {0: "held", NO_GPU: "skipped", 124: "out of time"}.get(code, f"failed ({code})")
        self.report.record(part, state, time.monotonic() - self.began, log.read_text(errors="replace"))
        return state in ("held", "skipped")

    def call(self, part, out, environment, limit):
        """The exit code of a part's command; 124 after @p limit seconds."""
        try:
            child = subprocess.Popen(part.command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=ROOT, start_new_session=True)
        except OSError as error:  # a program that was not built
            out.write(f"{error}\n")
            return NOT_THERE
        self.group = child.pid
        try:
            return child.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            dump_stacks(child.pid, self.a.report / f"{part.name}.stacks.log")
            end_group(child.pid)
            child.wait()
            return 124
        finally:
            self.group = None


def end_group(group):
    for number, wait in ((signal.SIGTERM, 5), (signal.SIGKILL, 1)):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        for _ in range(wait * 10):
            if not processes_of(group):
                return
            time.sleep(0.1)


def visible_gpu():
    try:
        done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else ""


WITHOUT_GPU = "no GPU: nvidia-smi finds no device; --dry-run runs what needs none"


class Options(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"tests/gpu/run.sh: {message}\n")


def main():
    p = Options(description=__doc__)
    p.add_argument("--build", type=pathlib.Path, required=True)
    p.add_argument("--report", type=pathlib.Path, required=True)
    p.add_argument("--copy", type=pathlib.Path, help="report.json, report.txt and logs.tar.gz are kept there too")
    p.add_argument("--configure_command", default="")
    p.add_argument("--build_command", default="")
    p.add_argument("--mpiexec", default="mpirun")
    p.add_argument("--budget", type=int, default=540, help="seconds")
    p.add_argument("--only", default="", help="parts, separated by commas")
    p.add_argument("--from", dest="first", default="", help="the first part")
    p.add_argument("--resume", action="store_true", help="leave out what held in the report that is there")
    p.add_argument("--list", action="store_true", help="print the parts and end")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--dry-run", dest="dry_run", action="store_true")
    a = p.parse_args()
    a.build, a.report = a.build.resolve(), a.report.resolve()
    a.copy = a.copy and a.copy.resolve()
    for directory in (a.report, a.copy):
        if directory:
            directory.mkdir(parents=True, exist_ok=True)
    parts = Parts(a).list
    names = [part.name for part in parts]
    only = [name for name in a.only.split(",") if name]
    for name in only + ([a.first] if a.first else []):
        if name not in names:
            p.error(f"there is no part {name}; the parts are {' '.join(names)}")
    if a.list:
        print("\n".join(f"{part.name:<26} at most {part.limit:4d} s  {' '.join(part.command)}" for part in parts))
        return
    gpu = "none" if a.dry_run else visible_gpu()
    if a.dry_run:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if not gpu and (a.report / "report.json").exists():
        print(f"{WITHOUT_GPU}; the report of an earlier run stays in {a.report}")
        sys.exit(NO_GPU)
    report = Report(a, gpu or "none")
    if not gpu:
        report.say(WITHOUT_GPU)
        report.finish(NO_GPU)
    (a.report / "text.txt").write_text("".join(file.read_text() for file in [*sorted(ROOT.glob("docs/*/*.md")), ROOT / "README.md"]))
    shutil.copytree(ROOT / "configs/gpt2-8m", a.report / WITH_DROPOUT, dirs_exist_ok=True)
    config = a.report / WITH_DROPOUT / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "attn_pdrop": 0.1}))
    (a.report / OFFLOAD).write_text(json.dumps({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": True}}}))
    if not a.resume:
        for old in ("on-device", "on-host"):
            for folder in a.build.glob(old + "*"):
                shutil.rmtree(folder)
    runner = Runner(a, report)
    parts = parts[names.index(a.first) if a.first else 0:]
    parts.sort(key=lambda part: part.name in report.failed_before and part.name not in ("configure", "build", "start"))
    for part in parts:
        if only and part.name not in only:
            continue
        if report.results.get(part.name, {}).get("state") in ("held", "skipped"):
            continue
        if not runner.run(part) and part.needed:
            break
    report.finish(1 if report.failed() else 0)


if __name__ == "__main__":
    main()
