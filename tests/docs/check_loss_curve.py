#!/usr/bin/env python3
"""docs.loss_curve: `tessera plot` draws the committed loss curve from the committed metrics.

Usage: check_loss_curve.py TESSERA PICTURES_DIRECTORY SCRATCH_DIRECTORY
"""
import pathlib
import subprocess
import sys

tessera, pictures, scratch = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
drawn = scratch.resolve() / "loss.svg"
subprocess.run([tessera, "plot", "quickstart", "--output", str(drawn)], cwd=pictures, check=True)
if drawn.read_bytes() != (pictures / "loss.svg").read_bytes():
    sys.exit(f"{drawn} differs from docs/pictures/loss.svg; draw it again in docs/pictures with "
             "`tessera plot quickstart --output loss.svg` and commit it")
