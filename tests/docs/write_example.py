#!/usr/bin/env python3
"""Writes the fenced blocks of a page that name a file (```cpp inspect.cpp) into a directory.

Usage: write_example.py PAGE DIRECTORY
"""
import pathlib
import re
import sys

from pages import blocks


def main():
    page, directory = map(pathlib.Path, sys.argv[1:])
    files = [block for block in blocks(page) if re.fullmatch(r"[\w-]+\.\w+", block.note)]
    if not files:
        sys.exit(f"{page}: no block names a file")
    directory.mkdir(parents=True, exist_ok=True)
    for block in files:
        (directory / block.note).write_text(block.text + "\n")


if __name__ == "__main__":
    main()
