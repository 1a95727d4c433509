#!/usr/bin/env python3
"""docs.differences: the pages of differences name every option and key that the generated reference
pages mark as refused, refused in part, or accepted with another effect.

Usage: check_differences.py SOURCE_DIRECTORY
"""
import pathlib
import re
import sys

PAGES = ("docs/getting-started/moving-from-deepspeed.md", "docs/getting-started/moving-from-trl.md")
TABLES = ("docs/reference/options.md", "docs/reference/deepspeed-config.md")


def different(table):
    """Names whose column `supported` says more than yes or no effect."""
    for line in table.read_text().splitlines():
        cells = re.split(r" \| ", line.removeprefix("| ").removesuffix(" |"))
        if len(cells) < 5 or not cells[0].startswith("`"):
            continue
        state = cells[-1]
        if state.startswith(("no", "yes; not")) or \
                (state.startswith("accepted") and "no effect" not in state):
            yield re.match(r"`([^`]+)`", cells[0]).group(1)


def main():
    root = pathlib.Path(sys.argv[1])
    named = {name for page in PAGES for name in re.findall(r"`([^`\n]+)`", (root / page).read_text())}
    missing = [f"{table}: {name}" for table in TABLES for name in different(root / table)
               if not {name, name.removeprefix("zero_optimization.")} & named]
    if missing:
        sys.exit(f"neither {' nor '.join(PAGES)} names these differences:\n" + "\n".join(missing))
    print("all differences are named")


if __name__ == "__main__":
    main()
