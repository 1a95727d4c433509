#!/usr/bin/env python3
"""Write the pictures of the documentation (SVG, Python's standard library only).

    docs/pictures/make.py            write all pictures
    docs/pictures/make.py --check    compare them with the committed ones

The loss curve is not made here: `tessera plot quickstart --output loss.svg` draws it, in this folder,
from the metrics of a run of quickstart.sh.
"""
import pathlib
import sys

import gpu_step
import layers
import offload
import ranks
import save_protocol

FOLDER = pathlib.Path(__file__).resolve().parent
PICTURES = {"layers": layers, "ranks": ranks, "save_protocol": save_protocol, "gpu_step": gpu_step,
            "offload": offload}


def main():
    check = "--check" in sys.argv[1:]
    different = []
    for name, script in PICTURES.items():
        path = FOLDER / f"{name}.svg"
        text = script.make(FOLDER.parent.parent)
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            different.append(path.name)
    if different:
        sys.exit(f"not what the scripts draw: {', '.join(different)}; run docs/pictures/make.py and "
                 "commit the pictures")


if __name__ == "__main__":
    main()
