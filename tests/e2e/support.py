"""What the end-to-end scenarios share: the bench that starts programs, small corpora and configurations, and checks."""
import functools
import json
import os
import pathlib
import shutil
import struct
import subprocess
import time

TINY = "n_embd=32,n_layer=2,n_head=2,vocab_size=4096,n_positions=64,resid_pdrop=0.0,embd_pdrop=0.0,attn_pdrop=0.0"


@functools.cache
def launcher_options(mpiexec):
    """What a test adds to the command line of this launcher: Open MPI's has limits that Hydra, of MPICH, does not have."""
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True).stdout
    return () if "HYDRA" in version else ("--oversubscribe", "--allow-run-as-root", "--bind-to", "none")


def launcher_kills_ranks(mpiexec):
    """Hydra kills the other ranks when one was killed or failed, before they can write a status or say anything. Open MPI's launcher gives them time."""
    return not launcher_options(mpiexec)


def launcher_words(mpiexec, ranks):
    return [mpiexec, *launcher_options(mpiexec), "-n", str(ranks)]


class Bench:
    """Where programs, sources and the scenario's own files are."""

    def __init__(self, arguments):
        self.bin = pathlib.Path(arguments.bin).resolve()
        self.work = pathlib.Path(arguments.work).resolve()
        self.source = pathlib.Path(arguments.source).resolve()
        self.mpiexec = arguments.mpiexec
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.text = self.work / "text.txt"
        self.text.write_text(corpus(4000))

    def config(self, name, document):
        path = self.work / name
        path.write_text(json.dumps(document))
        return str(path)

    def common(self, output, **flags):
        """The flags of a small training; None removes one."""
        chosen = dict(model_type="gpt2", config_overrides=TINY, tokenizer_name=str(self.source / "configs/gpt2-8m"), train_file=str(self.text),
                      block_size=32, output_dir=str(self.work / output), do_train=True, per_device_train_batch_size=8, max_steps=6,
                      learning_rate=1e-2, logging_steps=1, save_strategy="no", seed=7, train_sampling_strategy="sequential")
        chosen.update(flags)
        words = []
        for name, value in chosen.items():
            if value is True:
                words.append("--" + name)
            elif value is not None and value is not False:
                words += ["--" + name, str(value)]
        return words

    def command(self, ranks, words):
        return launcher_words(self.mpiexec, ranks) + [str(self.bin / "tessera-train")] + words

    def environment(self):
        return dict(os.environ, OMP_NUM_THREADS="1", OMP_PROC_BIND="false")

    def faulty(self, faults):
        """An environment in which chosen calls fail: tests/support/faults.cpp."""
        return dict(self.environment(), TESSERA_FAULTS=faults, LD_PRELOAD=str(self.bin.parent / "tests/bin/libtessera_faults.so"))

    def train(self, ranks, words, expect=0, faults=None, timeout=240, nodes=None, **options):
        """nodes: the ranks of each simulated node, "2,1"."""
        environment = self.faulty(faults) if faults else self.environment()
        if nodes:
            environment["TESSERA_SIMULATED_NODES"] = nodes
        done = subprocess.run(self.command(ranks, words), env=environment, capture_output=True, text=True, timeout=timeout, **options)
        assert done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done

    def tool(self, words, expect=0, program="tessera", **options):
        done = subprocess.run([str(self.bin / program)] + [str(w) for w in words], env=self.environment(), capture_output=True, text=True, timeout=120,
                              **options)
        assert done.returncode == expect, f"exit {done.returncode}, expected {expect}\n{words}\n{done.stdout}\n{done.stderr}"
        return done

    def needs_mounts(self, otherwise):
        """Skips the scenario where a file system of its own cannot be mounted, as in a chroot. otherwise: what covers it there."""
        tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", str(self.work)], capture_output=True, text=True)
        if tried.returncode != 0:
            print(f"SKIPPED: a file system of its own cannot be mounted here ({tried.stderr.strip()}); {otherwise}")
            raise SystemExit(77)

    def metrics(self, output):
        """Records of metrics.jsonl, of a run that may still write: what follows the last line end is a line half written."""
        return [json.loads(line) for line in (self.work / output / "metrics.jsonl").read_text().split("\n")[:-1]]

    def losses(self, output):
        return [m["loss"] for m in self.metrics(output) if "loss" in m]

    def status(self, output):
        return json.loads((self.work / output / "status.json").read_text())


def corpus(lines):
    """English-like text that a small model can learn: sentences from a fixed grammar, the same on every machine."""
    subjects = ["the hacker", "a system", "the old kernel", "every user", "some daemon"]
    verbs = ["reads", "breaks", "rewrites", "forgets", "compiles"]
    objects = ["the manual", "a large file", "its own code", "the network", "nothing at all"]
    state, out = 12345, []
    for _ in range(lines):
        words = []
        for choice in (subjects, verbs, objects):
            state = (state * 1103515245 + 12345) % 2**31
            words.append(choice[(state >> 16) % len(choice)])
        out.append(" ".join(words) + ".")
    return "\n".join(out) + "\n"


