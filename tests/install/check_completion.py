#!/usr/bin/env python3
"""Completion in a real, interactive bash, loaded by bash-completion from an installed tree as after `module load` (XDG_DATA_DIRS).
Usage: check_completion.py CMAKE BUILD_DIR WORK_DIR. 125: bash-completion is not here."""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import time

MACHINERY = "/usr/share/bash-completion/bash_completion"


class Terminal:
    """A bash at a terminal: what is typed, and what appears."""

    def __init__(self, environment):
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], environment)
        self.type("bind 'set bell-style none'; bind 'set enable-bracketed-paste off'; bind 'set show-all-if-ambiguous on'; bind 'set page-completions off'; PS1='ready> '\n")
        self.type(f"source {MACHINERY}\n")
        self.until("ready> $")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def until(self, pattern, seconds=20):
        """Output up to the pattern; everything so far when it does not come."""
        text, end = "", time.monotonic() + seconds
        while time.monotonic() < end:
            ready, _, _ = select.select([self.terminal], [], [], 0.2)
            if ready:
                text += os.read(self.terminal, 65536).decode(errors="replace")
            elif re.search(pattern, text):
                break
        return text

    def completed(self, line, pattern):
        """What the terminal shows after this line and a tab (twice for a list)."""
        self.type(line + "\t")
        shown = self.until(pattern)
        self.type("\x15\n")
        self.until("ready> $")
        return shown


def main():
    cmake, build, work = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    if not os.path.exists(MACHINERY):
        print(f"skipped: no bash-completion here (Debian package bash-completion): {MACHINERY}")
        return 125
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    subprocess.run([cmake, "--install", build, "--prefix", str(work / "tree")], check=True, stdout=subprocess.DEVNULL)
    (work / "some-run").mkdir()
    os.chdir(work)
    terminal = Terminal({"PATH": f"{work}/tree/bin:/usr/bin:/bin", "XDG_DATA_DIRS": f"{work}/tree/share:/usr/share", "HOME": str(work), "TERM": "dumb", "COLUMNS": "200"})
    for line, expected in (("tessera checkp", "checkpoint"), ("tessera checkpoint ver", "checkpoint verify"), ("tessera submit --ntasks", "--ntasks-per-node"),
                           ("tessera selftest --di", "--dir"), ("tessera-train --per_device_train", "--per_device_train_batch_size"),
                           ("tessera status some", "some-run"), ("tessera-train --lear", "--learning_rate")):
        shown = terminal.completed(line, re.escape(expected))
        assert expected in shown, f"'{line}<Tab>' shows {shown!r}, not {expected}"
        print(f"{line}<Tab> -> {expected}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
