#!/usr/bin/env python3
"""End-to-end scenarios: the real programs on small models. Usage: e2e.py SCENARIO --bin DIR --work DIR --source DIR --mpiexec PROGRAM

A scenario is a function with the one parameter `b` (the bench) in a file of scenarios/; it fails by an AssertionError.
Needs nothing but Python's standard library."""
import argparse
import importlib
import pathlib
import sys

from support import Bench


def scenarios():
    """All scenarios by name; a name that two files use is an error."""
    found = {}
    for file in sorted((pathlib.Path(__file__).parent / "scenarios").glob("*.py")):
        module = importlib.import_module("scenarios." + file.stem)
        for name, item in vars(module).items():
            if callable(item) and getattr(item, "__module__", "") == module.__name__:
                assert name not in found, f"two scenarios are named {name}"
                found[name] = item
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario")
    for name in ("bin", "work", "source", "mpiexec"):
        parser.add_argument("--" + name, required=True)
    arguments = parser.parse_args()
    scenarios()[arguments.scenario](Bench(arguments))
    print(f"{arguments.scenario}: holds")


if __name__ == "__main__":
    sys.exit(main())
