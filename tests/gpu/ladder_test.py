#!/usr/bin/env python3
"""tests/gpu/ladder.py over programs that are shell scripts: order, fallbacks, limits, signals, and a
run in several calls.

    ladder_test.py WORK_DIRECTORY"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import unittest
import unittest.mock

import ladder

LADDER = pathlib.Path(__file__).with_name("ladder.py")
WORK = pathlib.Path(sys.argv.pop(1)).resolve()
PROGRAM = """#!/bin/sh
echo "$(basename "$0") $* portable=$TESSERA_PORTABLE train=$TESSERA_TRAIN_ARGUMENTS" >>"$CALLS"
case "$(basename "$0") $*" in *"$FAILS"*) echo 'it does not work'; exit 3 ;; esac
case "$(basename "$0") $*" in *"$HANGS"*) sleep 60 ;; esac
case "$(basename "$0")" in bench.gpu) echo "$FIGURE" ;; esac
"""
FIGURE = {"bench": "train", "rows": 32, "length": 1024, "tokens_per_second": 550000, "tflops": 494.7, "state_bytes": 10, "formula_bytes": 10}


def name_of(process):
    try:
        return pathlib.Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


class Ladder(unittest.TestCase):
    def setUp(self):
        shutil.rmtree(WORK, ignore_errors=True)
        (WORK / "path").mkdir(parents=True)
        programs = [f"build/tests/bin/test.gpu.{name}" for name in ("memory", "flat", "rows", "products", "shapes", "training")]
        for name in programs + ["build/tests/bin/bench.gpu", "build/bin/tessera", "build/bin/tessera-train", "path/nvidia-smi"]:
            file = WORK / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(PROGRAM if name != "path/nvidia-smi" else "#!/bin/sh\necho 'NVIDIA H200, 580.1, 143771 MiB'\n")
            file.chmod(0o755)
        self.environment = dict(os.environ, PATH=f"{WORK / 'path'}:{os.environ['PATH']}", CALLS=str(WORK / "calls"), FAILS="nothing of this name",
                                HANGS="nothing of this name", FIGURE=json.dumps(FIGURE))

    def start(self, *words):
        return subprocess.Popen([sys.executable, LADDER, "--build", WORK / "build", "--report", WORK / "report", "--quick", *words], env=self.environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run_ladder(self, *words):
        child = self.start(*words)
        self.output = child.communicate(timeout=60)[0]
        self.report = json.loads((WORK / "report/report.json").read_text())
        self.states = {entry["part"]: entry["state"] for entry in self.report["parts"]}
        return child.returncode

    def calls(self):
        return (WORK / "calls").read_text().splitlines()

    def test_what_does_not_hold_is_left_to_a_fallback(self):
        self.environment["FAILS"] = "ModelAttention"
        self.assertEqual(self.run_ladder("--only", "start,memory,attention,one_step,bench_train_124m,train_on_device"), 1)
        self.assertEqual(self.states, {"start": "held", "memory": "held", "attention": "failed (3)", "one_step": "held", "bench_train_124m": "held",
                                       "train_on_device": "held"})
        after = self.calls()[3:]
        self.assertTrue(all("portable=1 train=--device_attention portable" in call for call in after), after)
        self.assertIn("--device_attention portable portable=1", after[-1])
        self.assertEqual(self.report["fallbacks"][0]["part"], "attention")
        self.assertEqual(self.report["parts"][4]["figures"], [FIGURE])
        self.assertEqual(self.report["parts"][2]["reason"], "it does not work")
        for text in ("it does not work", "fallback: attention did not hold: later parts use portable attention"):
            self.assertIn(text, self.output)

    def test_a_table_says_what_held_and_how_fast(self):
        self.environment["FAILS"] = "test.gpu.flat"
        self.assertEqual(self.run_ladder("--only", "start,flat,bench_train_124m"), 1)
        end = self.output[self.output.index("== 2 of 3 parts held on NVIDIA H200"):]
        self.assertIn(f"flat failed (3): it does not work ({WORK}/report/flat.log)", end)
        self.assertRegex(end, r"bench_train_124m +550000 +494.7 +0.500 +0.500")
        self.assertEqual(self.report["training"][0]["part"], "bench_train_124m")
        self.assertAlmostEqual(self.report["training"][0]["mfu"], 0.5)
        self.assertEqual(self.run_ladder("--only", "memory,rows", "--budget", "9"), 0)
        self.assertIn("no time was left for 2 parts, run again with --resume: memory rows", self.output)

    def test_a_second_call_continues(self):
        self.environment["FAILS"] = "test.gpu.flat"
        self.assertEqual(self.run_ladder("--only", "start,memory,flat"), 1)
        self.environment["FAILS"] = "nothing of this name"
        (WORK / "calls").unlink()
        self.assertEqual(self.run_ladder("--only", "start,memory,flat,rows", "--resume"), 0)
        self.assertEqual([call.split()[0] for call in self.calls()], ["test.gpu.rows", "test.gpu.flat"], "what failed comes after what has not run yet")
        self.assertEqual(set(self.states.values()), {"held"})
        self.assertTrue(self.report["held"])

    def test_without_its_programs_nothing_else_runs(self):
        self.environment["FAILS"] = "tessera-train"
        self.assertEqual(self.run_ladder(), 1)
        self.assertEqual(self.states, {"start": "failed (3)"})

    def test_what_does_not_compile_leaves_out_its_own_parts(self):
        (WORK / "build/tests/bin/test.gpu.memory").unlink()
        commands = ("--configure_command", "true", "--build_command", "echo 'memory.cpp:3: error: no such name'; seq 99; exit 2")
        self.assertEqual(self.run_ladder("--only", "configure,build,start,memory,flat", *commands), 1)
        self.assertEqual(self.states, {"configure": "held", "build": "failed (2)", "start": "held", "memory": "failed (127)", "flat": "held"})
        for text in ("memory.cpp:3: error: no such name", "No such file or directory"):
            self.assertIn(text, self.output)

    def test_three_files_are_elsewhere_after_every_part(self):
        self.environment["HANGS"] = "test.gpu.flat"
        (WORK / "report").mkdir()
        (WORK / "report/long.log").write_bytes(b"a" * (5 << 20) + b"the end")
        child = self.start("--only", "start,memory,flat", "--copy", WORK / "copy")
        while not (WORK / "calls").exists() or len(self.calls()) < 3:
            time.sleep(0.05)
        child.kill()  # as a machine does whose time is over
        child.wait(timeout=20)
        child.stdout.close()
        self.assertEqual(sorted(file.name for file in (WORK / "copy").iterdir()), ["logs.tar.gz", "report.json", "report.txt"])
        report = json.loads((WORK / "copy/report.json").read_text())
        self.assertEqual([entry["part"] for entry in report["parts"]], ["start", "memory"])
        with tarfile.open(WORK / "copy/logs.tar.gz") as tar:
            self.assertIn("memory.log", tar.getnames())
            long = tar.extractfile("long.log").read()
        self.assertTrue(len(long) < (3 << 20) and long.endswith(b"the end") and b"bytes left out" in long)

    def test_debuggers_together_have_one_limit(self):
        debugger = WORK / "path/cuda-gdb"
        debugger.write_text("#!/bin/sh\nexec sleep 60\n")
        debugger.chmod(0o755)
        program = WORK / "test.waits"
        program.write_text("#!/bin/sh\nsleep 60\n")
        program.chmod(0o755)
        child = subprocess.Popen(["sh", "-c", f"{program} & {program} & wait"], start_new_session=True)
        try:
            while sum(name_of(process) == "test.waits" for process in ladder.processes_of(child.pid)) < 2:
                time.sleep(0.05)
            with unittest.mock.patch.dict(os.environ, PATH=self.environment["PATH"]):
                ladder.dump_stacks(child.pid, WORK / "stacks.log", seconds=0.5)
        finally:
            ladder.end_group(child.pid)
            child.wait()
        self.assertEqual((WORK / "stacks.log").read_text().count("the debugger is out of time"), 1)

    def test_a_part_out_of_time_leaves_where_it_waits(self):
        self.environment["HANGS"] = "test.gpu.memory"
        self.assertEqual(self.run_ladder("--only", "memory,flat", "--budget", "17"), 1)
        self.assertEqual(self.states["memory"], "out of time")
        self.assertIn("sleep", (WORK / "report/memory.stacks.log").read_text())
        self.assertEqual(self.states["flat"], "left out")

    def test_a_signal_leaves_a_complete_report(self):
        self.environment["HANGS"] = "test.gpu.memory"
        child = self.start("--only", "start,memory")
        while not (WORK / "calls").exists() or len(self.calls()) < 2:
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(timeout=20), 143)
        child.stdout.close()
        report = json.loads((WORK / "report/report.json").read_text())
        self.assertEqual([entry["state"] for entry in report["parts"]], ["held", "cut short"])
        self.assertFalse(report["finished"])

    def test_unknown_parts_and_no_gpu(self):
        child = self.start("--only", "nonsense")
        self.assertIn("there is no part nonsense; the parts are start doctor", child.communicate(timeout=20)[0])
        self.assertEqual(child.returncode, 64)
        (WORK / "path/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        self.assertEqual(self.run_ladder(), 77)
        self.assertIn("--dry-run runs what needs none", self.output)

    def test_without_a_gpu_an_earlier_report_stays(self):
        self.assertEqual(self.run_ladder("--only", "start"), 0)
        (WORK / "path/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
        self.assertEqual(self.run_ladder(), 77)
        self.assertEqual(self.states, {"start": "held"})
        self.assertIn("the report of an earlier run stays", self.output)

    def test_the_script_explains_itself(self):
        for words, code, text in ((["--help"], 0, "Ends with 0 when all parts held, 77 without a GPU."), (["--report"], 64, "--report has no value"),
                                  (["--repport", "here"], 64, "there is no option --repport"), (["--packages", "nowhere"], 66, "--packages nowhere is no directory")):
            done = subprocess.run([LADDER.with_name("run.sh"), *words], cwd=WORK, env=self.environment, capture_output=True, text=True, check=False, timeout=20)
            self.assertEqual((done.returncode, text in done.stdout + done.stderr), (code, True), done)


unittest.main()
