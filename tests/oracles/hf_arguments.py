#!/usr/bin/env python3
"""Writes hf_arguments.json: every argument of run_clm.py with its default, the option table must know them all.

usage: hf_arguments.py RUN_CLM_PY > hf_arguments.json
RUN_CLM_PY is examples/pytorch/language-modeling/run_clm.py of transformers; TrainingArguments comes from the installed package
(made with transformers 5.23).
"""
import ast
import dataclasses
import enum
import json
import sys

from transformers import TrainingArguments


def of_script(path):
    for node in ast.parse(open(path).read()).body:
        if isinstance(node, ast.ClassDef) and node.name in ("ModelArguments", "DataTrainingArguments"):
            for item in node.body:
                if isinstance(item, ast.AnnAssign):
                    default = next(k.value for k in item.value.keywords if k.arg == "default")
                    yield item.target.id, ast.literal_eval(default)


def of_trainer():
    for field in dataclasses.fields(TrainingArguments):
        missing = field.default is dataclasses.MISSING
        default = (None if field.default_factory is dataclasses.MISSING else field.default_factory()) if missing else field.default
        yield field.name, default.value if isinstance(default, enum.Enum) else default


print(json.dumps(dict([*of_script(sys.argv[1]), *of_trainer()]), indent=1))
