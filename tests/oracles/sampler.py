#!/usr/bin/env python3
"""What each rank is dealt, by accelerate's BatchSamplerShard and the Trainer's count of steps.

    python tests/oracles/sampler.py > tests/data/vectors/sampler.json

[{"samples", "ranks", "micro_batch", "accumulation_steps", "epochs", "drop_last", "steps_per_epoch", "total_steps",
  "steps": [for each step of an epoch: for each rank: for each micro-batch: indices]}]. Needs accelerate and torch.
"""
import json
import math

from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, SequentialSampler


def micro_batches(samples, ranks, size, drop_last, rank):
    batches = BatchSampler(SequentialSampler(range(samples)), batch_size=size, drop_last=drop_last)
    if ranks == 1:  # accelerate shards only when there is more than one process
        return [list(b) for b in batches]
    return [list(b) for b in BatchSamplerShard(batches, num_processes=ranks, process_index=rank)]


def case(samples, ranks, size, accumulation, epochs, drop_last):
    dealt = [micro_batches(samples, ranks, size, drop_last, r) for r in range(ranks)]
    length = len(dealt[0])
    assert all(len(d) == length for d in dealt)
    if length == 0:
        return None
    steps_per_epoch = max(length // accumulation + int(length % accumulation > 0), 1)
    steps = [[d[s * accumulation:(s + 1) * accumulation] for d in dealt] for s in range(steps_per_epoch)]
    return {"samples": samples, "ranks": ranks, "micro_batch": size, "accumulation_steps": accumulation, "epochs": epochs,
            "drop_last": drop_last, "steps_per_epoch": steps_per_epoch, "total_steps": math.ceil(epochs * steps_per_epoch), "steps": steps}


def main():
    cases = []
    for samples in (1, 2, 3, 5, 8, 13, 16, 21, 24):
        for ranks in (1, 2, 3, 4):
            for size in (1, 2, 4):
                for accumulation in (1, 3):
                    epochs = (1.0, 2.5, 3.0, 0.4)[(samples + ranks + size) % 4]
                    cases.append(case(samples, ranks, size, accumulation, epochs, (samples + size + accumulation) % 5 == 0))
    for samples, ranks, size, accumulation in ((3, 8, 2, 1), (1, 7, 3, 2), (100, 8, 3, 4), (97, 5, 7, 2)):
        for drop_last in (False, True):
            cases.append(case(samples, ranks, size, accumulation, 3.0, drop_last))
    print("[" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases if c) + "]")


if __name__ == "__main__":
    main()
