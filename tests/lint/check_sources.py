#!/usr/bin/env python3
"""House rules about text: homes of foreign headers, calls that wait for a device, leftover marks. Usage: check_sources.py REPOSITORY"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
LAYERS = re.findall(r"tessera_(?:add_layer|join_parts)\((\w+)", (ROOT / "src/CMakeLists.txt").read_text()) + ["cli"]
HOMES = {  # foreign header -> layers that may include it (in src only)
    r"mpi\.h": {"topology", "comm"},
    r"Kokkos_.*": {"memory", "kernels"},
    r"hdf5\.h|H5.*": {"checkpoint"},
    r"nlohmann/.*": {"core"},
    r"spdlog/.*": {"core"},
    r"CLI/.*": {"cli"},
    r"pcre2\.h": {"data"},
    r"utf8proc\.h": {"data"},
    r"yaml\.h": {"config"},
    r"zlib\.h": {"data", "checkpoint"},
    r"zstd\.h": {"data"},
    r"(arrow|parquet)/.*": {"data"},
    r"sentencepiece_.*": {"data"},
    r"xxhash\.h": {"data", "checkpoint"},
    r"dnnl.*|oneapi/.*|cblas\.h": {"kernels"},
    r"hwloc.*": {"topology"},
    r"liburing\.h": {"memory"},
    r"nccl\.h": {"comm"},
    r"cublasLt\.h|cudnn.*": {"kernels"},
}
# Calls that block the host until a stream or the device is idle: nowhere. Code waits for events, with a deadline.
WAITS = re.compile(r"\bcuda(DeviceSynchronize|StreamSynchronize|EventSynchronize|DeviceReset|Memcpy|Memset)\b|\bKokkos::fence\b|(\.|->)fence\s*\(")
# Memory is allocated through named buffers, and freed in stream order.
ALLOCATIONS = re.compile(r"\bcuda(Malloc|Free|HostAlloc|HostRegister)\w*\b|\bKokkos::kokkos_(malloc|free)\b")
ALLOCATION_HOME = "src/memory/cuda/cuda_api.cpp"
# Only adapters name CUDA; a port to another accelerator adds files next to them (docs/explanation/another-accelerator.md).
ADAPTERS = re.compile(r"src/cuda_driver/.*|src/memory/cuda/.*|src/comm/nccl/.*"                  # device runtime, collectives
                      r"|src/kernels/(gemm|attention)/\w*(cublaslt|cudnn)\w*\.\wpp"               # libraries of matrix products and attention
                      r"|src/kernels/launch/(device_space_cuda\.cpp|device_code\.hpp)|include/tessera/core/rounding\.hpp"   # Kokkos, compiler
                      r"|src/topology/(shared/)?(gpu_inventory|device_binding)\.\wpp|src/cli/doctor/gpu_findings\.\wpp")  # NVML, what nodes report
CUDA = re.compile(r"\w*cuda\w*", re.IGNORECASE)
# Words of users that are not ours: environment, options of the build, and names of Hugging Face, PyTorch and DeepSpeed.
FOREIGN_CUDA = re.compile(r"CUDA_VISIBLE_DEVICES|TESSERA_ENABLE_CUDA|--preset cuda|\bno_cuda\b|\bcuda_aware\b|\benable_cuda_graph\b|\"cuda\"|\"cuda_graphs\"|or cuda")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
problems = []


def report(path, number, text):
    problems.append(f"{path.relative_to(ROOT)}:{number}: {text}")


def check_includes(path, layer, for_others):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(1)
        for pattern, homes in HOMES.items():
            if re.fullmatch(pattern, name):
                if for_others:
                    report(path, number, f"a header for other layers includes {name}")
                elif layer not in homes:
                    report(path, number, f"{name} belongs to {', '.join(sorted(homes))}, not {layer}")
        if for_others and "/" in name and not name.startswith(("tessera/", "sys/")):
            report(path, number, f"a header for other layers includes {name}")


def check_device_calls(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        code = line.split("//")[0]
        if WAITS.search(code):
            report(path, number, f"{WAITS.search(code).group(0).strip('.->( ')} waits for the device; record an event and wait for that")
        if ALLOCATIONS.search(code) and path != ROOT / ALLOCATION_HOME:
            report(path, number, f"{ALLOCATIONS.search(code).group(0)} belongs to {ALLOCATION_HOME}")


def check_names(path):
    if ADAPTERS.fullmatch(str(path.relative_to(ROOT))):
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = CUDA.search(FOREIGN_CUDA.sub("", line.split("//")[0]))
        if match:
            report(path, number, f"{match.group(0)} is a name for adapters; elsewhere it is a device")


for layer in LAYERS:
    for path in sorted((ROOT / "include/tessera" / layer).rglob("*.hpp")):
        check_includes(path, layer, for_others=True)
        check_names(path)
    for path in sorted((ROOT / "src" / layer).rglob("*.?pp")):
        check_includes(path, layer, for_others=path.parent.name == "shared")
        check_device_calls(path)
        check_names(path)

for folder in ("src", "include", "tests", "cmake", "docs", "configs", "slurm", "modules"):
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix not in {".hpp", ".cpp", ".cmake", ".sh", ".md", ".py", ".txt", ".json"} or path.name == "check_sources.py":
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if re.search(r"\b(TODO|FIXME|XXX)\b", line):
                report(path, number, "a leftover mark")

print("\n".join(problems) if problems else "sources follow the house rules")
sys.exit(1 if problems else 0)
