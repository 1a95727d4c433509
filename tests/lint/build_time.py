#!/usr/bin/env python3
"""The slowest units of a build that was configured with TESSERA_TIME_COMPILES, from its compile_times.txt; warns of those above 15 s.

    tests/lint/build_time.py BUILD_DIR
"""
import pathlib
import re
import sys

LIMIT = 15  # seconds of processor time


def unit_of(obj):
    """src/CMakeFiles/tessera_zero_engine.dir/zero/engine/engine.cpp.o -> zero/engine/engine.cpp"""
    return re.sub(r"^.*\.dir/|\.o$", "", obj)


def report_of(log):
    """The lines of the report; the last compilation of a unit counts."""
    seconds = {}
    for line in log.splitlines():
        taken, obj = line.split(maxsplit=1)
        seconds[unit_of(obj)] = int(taken)
    slowest = sorted(seconds.items(), key=lambda x: -x[1])
    yield f"{sum(seconds.values())} s of processor time in {len(seconds)} units of a second or more that no cache had; the slowest:"
    for unit, taken in slowest[:10]:
        yield f"  {taken:3d} s  {unit}"
    for unit, taken in slowest:
        if taken > LIMIT:
            yield f"warning: {unit} takes {taken} s to compile, above {LIMIT} s: divide it or instantiate less in it"


if __name__ == "__main__":
    log = pathlib.Path(sys.argv[1]) / "compile_times.txt"
    print("\n".join(report_of(log.read_text() if log.exists() else "")))
