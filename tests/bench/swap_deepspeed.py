#!/usr/bin/env python3
"""Tessera's stream of tiles next to DeepSpeed's swap operator (async_io, the aio_handle of ZeRO-Infinity) and to plain io_uring loops.

    swap_deepspeed.py --bin build/host/bin --dir DRIVE [--mib 1024] [--rounds 5] [--block_kib 1024] [--depth 8] [--prefix "chrt -f 10"]

Runs with a Python that has deepspeed and torch; the operator is compiled at the first use and needs libaio's headers (libaio-dev) and ninja.
All sides have the same block size and depth, O_DIRECT, one thread, tiles of 16 MiB in four buffers, and alternate in each round. DeepSpeed
starts the transfers of four tiles together and waits for them, as its swapper does with the tensors of a sub-group; "both" reads with one
handle and writes with another. bench.swap gives the other two sides. Prints a line of JSON per round, then medians in GB/s."""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

TILE, BUFFERS = 16 << 20, 4


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", required=True, type=pathlib.Path)
    p.add_argument("--dir", required=True, type=pathlib.Path)
    for name, preset in (("mib", 1024), ("rounds", 5), ("block_kib", 1024), ("depth", 8)):
        p.add_argument("--" + name, type=int, default=preset)
    p.add_argument("--prefix", default="")
    a = p.parse_args()
    if a.mib % (TILE * BUFFERS >> 20) != 0:
        p.error(f"--mib {a.mib} is not a multiple of the {TILE * BUFFERS >> 20} MiB of the buffers")
    return a


class Peer:
    """Two files, each with a handle and locked buffers of its own."""

    def __init__(self, a):
        import torch
        from deepspeed.ops.op_builder import AsyncIOBuilder
        operator = AsyncIOBuilder().load(verbose=False)
        self.bytes = a.mib << 20
        self.handles, self.buffers, self.files = [], [], []
        for name in ("deepspeed_read.swap", "deepspeed_write.swap"):
            handle = operator.aio_handle(a.block_kib << 10, a.depth, False, True, 1)
            buffers = [handle.new_cpu_locked_tensor(TILE, torch.empty(0, dtype=torch.uint8)) for _ in range(BUFFERS)]
            for buffer in buffers:
                buffer.random_(0, 256)
            file = str(a.dir / name)
            with open(file, "wb") as out:
                os.posix_fallocate(out.fileno(), 0, self.bytes)
            self.handles.append(handle), self.buffers.append(buffers), self.files.append(file)
            self.seconds(write=[len(self.files) - 1])

    def seconds(self, read=(), write=()):
        """Seconds of moving all tiles of the files in these directions."""
        start = time.perf_counter()
        for first in range(0, self.bytes, TILE * BUFFERS):
            for side, call in [(k, "async_pread") for k in read] + [(k, "async_pwrite") for k in write]:
                for i, buffer in enumerate(self.buffers[side]):
                    if getattr(self.handles[side], call)(buffer, self.files[side], first + i * TILE) != 0:
                        sys.exit(f"{call} of {self.files[side]} failed")
            for side in {*read, *write}:
                self.handles[side].wait()
        return time.perf_counter() - start

    def rates(self):
        gigabytes = self.bytes / 1e9
        return {"read": gigabytes / self.seconds(read=[0]), "write": gigabytes / self.seconds(write=[1]),
                "both": 2 * gigabytes / self.seconds(read=[0], write=[1])}

    def remove(self):
        for file in self.files:
            os.unlink(file)


def own(a):
    command = [*shlex.split(a.prefix), str(a.bin / "bench.swap"), str(a.mib), "1", str(a.dir), str(a.block_kib), str(a.depth)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {side: {way: found[f"{way}_{side}_gb_s"] for way in ("read", "write", "both")} for side in ("raw", "stream")}


def main():
    a = parse()
    peer = Peer(a)
    rounds = []
    try:
        for _ in range(a.rounds):
            rounds.append({"deepspeed": peer.rates(), **own(a)})
            print(json.dumps(rounds[-1]), flush=True)
    finally:
        peer.remove()
    medians = {side: {way: statistics.median(r[side][way] for r in rounds) for way in ("read", "write", "both")} for side in rounds[0]}
    print("| | DeepSpeed aio GB/s | io_uring loop GB/s | stream of tiles GB/s | stream / DeepSpeed | stream / loop |\n|---|---|---|---|---|---|")
    for way in ("read", "write", "both"):
        d, r, s = (medians[side][way] for side in ("deepspeed", "raw", "stream"))
        print(f"| {way} | {d:.2f} | {r:.2f} | {s:.2f} | {s / d:.2f} | {s / r:.2f} |")


if __name__ == "__main__":
    main()
