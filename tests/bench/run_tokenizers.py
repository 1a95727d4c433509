#!/usr/bin/env python3
"""Megabytes of text per second on one core: Tessera's tokenizers next to Hugging Face's tokenizers library.

  python3 tests/bench/run_tokenizers.py --bin build/host/bin --text FILE --tokenizers DIR [DIR...] [--repeats 5]

Both read the lines of the file and write their ids. The runs alternate and the best of the repeats counts; the start-up of both programs, seen with one
line of text, is left out. The ids must be equal. Needs tokenizers and numpy.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy

HF = """
import sys, time, numpy
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
with open(sys.argv[2]) as file: lines = file.readlines()
started = time.perf_counter()
ids = []
for at in range(0, len(lines), 1000):
    for encoding in tokenizer.encode_batch(lines[at:at + 1000]): ids += encoding.ids
seconds = time.perf_counter() - started
numpy.array(ids, dtype=numpy.int32).tofile(sys.argv[3])
print(seconds)
"""


def tessera(arguments, folder, text, out):
    started = time.perf_counter()
    subprocess.run([arguments.bin / "tessera", "tokenize", folder, "--file", text, "--output", out, "--threads", "1"], check=True, capture_output=True)
    seconds = time.perf_counter() - started
    code = out.with_suffix(".idx").read_bytes()[17]
    return seconds, numpy.fromfile(out, dtype={8: numpy.uint16, 4: numpy.int32}[code])


def hugging_face(folder, text, out):
    run = subprocess.run([sys.executable, "-c", HF, str(folder), str(text), str(out)], check=True, capture_output=True, text=True,
                         env=dict(os.environ, TOKENIZERS_PARALLELISM="false"))
    return float(run.stdout), numpy.fromfile(out, dtype=numpy.int32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizers", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "one.txt").write_text("one line\n")
        megabytes = arguments.text.stat().st_size / 1e6
        print(f"{megabytes:.1f} MB of text, one core\n{'tokenizer':24} {'Tessera MB/s':>14} {'tokenizers MB/s':>16} {'ratio':>6}")
        for folder in arguments.tokenizers:
            best = {"start": 1e9, "tessera": 1e9, "hf": 1e9}
            for _ in range(arguments.repeats):
                best["start"] = min(best["start"], tessera(arguments, folder, work / "one.txt", work / "one.bin")[0])
                seconds, ours = tessera(arguments, folder, arguments.text, work / "ours.bin")
                best["tessera"] = min(best["tessera"], seconds)
                seconds, theirs = hugging_face(folder, arguments.text, work / "theirs.bin")
                best["hf"] = min(best["hf"], seconds)
                assert numpy.array_equal(ours, theirs), f"{folder}: the ids differ"
            rate = megabytes / (best["tessera"] - best["start"]), megabytes / best["hf"]
            print(f"{folder.name:24} {rate[0]:14.2f} {rate[1]:16.2f} {rate[0] / rate[1]:6.2f}", flush=True)


if __name__ == "__main__":
    main()
