#!/usr/bin/env python3
"""Every kernel that is launched in teams can be launched on every architecture: its threads,
registers and shared memory against what a multiprocessor has. Registers and the launch bounds are
those of the compiled machine code, of one architecture in CI; all architectures have as many
registers. Scratch memory is in the kernel's name, so shared memory is checked for all.

    launch_limits.py CUDA_DIRECTORY LIBRARY...     cuobjdump from TESSERA_CUOBJDUMP, the toolkit or
                                                   PATH; exit code 77 without"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

# "CUDA C++ Programming Guide", table of technical specifications per compute capability: shared
# memory of a multiprocessor and of a block in KiB; threads and blocks of a multiprocessor
LIMITS = {80: (164, 163, 2048, 32), 86: (100, 99, 1536, 16), 89: (100, 99, 1536, 24), 90: (228, 227, 2048, 32), 100: (228, 227, 2048, 32), 120: (100, 99, 1536, 24)}
REGISTERS, REGISTERS_OF_WARP = 65536, 256  # of a multiprocessor; allocated together
THREADS_OF_BLOCK = 1024
RESERVED = 1024  # bytes of a block, by the driver
NO_TOOL = 77


def cuobjdump(toolkit):
    for candidate in (os.environ.get("TESSERA_CUOBJDUMP"), f"{toolkit}/cuobjdump", shutil.which("cuobjdump")):
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    print(f"no cuobjdump in {toolkit} or PATH (tests/gpu/get_cuobjdump.sh fetches one); TESSERA_CUOBJDUMP names it elsewhere")
    sys.exit(NO_TOOL)


def kernels_of(text):
    """(name, registers, static shared memory, local memory) of each kernel of a resource usage."""
    for name, usage in re.findall(r"Function (.+?):\s*\n\s*(REG:.*)", text):
        number = {key: int(value) for key, value in re.findall(r"([A-Z]+)(?:\[\d+\])?:(\d+)", usage)}
        yield name, number["REG"], number.get("SHARED", 0), number.get("LOCAL", 0)


def blocks_that_fit(architecture, threads, registers, shared):
    """Blocks of a multiprocessor, by threads, registers and shared memory."""
    of_multiprocessor, of_block, most_threads, most_blocks = LIMITS[architecture]
    if shared > of_block * 1024 or threads > THREADS_OF_BLOCK:
        return 0
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // REGISTERS_OF_WARP) * REGISTERS_OF_WARP
    return min(most_blocks, most_threads // threads, REGISTERS // of_warp // warps, of_multiprocessor * 1024 // (shared + RESERVED))


def asked_for(architecture, threads, blocks, scratch):
    """What blocks_per_multiprocessor() of launch.hpp makes of `blocks`, which were those of the
    compiled architecture, in a build for this one only."""
    fit = LIMITS[architecture][0] * 1024 // (scratch + 2048 + 8 * threads)
    return max(1, min(blocks, fit))


def main():
    tool = cuobjdump(sys.argv[1])
    environment = dict(os.environ, PATH=f"{os.environ['PATH']}:{pathlib.Path(tool).parent}")
    text = "".join(subprocess.run([tool, "--dump-resource-usage", library], env=environment, capture_output=True, text=True, check=False).stdout for library in sys.argv[2:])
    text = subprocess.run(["c++filt"], input=text, capture_output=True, text=True, check=True).stdout
    bounded = rows = 0
    wrong = []
    for name, registers, static, _ in kernels_of(text):
        if "tessera::" not in name:
            continue
        if "CallWithScratch<" in name:
            bounds = re.search(r"LaunchBounds<(\d+)u?l?, (\d+)u?l?>", name)
            scratch = re.search(r"ScratchBytes<(\d+)u?l?>", name)
            if not bounds or not scratch:
                wrong.append(f"no launch bounds or scratch in {name[:300]}")
                continue
            threads, blocks, dynamic = int(bounds[1]), int(bounds[2]), int(scratch[1])
            bounded += 1
        elif "CallWithTeam<" in name:
            threads, blocks, dynamic = 128, 1, 0  # threads_per_row
            rows += 1
        else:
            continue
        # Kokkos adds its own memory for reductions and barriers
        shared = static + dynamic + 8 * (threads + 2)
        for architecture in LIMITS:
            fit, wanted = blocks_that_fit(architecture, threads, registers, shared), asked_for(architecture, threads, blocks, dynamic)
            if fit < wanted:
                wrong.append(f"sm_{architecture}: {wanted} blocks of {threads} threads are asked for, {fit} fit with {registers} registers and {shared} bytes of shared memory: {name[:300]}")
    print("\n".join(wrong))
    print(f"{bounded} kernels with scratch memory and {rows} by rows, for {', '.join(f'sm_{a}' for a in LIMITS)}; registers of the code that was compiled")
    if bounded < 50 or rows < 20:
        print("that are fewer than there were: are they launched under other names now?")
        sys.exit(1)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
