"""Pages of the documentation, their fenced blocks, headings and links."""
import dataclasses
import pathlib
import re


@dataclasses.dataclass
class Block:
    page: pathlib.Path
    line: int          # of the opening fence
    language: str      # sh, text, ...
    note: str          # what follows the language
    text: str


def pages(root):
    """All Markdown pages: the front page, CONTRIBUTING, CHANGELOG, docs/, the job scripts and site profiles."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *root.glob("slurm/**/*.md"), *root.glob("pbs/**/*.md")])


def blocks(page):
    found, lines = [], page.read_text().splitlines()
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and (opening := re.match(r"\s*```(.*)$", line)):
            language, _, note = opening.group(1).strip().partition(" ")
            start = (number, language, note.strip(), len(line) - len(line.lstrip()))
        elif start is not None and line.strip() == "```":
            first, language, note, indent = start
            text = "\n".join(code[indent:] for code in lines[first:number - 1])
            found.append(Block(page, first, language, note, text))
            start = None
    if start is not None:
        raise SystemExit(f"{page}:{start[0]}: a fenced block without an end")
    return found


def prose(page):
    """(line number, text) of all lines outside fenced blocks."""
    inside, result = False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            result.append((number, line))
    return result


def slug(text, separator="-"):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", separator)


def anchors(page):
    """Anchors of a page's headings, as GitHub makes them."""
    found, seen = set(), {}
    for _, line in prose(page):
        heading = re.match(r"#+ +(.*?)\s*#*$", line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1))
        anchor = slug(text)
        count = seen.get(anchor, 0)
        seen[anchor] = count + 1
        found.add(f"{anchor}-{count}" if count else anchor)
    return found


def links(page):
    """(line number, target) of the page's links and pictures."""
    found = []
    for number, line in prose(page):
        line = re.sub(r"`[^`]*`", "", line)
        found += [(number, target) for target in re.findall(r"\]\(([^)\s]+)\)", line)]
        found += [(number, target) for target in re.findall(r'<img[^>]* src="([^"]+)"', line)]
    return found
