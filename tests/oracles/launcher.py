#!/usr/bin/env python3
"""Writes launcher.json: which hosts and slots DeepSpeed's launcher chooses, from its own functions.

    python3 tests/oracles/launcher.py      needs deepspeed; the stored file was made with 0.19.8
"""
import json
import logging
import pathlib

from deepspeed.launcher import runner

logging.disable(logging.CRITICAL)
TWO = "worker-0 slots=4\nworker-1 slots=4\n"
FILES = [TWO, "# nodes\n\n  worker-0   slots=2  \n#worker-9 slots=1\nworker-1\tslots=8 max_slots=8\n", "b slots=2\na slots=2 # second\nc slots=1", "n017.cluster slots=1\n",
         "worker-0 slots=16abc\n", "worker-0\n", "worker-0 slots=\n", "worker-0 slots=x\n", "worker-0 slot=4\n", "worker-0 slots=4\nworker-0 slots=2\n", "", "# none\n",
         "slots=4\n", "worker-0 slots =4\n", "worker-0,slots=4\n", TWO.replace("\n", "\r\n")]
FILTERS = ["worker-0", "worker-1", "worker-1@worker-0", "worker-0:0", "worker-0:3,1", "worker-0:0,0,2", "worker-0@worker-1:0,2", "worker-0:1@worker-0:2", "worker-0@worker-0:2",
           "worker-1:0@worker-1:0", "worker-0:0,1,2,3", "worker-2", "worker-0:4", "worker-0:-1", "worker-0:x", "worker-0:", ":0", "@", "worker-0@", "worker-0:0:1", "worker-0;worker-1",
           "worker-0:0-2", "worker-0 worker-1"]


def chosen(text, include="", exclude="", nodes=-1, gpus=-1):
    """[[host, [slots]]], or the reason of a refusal, as main() of the launcher goes about it."""
    try:
        pool = runner._parse_hostfile(text.splitlines(keepends=True))
        active = runner.parse_inclusion_exclusion(pool, include, exclude)
        active = runner.apply_num_nodes_and_gpus(active, nodes, gpus)
        if not active:
            return "no host is left"
        return [[host, list(slots)] for host, slots in active.items()]
    except (ValueError, TypeError) as error:
        return str(error)[:80]


def case(**given):
    return dict(given, result=chosen(given["text"], given.get("include", ""), given.get("exclude", ""), given.get("nodes", -1), given.get("gpus", -1)))


def main():
    cases = [case(text=text) for text in FILES]
    cases += [case(text=TWO, include=f) for f in FILTERS] + [case(text=TWO, exclude=f) for f in FILTERS]
    cases += [case(text=TWO, exclude="worker-0@worker-1"), case(text=TWO, include="worker-0", exclude="worker-1")]
    cases += [case(text=FILES[2], nodes=n, gpus=g) for n in (-1, 1, 2, 3) for g in (-1, 1)]
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps({"deepspeed": "0.19.8", "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
