#!/usr/bin/env python3
"""The Spack recipe as far as it can be checked without Spack: it parses, uses known names, and sets CMake options that exist, and names a package for
each thing that cmake/Dependencies.cmake looks for. Usage: check_spack.py SOURCE_DIR"""
import ast
import pathlib
import re
import sys

FROM_SPACK = {"CMakePackage", "version", "variant", "generator", "depends_on", "conflicts", "which"}
# what CMake looks for -> Spack's package; None: part of the compiler or of Spack's build environment
PACKAGES = {"Threads": None, "OpenMP": None, "PkgConfig": "pkgconfig", "MPI": "mpi", "HDF5": "hdf5", "nlohmann_json": "nlohmann-json", "fmt": "fmt", "spdlog": "spdlog",
            "ZLIB": "zlib-api", "HWLOC": "hwloc", "XXHASH": "xxhash", "PCRE2": "pcre2", "UTF8PROC": "utf8proc", "YAML": "libyaml", "ZSTD": "zstd", "LIBURING": "liburing", "SENTENCEPIECE": "sentencepiece", "TesseraArrow": "arrow", "TesseraGemm": "onednn", "Kokkos": "kokkos"}


def main():
    source = pathlib.Path(sys.argv[1])
    recipe = source / "spack/packages/tessera/package.py"
    tree = ast.parse(recipe.read_text(), str(recipe))
    problems = []

    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))} | {"self"}
    problems += [f"line {node.lineno}: the name {node.id} is not one of Spack's" for node in ast.walk(tree)
                 if isinstance(node, ast.Name) and node.id not in FROM_SPACK | defined]

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    options = set(re.findall(r"(?:option|set)\((TESSERA_[A-Z_]+)", "".join(p.read_text() for p in (source / "cmake").glob("*.cmake"))))
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "define":
            name = call.args[0].value
            if name not in options:
                problems.append(f"line {call.lineno}: {name} is no option of this project")

    named = {call.args[0].value.split("@")[0].split("+")[0].strip() for call in calls if isinstance(call.func, ast.Name) and call.func.id == "depends_on"}
    text = (source / "cmake/Dependencies.cmake").read_text()
    wanted = set(re.findall(r"find_package\((\w+)", text)) | set(re.findall(r"pkg_check_modules\((\w+)", text)) | {"Kokkos"}
    for name in sorted(wanted):
        if name not in PACKAGES:
            problems.append(f"cmake/Dependencies.cmake looks for {name}: name its Spack package in {pathlib.Path(__file__).name}")
        elif PACKAGES[name] and PACKAGES[name] not in named:
            problems.append(f"the recipe does not depend on {PACKAGES[name]} ({name} in cmake/Dependencies.cmake)")
    for line, words in enumerate(recipe.read_text().splitlines(), 1):
        if len(words) > 140 or words != words.rstrip() or "\t" in words:
            problems.append(f"line {line}: too long, or blanks at its end, or a tab")
    print("\n".join(f"{recipe}: {p}" for p in problems) or f"{len(named)} dependencies, {len(options)} options: the recipe fits")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
