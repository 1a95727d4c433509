#!/usr/bin/env python3
"""Writes label_smoothing.json: loss and gradient of transformers' LabelSmoother with shifted labels and ignored ones.

    python3 tests/oracles/label_smoothing.py      needs torch and transformers; the stored file was made with transformers 5.23
"""
import json
import pathlib

import torch
import transformers
from transformers.trainer_pt_utils import LabelSmoother


def run(epsilon, rows, sequence, vocabulary):
    torch.manual_seed(rows)
    logits = (4 * torch.randn(rows, sequence, vocabulary)).requires_grad_()
    labels = torch.randint(vocabulary, (rows, sequence))
    labels[0, 2] = labels[-1, 1] = -100
    loss = LabelSmoother(epsilon=epsilon)({"logits": logits}, labels.clone(), shift_labels=True)
    loss.backward()
    targets = torch.cat([labels[:, 1:], torch.full((rows, 1), -100)], 1)  # the last position predicts nothing
    return {"epsilon": epsilon, "logits": logits.detach().reshape(-1, vocabulary).tolist(), "targets": targets.reshape(-1).tolist(),
            "active": int((targets >= 0).sum()), "loss": loss.item(), "dlogits": logits.grad.reshape(-1).tolist()}


path = pathlib.Path(__file__).with_suffix(".json")
cases = [run(0.1, 2, 5, 7), run(0.5, 3, 4, 11)]
for case in cases:
    case["logits"] = [x for row in case["logits"] for x in row]
path.write_text(json.dumps({"transformers": transformers.__version__, "cases": cases}).replace("}, {", "},\n{") + "\n")
