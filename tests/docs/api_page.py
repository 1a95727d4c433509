#!/usr/bin/env python3
"""docs.api: docs/reference/api.md lists every public header with the first sentence of its comment, in the order of the layers.

Usage: api_page.py SOURCE_DIRECTORY [--write]
"""
import pathlib
import re
import sys

PAGE = "docs/reference/api.md"
INTRODUCTION = """# C++ API

For developers whose own programs use the library: every header that is installed, by
[layer](../explanation/layers.md). [Use the library](../how-to/use-the-library.md), [Replace parts
of the trainer](../how-to/own-trainer.md) and [Build a model of your own](../how-to/own-model.md)
have complete programs.

The classes and functions of these headers are in the API reference, which Doxygen writes from their
comments. The test `docs.reference` builds it as `reference/html/index.html` in the build tree:

```sh no-test: needs a build tree
ctest --test-dir build/host -R docs.reference
```

Interfaces may change before version 1.0. This page is generated from the headers
(`tests/docs/api_page.py`).
"""


def sentence_of(header):
    """The first sentence of a header's comment, which ends before a capital letter or a page's name."""
    words = []
    for line in header.read_text().splitlines()[1:]:
        if not line.startswith("/// "):
            break
        words.append(line[4:].strip())
    text = re.match(r"(.*?(?:\.(?= +[A-Z]|$)|:(?= docs/))|.*)", " ".join(words)).group(1)
    return re.sub(r"(?<![\w`])(--\w+)", r"`\1`", text.rstrip(".:"))


def page_of(root):
    layers = re.findall(r"tessera_(?:add_layer|join_parts)\((\w+)", (root / "src/CMakeLists.txt").read_text())
    out = [INTRODUCTION]
    for layer in layers:
        headers = sorted((root / "include/tessera" / layer).rglob("*.hpp"))
        if headers:
            out.append(f"## {layer}\n| header | content |\n|---|---|\n" + "".join(
                f"| `{header.relative_to(root / 'include')}` | {sentence_of(header)} |\n" for header in headers))
    return "\n".join(out)


def main():
    root = pathlib.Path(sys.argv[1])
    page, text = root / PAGE, page_of(root)
    if sys.argv[2:] == ["--write"]:
        page.write_text(text)
    elif not page.exists() or page.read_text() != text:
        print(f"{PAGE} is not that of the headers in include/tessera: python3 tests/docs/api_page.py . --write")
        sys.exit(1)


if __name__ == "__main__":
    main()
