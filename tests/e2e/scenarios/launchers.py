"""Launchers of several MPIs on one machine."""
import os
import shutil
import subprocess
import time

from support import launcher_options, launcher_words, zero


def other_launcher(b):
    """The launcher of the MPI that this build does not use: Open MPI's, or Hydra of MPICH."""
    program = "mpirun.openmpi" if not launcher_options(b.mpiexec) else "mpiexec.mpich"
    if shutil.which(program) is None:
        print(f"SKIPPED: no {program} on this machine (Debian packages openmpi-bin and mpich)")
        raise SystemExit(77)
    return program


def launcher_of_another_mpi(b):
    """It would start worlds of one rank. One process says so, in time, and all end with 64; tessera doctor says so too."""
    other = other_launcher(b)
    began = time.monotonic()
    done = subprocess.run(launcher_words(other, 3) + [str(b.bin / "tessera-train")] + b.common("run"), env=b.environment(), capture_output=True, text=True, timeout=60)
    seconds = time.monotonic() - began
    assert done.returncode == 64 and seconds < 10, (done.returncode, seconds, done.stderr)
    assert done.stderr.count("tessera-train: error: ") == 1 and "started 3 processes" in done.stderr and "Tessera's MPI is" in done.stderr, done.stderr
    assert not (b.work / "run").exists()
    told = subprocess.run(launcher_words(other, 2) + [str(b.bin / "tessera"), "doctor", "--dir", str(b.work)], env=b.environment(), capture_output=True, text=True, timeout=120)
    assert "  started by             mp" in told.stdout and "2 processes" in told.stdout and "which another launcher starts" in told.stdout, told.stdout
    names = b.work / "bin"
    names.mkdir()
    (names / "mpirun").symlink_to(shutil.which(other))
    environment = dict(b.environment(), PATH=f"{names}:{os.environ['PATH']}")
    told = subprocess.run([str(b.bin / "tessera"), "doctor", "--dir", str(b.work)], env=environment, capture_output=True, text=True, timeout=120)
    assert "mpirun in PATH belongs to" in told.stdout, told.stdout


def own_launcher(b):
    """Training, save and resume on 1, 2 and 4 ranks under the launcher of the build's MPI, which doctor names without a remark."""
    told = b.tool(["doctor", "--dir", b.work]).stdout
    mpi = next(line.split(None, 4)[4] for line in told.splitlines() if line.startswith("  MPI of this build"))
    assert ("MPICH" if not launcher_options(b.mpiexec) else "Open MPI") in mpi, told
    settings = dict(deepspeed=b.config("ds.json", zero(3)), save_strategy="steps", save_steps=3)
    losses = {}
    for ranks in (1, 2, 4):
        run = f"run{ranks}"
        b.train(ranks, b.common(run, per_device_train_batch_size=8 // ranks, max_steps=3, lr_scheduler_type="constant", **settings))
        done = b.train({1: 4, 2: 1, 4: 2}[ranks], b.common(run, per_device_train_batch_size={1: 2, 2: 8, 4: 4}[ranks], lr_scheduler_type="constant", **settings))
        assert "resuming from" in done.stderr, done.stderr
        losses[ranks] = b.losses(run)
    for ranks in (2, 4):
        worst = max(abs(x - y) / y for x, y in zip(losses[ranks], losses[1]))
        assert len(losses[ranks]) == 6 and worst < 1e-5, losses
