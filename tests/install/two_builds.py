#!/usr/bin/env python3
"""The main scenarios with programs of two builds, such as of two architectures. Each trains and generates what the other does, and resumes and consolidates
what the other has saved. Usage: two_builds.py --bin DIR --other DIR --source DIR --work DIR --mpiexec PROGRAM

Needs nothing but Python's standard library."""
import argparse
import copy
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from scenarios.documents import SIZES  # noqa: E402
from scenarios.generating import generating  # noqa: E402
from support import TINY, Bench, close, safetensors, zero  # noqa: E402

MODELS = {"gpt2": TINY, "llama": SIZES["llama"]}
TOLERANCE = 1e-6   # of losses, relative
PATIENCE = 1800    # seconds for a program: one of the builds may be emulated


def whole_run(b, name, family, ranks, stage):
    """20 steps with a checkpoint after 10. Returns the command line."""
    words = b.common(name, model_type=family, config_overrides=MODELS[family], max_steps=20, save_strategy="steps", save_steps=10, learning_rate=1e-3,
                     block_size=16, per_device_train_batch_size=4 // ranks, train_sampling_strategy="random", deepspeed=b.config(f"stage{stage}.json", zero(stage)))
    b.train(ranks, words, timeout=PATIENCE)
    return words


def resumed(b, words, run, name, ranks):
    """The run `name`: the first half of `run`, and the second half by the programs of b."""
    shutil.copytree(b.work / run, b.work / name)
    shutil.rmtree(b.work / name / "checkpoints/step_00000020")
    done = b.train(ranks, [w.replace(str(b.work / run), str(b.work / name)) for w in words], timeout=PATIENCE)
    assert "step_00000010" in done.stderr, done.stderr
    return b.losses(name)


def weights(b, name):
    return safetensors(b.work / name / "model.safetensors")


def training_and_resuming(builds, family, ranks, stage):
    """All that one build saves, the other resumes; losses are close. A resume by the same build has the same bits."""
    first, second = builds
    case = f"{family}{ranks}"
    words = {name: whole_run(b, f"{case}_{name}", family, ranks, stage) for name, b in builds.items()}
    losses = {name: b.losses(f"{case}_{name}") for name, b in builds.items()}
    assert len(losses[first]) == 20 and losses[first][-1] < losses[first][0] - 0.1, losses[first]
    close(losses[second], losses[first], TOLERANCE, f"{family}, {ranks} rank(s), stage {stage}: losses of {second} and of {first}")
    for saved in builds:
        for reader, b in builds.items():
            name = f"{case}_{saved}_to_{reader}"
            again = resumed(b, words[saved], f"{case}_{saved}", name, ranks)
            if saved == reader:
                assert again == losses[saved] and weights(b, name) == weights(b, f"{case}_{saved}"), f"{name}: other bits"
            else:
                close(again, losses[saved], TOLERANCE, f"{family}, {ranks} rank(s): saved by {saved}, resumed by {reader}")


def consolidating(builds, family):
    """Both builds write the same bytes from a checkpoint of two ranks."""
    for saved in builds:
        files = []
        for name, b in builds.items():
            files.append(b.work / f"{family}_{saved}_{name}.safetensors")
            b.tool([b.work / f"{family}2_{saved}", files[-1]], program="zero-to-fp32")
            b.tool(["checkpoint", "verify", b.work / f"{family}2_{saved}"])
        assert files[0].read_bytes() == files[1].read_bytes(), files


def generating_text(builds, family):
    """One model's text by both builds, on one rank and on two: greedy decoding, and draws from a seed."""
    for saved, temperature in zip(builds, (0, 0.9)):
        texts = {}
        for name, b in builds.items():
            for ranks in (1, 2):
                words = generating(b, b.work / f"{family}1_{saved}", prompt="the hacker", temperature=temperature, max_new_tokens=12)
                texts[name, ranks] = b.train(ranks, words, timeout=PATIENCE).stdout
        print(f"{family}, trained by {saved}, temperature {temperature}: {texts}")
        assert len(set(texts.values())) == 1, texts


def main():
    parser = argparse.ArgumentParser()
    for name in ("bin", "other", "work", "source", "mpiexec"):
        parser.add_argument("--" + name, required=True)
    arguments = parser.parse_args()
    b = Bench(arguments)
    other = copy.copy(b)
    other.bin = pathlib.Path(arguments.other).resolve()
    builds = {"one": b, "other": other}
    for family in MODELS:
        training_and_resuming(builds, family, 1, 0)
        training_and_resuming(builds, family, 2, 2 if family == "gpt2" else 3)
        consolidating(builds, family)
        generating_text(builds, family)
    print("two_builds: holds")


if __name__ == "__main__":
    sys.exit(main())
