#!/usr/bin/env python3
"""docs.commands: the commands in the documentation work.

Blocks marked `sh` are run, page by page, in a scratch directory that has what the pages presume (see
docs/development/tests.md). Blocks marked `sh no-test: REASON` are not run: they need a cluster, a GPU,
a network or minutes. In these, and in `console` blocks, every option of Tessera's programs must be one
that `--help` knows.

Usage: run_commands.py SOURCE_DIRECTORY PROGRAM_DIRECTORY SCRATCH_DIRECTORY [PAGE ...]
"""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

from pages import blocks, pages

PROGRAMS = ("tessera-train", "tessera", "zero-to-fp32")
DS_CONFIG = """{
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
  "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                            "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                    "warmup_num_steps": "auto", "total_num_steps": "auto"}},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": "auto"}
}
"""


class Options:
    """The options that each program and subcommand knows, from its --help."""

    def __init__(self, programs):
        self.programs = programs
        self.known = {}

    def of(self, words):
        if words not in self.known:
            command = [str(self.programs / words[0]), *words[1:], "--help"]
            text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
            self.known[words] = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text)), text
        return self.known[words]

    def check(self, words):
        """What is wrong with a command line, from the program's name on."""
        name, rest = words[0], words[1:]
        path = (name,)
        while name == "tessera" and rest and re.fullmatch(r"[a-z][a-z0-9-]*", rest[0]):
            _, text = self.of(path)
            if "\nCommands\n" not in text:
                break
            if not re.search(rf"^  {re.escape(rest[0])}\s", text, re.M):
                return f"{' '.join(path)} has no subcommand {rest[0]}"
            path, rest = path + (rest[0],), rest[1:]
        own, foreign = rest, []
        if path[-1] in ("launch", "submit", "check", "lr", "status", "estimate", "plan", "simulate", "run"):   # arguments of another program follow
            cut = next((i for i, word in enumerate(rest) if word in ("--", "run_clm.py", "tessera-train")),
                       len(rest))
            own, foreign = rest[:cut], rest[cut + 1:]
        known, _ = self.of(path)
        if path[-1] in ("check", "lr", "estimate", "plan", "simulate"):   # with or without --
            known = known | self.of(("tessera-train",))[0]
        if name == "tessera-train":
            own, foreign = [], rest
        wrong = [word for word in own if re.match(r"--?[A-Za-z]", word) and word.split("=")[0] not in known]
        known, _ = self.of(("tessera-train",))
        plain = {option.replace("-", "_") for option in known}
        for word in foreign:
            option = word.split("=")[0].replace("-", "_")
            if re.match(r"--[A-Za-z]", word) and option not in plain and \
                    option.replace("__no_", "__", 1) not in plain and not self.table(word):
                wrong.append(word)
        return f"{' '.join(path)} does not know {', '.join(wrong)}" if wrong else None

    def table(self, word):
        """Whether the reference page lists an option that --help leaves out."""
        name = word.split("=")[0][2:].replace("-", "_")
        return f"`{name}`" in self.reference


def command_lines(text):
    """Commands of a block, continued lines joined, comments and prompts removed."""
    for line in text.replace("\\\n", " ").splitlines():
        yield re.sub(r"^\$ ", "", line.strip())


def check_options(block, options):
    for line in command_lines(block.text):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        for start, word in enumerate(words):
            name = word.rsplit("/", 1)[-1]
            if name not in PROGRAMS or (start and words[start - 1] in ("--target", "-C")):
                continue
            end = next((i for i in range(start + 1, len(words))
                        if words[i] in ("|", "||", "&&", ";", ">", ">>", "2>&1", "&")), len(words))
            if any("..." in word or word.isupper() for word in words[start:end]):
                words[start:end] = [w for w in words[start:end] if "..." not in w and not w.isupper()]
                end = min(end, len(words))
            if error := options.check([name, *words[start + 1:end]]):
                yield error
            break


def environment(programs):
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
               OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
               OMP_NUM_THREADS="1", PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
    for name in list(env):
        if name.startswith(("SLURM_", "PMIX_")):
            del env[name]
    return env


def run(script, folder, env, limit):
    return subprocess.run(["bash", "-c", script], cwd=folder, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=limit, check=False,
                          errors="replace")


def prepare(root, folder, env):
    """What the pages presume: texts, a small model, a run with two checkpoints, DeepSpeed's files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(root / "configs", folder / "configs")
    text = "\n".join(page.read_text() for page in sorted((root / "docs").rglob("*.md")))
    (folder / "train.txt").write_text(text[:120000])
    (folder / "validation.txt").write_text(text[120000:130000])
    (folder / "ds_config.json").write_text(DS_CONFIG)
    data = root / "tests/checkpoint/data/deepspeed"
    shutil.copytree(data / "z2_w2_fp16", folder / "ds_run")
    script = """set -euo pipefail
train() { tessera-train --tokenizer_name configs/gpt2-8m --train_file train.txt --do_train "$@"; }
sizes=n_embd=32,n_layer=2,n_head=2,n_positions=64,vocab_size=4096
train --model_type gpt2 --config_overrides $sizes --block_size 64 --max_steps 1 --output_dir first
mkdir gpt2 && cp first/*.json first/model.safetensors gpt2/ && rm -r first gpt2/*results.json gpt2/status.json
mkdir out
mpirun -np 2 tessera-train --model_name_or_path gpt2 --train_file train.txt --do_train --block_size 64 \\
  --per_device_train_batch_size 2 --max_steps 20 --save_steps 10 --logging_steps 10 \\
  --deepspeed configs/ds_zero2.json --output_dir out/run
"""
    done = run(script, folder, env, 120)
    if done.returncode:
        sys.exit(f"preparing the scratch directory failed:\n{done.stdout}")
    shutil.copytree(folder / "out/run", folder / "out/quickstart")


def main():
    root, programs, scratch = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
    wanted = [pathlib.Path(word).resolve() for word in sys.argv[4:]]
    options = Options(programs)
    options.reference = (root / "docs/reference/options.md").read_text()
    env = environment(programs)
    errors, counts, prepared = [], {"run": 0, "parsed": 0}, scratch / "prepared"
    begin = time.monotonic()
    prepare(root, prepared, env)
    for page in pages(root):
        if wanted and page not in wanted:
            continue
        name, scripts = page.relative_to(root), []
        for block in blocks(page):
            if block.language not in ("sh", "console"):
                continue
            errors += [f"{name}:{block.line}: {error}" for error in check_options(block, options)]
            if block.language == "sh" and not block.note:
                scripts.append(block)
            elif block.language == "sh" and not re.match(r"no-test: \S", block.note):
                errors.append(f"{name}:{block.line}: '{block.note}' is not 'no-test: REASON'")
            else:
                counts["parsed"] += 1
        if not scripts:
            continue
        folder = scratch / "page"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(prepared, folder, symlinks=True)
        script = "set -euo pipefail\n" + "\n".join(
            f"echo '+++ {name}:{block.line}'\n{block.text}" for block in scripts)
        started = time.monotonic()
        done = run(script, folder, env, 120)
        counts["run"] += len(scripts)
        if done.returncode:
            last = re.findall(r"^\+\+\+ (.*)$", done.stdout, re.M)[-1]
            errors.append(f"{last}: ended with {done.returncode}:\n{done.stdout[-3000:]}")
        print(f"{name}: {len(scripts)} blocks, {time.monotonic() - started:.1f} s")
    print(f"{counts['run']} blocks run, {counts['parsed']} only parsed, "
          f"{time.monotonic() - begin:.0f} s")
    print("\n".join(errors))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
