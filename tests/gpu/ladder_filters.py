#!/usr/bin/env python3
"""Every part of tests/gpu/ladder.py that runs tests selects some, in the programs as they are
built, and none that only a fake library can hold.

    ladder_filters.py BUILD_DIRECTORY"""
import argparse
import json
import pathlib
import subprocess
import sys
import unittest
import unittest.mock

import ladder

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
ONLY_OVER_FAKES = "Contract."


def parts(**options):
    a = argparse.Namespace(build=BUILD, report=BUILD / "gpu-report", build_command="", configure_command="", mpiexec="mpirun", budget=540, quick=False, dry_run=False)
    vars(a).update(options)
    with unittest.mock.patch("shutil.which", lambda program: program):  # compute-sanitizer too
        return ladder.Parts(a).list


def selected(command):
    """The tests that a command with a test program in it runs."""
    at = next(i for i, word in enumerate(command) if "/test.gpu." in word)
    listed = subprocess.run([*command[at:], "--gtest_list_tests"], capture_output=True, text=True, check=False, timeout=60)
    if listed.returncode != 0:
        raise AssertionError(f"{command[at:]} ended with {listed.returncode}: {listed.stdout}{listed.stderr}")
    tests, suite = [], ""
    for line in listed.stdout.splitlines():
        if line.startswith("  "):
            tests.append(suite + line.split("#")[0].strip())
        elif line.split("#")[0].strip().endswith("."):
            suite = line.split("#")[0].strip()
    return tests


class Filters(unittest.TestCase):
    def test_each_selects_tests(self):
        programs = set()
        for part in parts() + parts(dry_run=True):
            names = [word for word in part.command if "/test.gpu." in word]
            if not names:
                continue
            programs.add(pathlib.Path(names[0]).name)
            with self.subTest(part=part.name):
                tests = selected(part.command)
                self.assertTrue(tests, f"{part.command} selects nothing")
                if "--gtest_filter=*" not in part.command:
                    self.assertEqual([test for test in tests if test.startswith(ONLY_OVER_FAKES)], [])
        self.assertGreaterEqual(programs, {f"test.gpu.{name}" for name in ("memory", "flat", "rows", "products", "shapes", "training")})

    def test_every_tool_of_compute_sanitizer_has_a_part(self):
        tools = {part.command[part.command.index("--tool") + 1] for part in parts() if "--tool" in part.command}
        self.assertEqual(tools, {"memcheck", "racecheck", "synccheck", "initcheck"})

    def test_each_pattern_of_ctest_selects_tests(self):
        for part in parts() + parts(dry_run=True):
            if part.command[0] != "ctest":
                continue
            with self.subTest(part=part.name):
                listed = subprocess.run([*part.command, "-N"], capture_output=True, text=True, check=False, timeout=60)
                self.assertRegex(listed.stdout, r"Test +#\d+: gpu\.", listed.stdout + listed.stderr)

    def test_each_program_also_runs_over_a_fake_device(self):
        listed = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1"], capture_output=True, text=True, check=True, timeout=60)
        commands = [test.get("command", []) for test in json.loads(listed.stdout)["tests"]]
        programs = {pathlib.Path(word).name for part in parts() for word in part.command if "/test.gpu." in word}
        for program in programs:
            with self.subTest(program=program):
                self.assertTrue([c for c in commands if any(word.endswith("/" + program) for word in c) and "device" not in c])

    def test_filters_are_those_of_the_caller(self):
        command = [str(BUILD / "tests/bin/test.gpu.products"), "--gtest_filter=*Gelu*", "device"]
        self.assertTrue(all("Gelu" in test for test in selected(command)), selected(command))


unittest.main()
