#!/usr/bin/env python3
"""Holds the mechanical part of the project's language: American spelling everywhere, phrases that strings, comments and docs avoid,
and comments that begin as sentences do.
The words are in words.txt. A folder may be above zero only by its entry in BASELINE, which may only shrink.
Usage: check_language.py REPOSITORY [--all] [--tighten]   (--all: name every place, also those within the baseline; --tighten: lower the
baseline in this file to what holds now)"""
import pathlib
import re
import sys

import cpp_source

KINDS = ("misspelled words", "phrases to avoid", "comments that are fragments")
# folder or file of the repository -> (misspelled words, phrases, fragments) at most; src is src and include; everything else has none.
BASELINE = {}
TEXT = {".hpp", ".cpp", ".cu", ".cuh", ".md", ".txt", ".cmake", ".py", ".sh", ".in", ".json", ".yaml", ".toml", ".cff", ".svg", ".conf", ""}
FOLDERS = ("src", "include", "tests", "docs", "slurm", "modules", "cmake", "configs", "spack", ".ci")
# data from elsewhere, and this check's own words
EXCLUDED = re.compile(r"tests/lint/(words\.txt|test_checks\.py)|tests/(data/vectors|checkpoint/data|fuzz/(seeds|findings|corpus))/.*|tests/\w+/(data|vectors)/.*|configs/gpt2-8m/.*"
                      r"|LICENSE|.*\.pyc|tests/oracles/.*\.json|.*/tokenizer\.json|.*/merges\.txt")
WORD = re.compile(r"[A-Z]?[a-z]{3,}")


def rules():
    """({section: [(pattern, replacement)]}, correct words) of words.txt."""
    sections, correct, section = {"spelling": [], "phrases": [], "fragments": []}, set(), None
    for line in pathlib.Path(__file__).with_name("words.txt").read_text().splitlines():
        if not line or line.startswith("# "):
            continue
        header = re.match(r"\[(\w+)\]", line)
        if header:
            section = header.group(1)
        elif section == "correct":
            correct |= set(line.split())
        else:
            pattern, replacement = line.rsplit(" -> ", 1)
            sections[section].append((pattern, replacement))
    return sections, correct


def stems(word):
    """The word and what it may be an inflection of."""
    yield word
    for ending in ("d", "s", "r", "ed", "es", "ing", "rs", "able"):
        if word.endswith(ending):
            yield word[:-len(ending)]
            yield word[:-len(ending)] + "e"


def files_of(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in TEXT:
                yield path
    yield from (path for path in sorted(root.iterdir()) if path.is_file() and path.suffix in TEXT and path.name not in (".git", ".gitignore"))


def area_of(name):
    """The part of the tree that a bound holds for: src (with include), tests, docs, README.md, ..."""
    area = name.split("/")[0]
    return "src" if area == "include" else area


class Language:
    """Finds the misspelled words and the phrases of a line."""

    def __init__(self, sections, correct):
        self.rules = {name: [(re.compile(p, re.I), r) for p, r in rules] for name, rules in sections.items()}
        self.correct = correct
        self.checked = {}

    def rule_of(self, word):
        """What American spelling has instead of the word, or None."""
        if word not in self.checked:
            rule = next((r for p, r in self.rules["spelling"] if p.fullmatch(word)), None)
            self.checked[word] = None if rule is None or any(s in self.correct for s in stems(word)) else rule
        return self.checked[word]

    def misspelled(self, line):
        return [f"'{word}': American spelling has {self.rule_of(word.lower())}" for word in WORD.findall(line) if self.rule_of(word.lower())]

    def phrases(self, line):
        return [f"'{match.group(0)}': write {replacement}" for pattern, replacement in self.rules["phrases"] for match in pattern.finditer(line)]

    def fragments(self, comment):
        match = next((match for match in ((p.match(comment), r) for p, r in self.rules["fragments"]) if match[0]), None)
        return [f"'{' '.join(comment.split()[:4])} ...': {match[1]}"] if match else []


def comments_of(suffix, text):
    """(line, words) of each comment, and of each string with which a function of Python begins."""
    if suffix in (".cpp", ".hpp", ".cu", ".cuh"):
        return cpp_source.comments_of(text)
    if suffix == ".py":
        texts = re.finditer(r'(?:^|(?<=\n))[ ]*("""(?P<doc>.*?)"""|#(?P<line>[^\n]*(?:\n[ ]*#[^\n]*)*))', text, re.S)
    elif suffix in (".cmake", ".sh") or suffix == ".txt" and re.search(r"^\w+\(", text, re.M):
        texts = re.finditer(r"(?:^|(?<=\n))[ ]*#(?P<line>[^\n]*(?:\n[ ]*#[^\n]*)*)", text)
    else:
        return []
    return [(text.count("\n", 0, match.start()) + 1, " ".join(re.sub(r"^[ ]*#", "", words, flags=re.M).split()))
            for match in texts for words in [match.groupdict().get("doc") or match.group("line") or ""]]


def user_visible(name, suffix, text):
    """(line, words) that users read: strings of the programs, docs. A string without a blank may be a key of a file."""
    if name.startswith("src/") and suffix in (".cpp", ".hpp", ".cu", ".cuh"):
        return ((line, words) for line, words in cpp_source.string_literals(text) if " " in words)
    if name.startswith("docs/") and suffix == ".md" or name == "README.md":
        return enumerate(text.split("\n"), 1)
    return ()


def main():
    root = pathlib.Path(sys.argv[1])
    language = Language(*rules())
    found, read = {}, 0
    for path in files_of(root):
        name = str(path.relative_to(root))
        if EXCLUDED.fullmatch(name):
            continue
        text = path.read_text(errors="replace")
        read += 1
        lists = found.setdefault(area_of(name), ([], [], []))
        for line, words in enumerate(text.split("\n"), 1):
            lists[0].extend(f"{name}:{line}: {what}" for what in language.misspelled(words))
        for line, words in user_visible(name, path.suffix, text):
            lists[1].extend(f"{name}:{line}: {what}" for what in language.phrases(words))
        for line, words in comments_of(path.suffix, text):
            lists[1].extend(f"{name}:{line}: {what}" for what in language.phrases(words))
            lists[2].extend(f"{name}:{line}: {what}" for what in language.fragments(words))

    problems = 0
    if read < 300:
        print(f"only {read} files read: the check itself is broken")
        problems = 1
    for area, lists in sorted(found.items()):
        for places, bound, kind in zip(lists, BASELINE.get(area, (0, 0, 0)), KINDS):
            if len(places) > bound or places and "--all" in sys.argv:
                print(f"{area}: {len(places)} {kind}, at most {bound}")
                print("".join(f"    {place}\n" for place in places), end="")
            problems += len(places) > bound
    if "--tighten" in sys.argv:
        baseline = {area: tuple(min(len(places), bound) for places, bound in zip(found.get(area, ([], [], [])), bounds)) for area, bounds in BASELINE.items()}
        path = pathlib.Path(__file__)
        path.write_text(re.sub(r"^BASELINE = .*", f"BASELINE = {({a: b for a, b in baseline.items() if any(b)})}", path.read_text(), flags=re.M))
    total = [f"{sum(len(lists[i]) for lists in found.values())} {kind}" for i, kind in enumerate(KINDS)]
    print(f"{read} files: {', '.join(total)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
