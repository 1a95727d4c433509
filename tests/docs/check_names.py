#!/usr/bin/env python3
"""docs.names: what the pages name in backticks exists in the sources: files, tests, C++ names,
options of the build.

Usage: check_names.py SOURCE_DIRECTORY CTEST BUILD_DIRECTORY
"""
import pathlib
import re
import subprocess
import sys

from pages import pages

SKIP = {"CHANGELOG.md"}                 # names of its time
FOREIGN = {                             # names of other programs
    "AdamW", "AdamWScale", "LayerNorm", "LoRA", "DeepSpeed", "GaLore", "BPE", "ByteLevel", "CMakeMake",
    "Digits", "Isolated", "Removed", "Sequence", "Split", "TemplateProcessing", "GPT2Tokenizer",
    "GPT2LMHeadModel", "CosineAnnealing", "LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR",
    "WarmupCosineLR", "KillWait", "PyTorch", "OpenMP",
}
EXAMPLES = ("lion",)                    # what the walks add
FOLDERS = ("src", "include", "tests", "cmake", "slurm", "modules", "spack", "configs", "docs")


def sources(root):
    text = []
    for folder in ("src", "include", "tests", "cmake", "slurm"):
        for path in (root / folder).rglob("*"):
            if path.suffix in {".cpp", ".hpp", ".py", ".sh", ".cmake", ".txt"} and path.is_file():
                text.append(path.read_text(errors="replace"))
    return text


def tests_of(ctest, build, text):
    listing = subprocess.run([ctest, "--test-dir", build, "-N"], capture_output=True, text=True,
                             check=True).stdout
    names = set(re.findall(r"Test +#\d+: (\S+)", listing))
    return names | {re.sub(r"\.np\d+$", "", name) for name in names}


def tests_of_other_builds(text, tests):
    """Expressions for the names of tests that this build lacks, as those of NCCL without its headers."""
    out = []
    for name in re.findall(r"add_test\(NAME ([\w.]+\$\{[\w.${}]+)", text):
        expression = re.sub(r"\\\$\\\{\w+\\\}", r"\\w+", re.escape(name))
        if not any(re.fullmatch(expression, test) for test in tests):
            out.append(expression)
    return out


def check(root, token, words, tests, others, text):
    """What is wrong with a name in backticks; None when it is right or not a name we know."""
    bare = token.rstrip(".,;:")
    if any(example in bare for example in EXAMPLES):
        return None
    if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w./-]+", bare):
        return None if (root / bare).exists() else "no such file"
    if match := re.fullmatch(r"-?D?(TESSERA_[A-Z_]+)(?:[= ].*)?", bare):
        return None if match.group(1) in words else "no such option or variable"
    if re.fullmatch(r"(?:core|memory|topology|kernels|data|comm|optim|model|config|zero|checkpoint|"
                    r"train|cli|e2e|slurm|modules|fuzz|lint|install|gpu|docs|bench)\.[a-z_0-9]+"
                    r"(?:\.[a-z_0-9]+)?", bare):
        folder, _, name = bare.partition(".")
        if (bare in tests or bare.split(".")[-1] in {"hpp", "cpp", "py", "h5", "json", "jsonl", "md", "sh", "gz", "txt"}
                or (root / f"tests/{folder}/{name.partition('.')[0]}.test.cpp").exists()
                or (root / f"tests/{folder}/{name}.cpp").exists()
                or bare in text or f"{folder}/{name}.test.cpp" in text
                or any(re.fullmatch(other, bare) for other in others)):
            return None
        return "no such test"
    if match := re.fullmatch(r"(?:[a-z_]+::)*([A-Za-z_]\w*)(?:::(\w+))*(?:\(.*\))?", bare):
        is_name = "::" in bare or re.match(r"[A-Z][a-z]+[A-Z]\w*", bare) or bare.endswith("()")
        if not is_name or bare.startswith(("std::", "torch", "Kokkos::")) or match.group(1) in FOREIGN:
            return None
        parts = re.findall(r"\w+", bare.partition("(")[0])
        missing = [part for part in parts if part not in words]
        return f"'{missing[0]}' is in no source" if missing else None
    return None


def main():
    root, ctest, build = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3]
    all_text = sources(root)
    words = set()
    for text in all_text:
        words |= set(re.findall(r"\w+", text))
    text = "\n".join(all_text)
    tests = tests_of(ctest, build, text)
    others = tests_of_other_builds(text, tests)
    errors = []
    for page in pages(root):
        if page.name in SKIP:
            continue
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for token in re.findall(r"`([^`\s]+)`", line):
                if error := check(root, token, words, tests, others, text):
                    errors.append(f"{page.relative_to(root)}:{number}: `{token}`: {error}")
    print("\n".join(errors) or "all names exist")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
