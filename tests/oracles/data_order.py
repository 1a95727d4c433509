#!/usr/bin/env python3
"""The order in which transformers' Trainer reads its training samples: random sampling, several epochs, seeds and rank counts.

    python tests/oracles/data_order.py tests/data/vectors/data_order.json

{"permutations": [{"samples", "seed", "first", "sum"}], "epochs": [{"samples", "seed", "ranks", "micro_batch",
  "epochs": [for each epoch: for each rank: for each micro-batch: indices]}], "grouped": [the same]}
`permutations` are torch.randperm(samples) with a generator seeded by `seed`: the first indices and sum(i * order[i]) mod 2^64.
`grouped`: as `epochs`, with train_sampling_strategy group_by_length and samples of equal length, recorded from a Trainer that trains.
`epochs` of one rank are recorded from a Trainer that trains; those of more ranks come from accelerate.prepare_data_loader with
the Trainer's settings. `grouped` of two ranks are recorded from two processes of a Trainer over gloo. Needs torch, transformers and
accelerate.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader, RandomSampler
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed


class Records(torch.utils.data.Dataset):
    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, index):
        if index >= self.samples:
            raise IndexError
        return {"input_ids": torch.zeros(4), "x": torch.tensor([float(index)]), "labels": torch.tensor([0.0])}


class Model(torch.nn.Module):
    """Records the indices that it is given."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen = []

    def forward(self, x, labels=None, input_ids=None):
        self.seen.append([int(v) for v in x.flatten().tolist()])
        return {"loss": ((x * self.weight - labels) ** 2).mean()}


class Epochs(TrainerCallback):
    def __init__(self, model):
        self.model, self.epochs = model, []

    def on_epoch_end(self, *_, **__):
        self.epochs.append([self.model.seen])
        self.model.seen = []


def trained(samples, seed, data_seed, micro_batch, epochs, **more):
    model = Model()
    record = Epochs(model)
    arguments = TrainingArguments("/tmp/data_order", per_device_train_batch_size=micro_batch, num_train_epochs=epochs, seed=seed, data_seed=data_seed,
                                  use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no", **more)
    Trainer(model, arguments, train_dataset=Records(samples), callbacks=[record]).train()
    return record.epochs


def dealt(samples, seed, ranks, micro_batch, epochs):
    out = [[[] for _ in range(ranks)] for _ in range(epochs)]
    for rank in range(ranks):
        set_seed(seed)
        loader = DataLoader(Records(samples), batch_size=micro_batch, sampler=RandomSampler(Records(samples)))
        loader = prepare_data_loader(loader, num_processes=ranks, process_index=rank, put_on_device=False, even_batches=True,
                                     use_seedable_sampler=True, data_seed=None)
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            out[epoch][rank] = [[int(v) for v in batch["x"].flatten().tolist()] for batch in loader.base_dataloader] if ranks == 1 else micro_batches(loader, epoch)
    return out


def micro_batches(loader, epoch):
    """The batch sampler of the shard, without the data transport between processes."""
    sampler = loader.batch_sampler
    inner = sampler.batch_sampler.sampler
    inner.set_epoch(epoch)
    return [list(b) for b in sampler]


def grouped(samples, seed, micro_batch):
    return trained(samples, seed, 99, micro_batch, 3, train_sampling_strategy="group_by_length", gradient_accumulation_steps=2)


def grouped_on_two_ranks(samples, seed, micro_batch):
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(2):
            environment = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29617",
                           "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
            call = [sys.executable, __file__, "--grouped", f"{folder}/{rank}", str(samples), str(seed), str(micro_batch)]
            processes.append(subprocess.Popen(call, env=environment, stdout=subprocess.DEVNULL))
        assert [process.wait() for process in processes] == [0, 0]
        ranks = [json.load(open(f"{folder}/{rank}")) for rank in range(2)]
    return [[epoch[0] for epoch in epochs] for epochs in zip(*ranks)]


def permutation(samples, seed):
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(seed))
    total = int((order * torch.arange(samples)).sum()) % 2**64
    return {"samples": samples, "seed": seed, "first": order[:8].tolist(), "sum": total}


def main():
    permutations = [permutation(n, s) for n in (1, 2, 3, 10, 1000, 65537, 1_000_000) for s in (0, 1, 42, 2**31 - 1, 2**32 + 7, 2**63 - 1)]
    epochs = []
    for samples, seed, data_seed, micro_batch in ((10, 42, None, 2), (13, 42, 7, 4), (24, 3, None, 1)):
        epochs.append({"samples": samples, "seed": seed if data_seed is None else data_seed, "ranks": 1, "micro_batch": micro_batch,
                       "epochs": trained(samples, seed, data_seed, micro_batch, 3)})
    for samples, seed, ranks, micro_batch in ((10, 42, 2, 2), (21, 42, 2, 4), (37, 5, 4, 3), (3, 1, 4, 2)):
        epochs.append({"samples": samples, "seed": seed, "ranks": ranks, "micro_batch": micro_batch, "epochs": dealt(samples, seed, ranks, micro_batch, 3)})
    grouped_cases = [{"samples": samples, "seed": seed, "ranks": 1, "micro_batch": micro_batch,
                "epochs": grouped(samples, seed, micro_batch)} for samples, seed, micro_batch in ((10, 42, 2), (37, 7, 2), (101, 1, 1))]
    grouped_cases += [{"samples": samples, "seed": seed, "ranks": 2, "micro_batch": micro_batch,
                       "epochs": grouped_on_two_ranks(samples, seed, micro_batch)}
                      for samples, seed, micro_batch in ((10, 42, 2), (37, 7, 2), (101, 1, 1), (21, 3, 4))]
    with open(sys.argv[1], "w") as out:  # the Trainer prints on standard output
        json.dump({"permutations": permutations, "epochs": epochs, "grouped": grouped_cases}, out, separators=(",", ":"))
        out.write("\n")


if __name__ == "__main__":
    if sys.argv[1] == "--grouped":  # one of two ranks
        with open(sys.argv[2], "w") as to:
            json.dump(grouped(*map(int, sys.argv[3:])), to)
    else:
        main()