def close(a, b, relative, what):
    assert len(a) == len(b) and a, f"{what}: {len(a)} and {len(b)} values"
    worst = max(abs(x - y) / max(abs(y), 1e-30) for x, y in zip(a, b))
    print(f"{what}: largest relative difference {worst:.2e}, allowed {relative:.0e}")
    assert worst <= relative, f"{what}: {worst:.3e} > {relative:.0e}\n{a}\n{b}"


def zero(stage, **more):
    return dict({"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
                 "gradient_clipping": "auto"}, **more)


def safetensors(path):
    """{name: (dtype, shape, bytes)} by the format's definition."""
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {n: (e["dtype"], e["shape"], data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]]) for n, e in header.items()}


def write_safetensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}, as support.safetensors() reads them."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def tokenizer_with_more_tokens(b):
    """The directory of a tokenizer with two tokens more than the model's 4096 rows, both in the corpus from here on."""
    tokenizer = b.work / "tokenizer"
    shutil.copytree(b.source / "configs/gpt2-8m", tokenizer)
    document = json.loads((tokenizer / "tokenizer.json").read_text())
    flags = dict(special=False, single_word=False, lstrip=False, rstrip=False, normalized=False)
    document["added_tokens"] += [dict(flags, id=4096 + i, content=f"<extra{i}>") for i in range(2)]
    (tokenizer / "tokenizer.json").write_text(json.dumps(document))
    b.text.write_text("<extra0> " + b.text.read_text().replace("daemon", "<extra1>"))
    return tokenizer


def damage(b, run, step, kind, rank=1):
    """Flips a bit of, cuts, or removes a shard. Returns its name."""
    return damage_shard(b.work / run / f"checkpoints/step_{step:08}", kind, rank)


def damage_shard(directory, kind, rank):
    """Flips a bit of, cuts, or removes a shard in the directory of a checkpoint. Returns its name."""
    shard = directory / f"shard_{rank:05}.h5"
    if kind == "removed":
        shard.unlink()
    elif kind == "truncated":
        os.truncate(shard, shard.stat().st_size - 100)
    else:
        piece = next(p for t in json.loads((directory / "manifest.json").read_text())["tensors"] for p in t["pieces"] if p["shard"] == rank)
        data = bytearray(shard.read_bytes())
        data[piece["file_offsets"][1] + 7] ^= 16
        shard.write_bytes(data)
    return shard.name


def seen(b):
    return getattr(b, "stopped_at", 0)


def rank_of(pid):
    """The rank of a process, as its launcher has told it."""
    environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(int(e.partition(b"=")[2]) for e in environment if e.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")))


def ranks_of(launcher):
    """Process ids of tessera-train below an mpiexec, or below its proxy (Hydra)."""
    names, parents = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                names[int(entry.name)] = stat[stat.index("(") + 1:stat.rindex(")")]
                parents[int(entry.name)] = int(stat[stat.rindex(")") + 2:].split()[1])
            except (OSError, ValueError):
                continue
    return sorted(pid for pid, name in names.items() if name.startswith("tessera-train") and launcher in (parents.get(pid), parents.get(parents.get(pid))))


def wait_for(condition, seconds, every=0.02):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(every)


def continues(b, case, ranks, stage, **more):
    """Imports one of DeepSpeed's checkpoints and trains on with its data; the stored losses are those of DeepSpeed itself."""
    data = b.source / "tests/checkpoint/data/deepspeed"
    expected = json.loads((data / case / "expected.json").read_text())
    config = json.loads((data / case / "ds_config.json").read_text())
    config["train_micro_batch_size_per_gpu"] = 6 // ranks
    config["zero_optimization"] = {"stage": stage}
    run = f"{case}_{ranks}_{stage}"
    adam = {"adam_beta2": 0.95} if "betas" in config["optimizer"]["params"] else {}
    done = b.tool(["import", data / case, b.work / run / "checkpoints"])
    assert "step 3" in done.stdout, done.stdout
    b.tool(["checkpoint", "verify", b.work / run])
    b.train(ranks, b.common(run, model_type=None, config_overrides=None, config_name=str(data / case), train_file=str(data / "text.txt"), validation_file=str(data / "text.txt"),
                            tokenizer_name=str(b.source / "tests/data/vectors/tokenizer/narrow"), block_size=16, max_steps=5, keep_linebreaks="false",
                            per_device_train_batch_size=6 // ranks, learning_rate=config["optimizer"]["params"]["lr"], weight_decay=0.01, **adam,
                            lr_scheduler_type="constant", deepspeed=b.config(f"{run}.json", config), **more))
    losses = [m["loss"] for m in b.metrics(run) if "loss" in m and m["step"] > 3]
    return losses, expected["losses_after"]


def other_user(b):
    """The words before a command that may not pass closed directories: root passes all of them."""
    if os.geteuid() != 0:
        return []
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if shutil.which("setpriv") is None or subprocess.run(words + [str(b.bin / "tessera"), "--version"], capture_output=True).returncode != 0:
        print("SKIPPED: another user cannot start the programs here")
        raise SystemExit(77)
    return words


def refused(b, code, words, *parts):
    done = b.train(2, words, expect=code)
    for part in parts:
        assert part in done.stderr, f"'{part}' is not said:\n{done.stderr}"
    return done
