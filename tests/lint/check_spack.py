#!/usr/bin/env python3
"""The Spack recipe as far as it can be checked without Spack: the repository has the layout of Spack 1.0; the recipe parses, uses known names, has what
Spack asks of a recipe and this version, sets CMake options that exist, and names a package for each thing that cmake/Dependencies.cmake looks for.
Usage: check_spack.py SOURCE_DIR"""
import ast
import pathlib
import re
import sys

FROM_SPACK = {"version", "variant", "depends_on", "conflicts", "license", "maintainers", "when", "which"}  # of spack.package
ASSIGNED = {"homepage", "git"}
CALLED = {"version", "license", "maintainers"}
# what CMake looks for -> Spack's package; None: part of the compiler or of Spack's build environment
PACKAGES = {"Threads": None, "OpenMP": None, "PkgConfig": "pkgconfig", "MPI": "mpi", "HDF5": "hdf5", "nlohmann_json": "nlohmann-json", "fmt": "fmt", "spdlog": "spdlog",
            "ZLIB": "zlib-api", "HWLOC": "hwloc", "XXHASH": "xxhash", "PCRE2": "pcre2", "UTF8PROC": "utf8proc", "YAML": "libyaml", "ZSTD": "zstd", "LIBURING": "liburing", "SENTENCEPIECE": "sentencepiece", "TesseraArrow": "arrow", "TesseraGemm": "onednn", "Kokkos": "kokkos"}


def main():
    source = pathlib.Path(sys.argv[1])
    repository = source / "spack/spack_repo/tessera"  # a Python module spack_repo.NAMESPACE
    recipe = repository / "packages/tessera/package.py"
    tree = ast.parse(recipe.read_text(), str(recipe))
    problems = []

    if "namespace: tessera" not in (repository / "repo.yaml").read_text():
        problems.append(f"the namespace in repo.yaml is not that of the folder {repository.name}")
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for name in node.names}
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef))} | {"self"} | imported | stored
    problems += [f"line {node.lineno}: the name {node.id} is not one of Spack's" for node in ast.walk(tree)
                 if isinstance(node, ast.Name) and node.id not in FROM_SPACK | defined]

    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    options = set(re.findall(r"(?:option|set)\((TESSERA_[A-Z_]+)", "".join(p.read_text() for p in (source / "cmake").glob("*.cmake"))))
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("define", "define_from_variant"):
            name = call.args[0].value
            if name not in options:
                problems.append(f"line {call.lineno}: {name} is no option of this project")

    directives = [call for call in calls if isinstance(call.func, ast.Name)]
    for name in sorted((ASSIGNED - stored) | (CALLED - {call.func.id for call in directives})):
        problems.append(f"the recipe has no {name}")
    version = re.search(r"project\(Tessera VERSION ([0-9.]+)", (source / "CMakeLists.txt").read_text()).group(1)
    if version not in {call.args[0].value for call in directives if call.func.id == "version"}:
        problems.append(f"the recipe does not have version {version} of CMakeLists.txt")

    named = {re.split(r"[@+~ ]", call.args[0].value)[0] for call in directives if call.func.id == "depends_on" and isinstance(call.args[0], ast.Constant)}
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
