#!/usr/bin/env python3
"""docs.links: every relative link and anchor resolves, every page is reachable from the index, every
page named in a source exists, and pages keep their form (a title, lines of at most 100 columns,
tables with as many cells in each row).

Usage: check_links.py SOURCE_DIRECTORY
       check_links.py INSTALLED_DOCUMENTATION PREFIX     links may lead to any installed file
"""
import pathlib
import re
import sys

from pages import anchors, blocks, links, pages, prose

WIDTH = 100
LANGUAGES = {"sh", "text", "console", "json", "python", "cpp", "cmake", "lua"}
GENERATED = {"docs/reference/options.md", "docs/reference/deepspeed-config.md"}


def check_link(root, bound, page, target, reached):
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists():
        return f"links to {target}, which does not exist"
    if not path.is_relative_to(bound):
        return f"links to {target}, outside of {bound}"
    if path.suffix == ".md":
        reached.add(path)
        if anchor and anchor not in anchors(path):
            return f"links to {target}; {path.relative_to(bound)} has no such heading"
    return None


def check_form(root, page):
    lines = page.read_text().splitlines()
    if not lines or not lines[0].startswith("# "):
        yield 1, "has no title"
    for number, line in prose(page):
        if len(line) > WIDTH and not line.startswith("|") and "](" not in line:
            yield number, f"a line of {len(line)} columns; at most {WIDTH}"
    columns = None
    for number, line in prose(page):
        count = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        if count is not None and columns not in (None, count):
            yield number, f"a table row with {count - 1} cells; the rows above have {columns - 1}"
        columns = count
    for block in blocks(page):
        if block.language not in LANGUAGES:
            yield block.line, f"a fenced block of language '{block.language}'; use one of " + \
                ", ".join(sorted(LANGUAGES))


def pages_named_in_sources(root):
    """(file, line, page) of every docs/... that a source names."""
    files = [*root.glob("*.sh"), *root.glob("CMakeLists.txt")]
    for folder in ("src", "include", "tests", "cmake", "slurm", "modules", "spack"):
        files += (root / folder).rglob("*")
    for path in files:
        name = path.relative_to(root).as_posix()
        if name.startswith("tests/docs/") or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for page in re.findall(r"(?<!tests/)\bdocs/[\w./-]+\.(?:md|json|svg|py)\b", line):
                yield name, number, page


def main():
    root, bound = (pathlib.Path(argument).resolve() for argument in (sys.argv[1], sys.argv[-1]))
    errors, graph = [], {}
    for page in pages(root):
        name = page.relative_to(root)
        page = page.resolve()   # below an installed slurm, which is a link
        reached = graph.setdefault(page, set())
        for number, target in links(page):
            if error := check_link(root, bound, page, target, reached):
                errors.append(f"{name}:{number}: {error}")
        if str(name) not in GENERATED:
            errors += [f"{name}:{number}: {error}" for number, error in check_form(root, page)]

    seen, waiting = set(), [root / "docs/README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            waiting += graph.get(page, ())
    errors += [f"{page.relative_to(bound)}: no link leads here from docs/README.md"
               for page in graph if page.is_relative_to(root / "docs") and page not in seen]
    errors += [f"{name}:{number}: names {page}, which does not exist"
               for name, number, page in pages_named_in_sources(root) if not (root / page).exists()]

    print("\n".join(errors) or f"{len(graph)} pages, all links resolve")
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
