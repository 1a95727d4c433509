#!/usr/bin/env python3
"""docs.site: `mkdocs build --strict` makes a site with search of all pages, and every link in it leads somewhere.

Usage: build_site.py MKDOCS SOURCE_DIRECTORY OUTPUT_DIRECTORY     output: OUTPUT_DIRECTORY/html/index.html
MKDOCS: the program; with '' it is installed from PyPI into OUTPUT_DIRECTORY/venv. 77: that is not possible.
"""
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from pages import links, pages

VERSION = "mkdocs==1.6.1"


def install(folder):
    """The program mkdocs of a virtual environment."""
    program = folder / "bin/mkdocs"
    if not program.exists():
        for command in ([sys.executable, "-m", "venv", folder],
                        [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "15", VERSION]):
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode != 0:
                shutil.rmtree(folder, ignore_errors=True)
                print(f"skipped: no mkdocs here (Debian package mkdocs), and none from PyPI: {(result.stderr or result.stdout).strip().splitlines()[-1]}")
                sys.exit(77)
    return program


def copy_pages(root, folder):
    """The pages, at the places that they have in the repository, and the other files that they link to. mkdocs knows no words
    after the language of a fenced block."""
    for page in pages(root):
        copy = folder / page.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(re.sub(r"^```(\w+) .*$", r"```\1", page.read_text(), flags=re.M))
        for _, target in links(page):
            file = (page.parent / target.partition("#")[0]).resolve()
            if not re.match(r"[a-z]+:", target) and file.suffix != ".md" and file.is_file():
                place = folder / file.relative_to(root)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, place)
    shutil.copy(root / "docs/site.css", folder / "docs/site.css")


def navigation(root):
    """The sections and pages of docs/README.md in their order, then the pages that it does not list."""
    sections = [{"Home": "README.md"}]
    for line in (root / "docs/README.md").read_text().splitlines():
        if line.startswith("## "):
            sections.append({line[3:]: []})
        elif row := re.match(r"\| \[([^]]*)\]\(([^)]*\.md)\)", line):
            next(iter(sections[-1].values())).append({row[1]: f"docs/{row[2]}"})
    listed = json.dumps(sections)
    rest = [str(page.relative_to(root)) for page in pages(root)]
    return sections + [{"More": [page for page in rest if f'"{page}"' not in listed]}]


class Page(html.parser.HTMLParser):
    """The anchors and the relative links of a page of the site."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.anchors |= {value for name, value in attributes if name == "id"}
        self.links |= {value for name, value in attributes if name in ("href", "src") and value and not re.match(r"[a-z]+:|//", value)}


def broken_links(site):
    found = {path.resolve(): Page(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}
    for path, page in sorted(found.items()):
        for link in sorted(page.links):
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not target.is_file() and link not in ("#", "."):
                yield f"{path.relative_to(site)}: {link} does not exist"
            elif anchor and target in found and anchor not in found[target].anchors:
                yield f"{path.relative_to(site)}: {link} has no such heading"


def main():
    mkdocs, root, output = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
    mkdocs = mkdocs or install(output / "venv")
    shutil.rmtree(output / "pages", ignore_errors=True)
    copy_pages(root, output / "pages")
    (output / "mkdocs.yml").write_text((root / "docs/mkdocs.yml").read_text() + f"nav: {json.dumps(navigation(root))}\n")
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(__file__).parent.resolve()), "PYTHONDONTWRITEBYTECODE": "1"}
    if subprocess.run([mkdocs, "build", "--strict", "--quiet", "--clean", "-f", output / "mkdocs.yml"], env=environment).returncode != 0:
        sys.exit(1)
    problems = list(broken_links(output / "html"))
    searched = {entry["location"] for entry in json.loads((output / "html/search/search_index.json").read_text())["docs"]}
    problems += [f"the search does not know {name}" for path in (output / "html").rglob("*.html")
                 if (name := path.relative_to(output / "html").as_posix()) not in searched | {"404.html"}]
    print("\n".join(problems) or f"{output}/html/index.html")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
