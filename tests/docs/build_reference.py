#!/usr/bin/env python3
"""docs.reference: Doxygen writes the API reference of the public headers without a warning, and every class, struct, enum and
header in it has a comment.

Usage: build_reference.py DOXYGEN SOURCE_DIRECTORY OUTPUT_DIRECTORY     output: OUTPUT_DIRECTORY/html/index.html
"""
import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET


def without_comment(xml):
    """The classes, structs, enums and files of Doxygen's XML that have no comment."""
    for path in sorted(xml.glob("*.xml")):
        root = ET.parse(path).getroot()
        for item in [*root.iter("compounddef"), *root.iter("memberdef")]:
            if item.get("kind") in ("class", "struct", "enum", "file") and item.get("prot") != "private":
                texts = ["".join(node.itertext()).strip() for part in ("briefdescription", "detaileddescription") for node in item.findall(part)]
                if not any(texts):
                    place = item.find("location")
                    yield f"{place.get('file')}:{place.get('line', 1)}: {item.get('kind')} {item.findtext('compoundname') or item.findtext('name')} has no comment"


def main():
    doxygen, source, output = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    include = source / "include"
    settings = (source / "docs/Doxyfile").read_text() + "".join(f'{name} = "{value}"\n' for name, value in {
        "INPUT": include / "tessera", "STRIP_FROM_PATH": include, "STRIP_FROM_INC_PATH": include, "OUTPUT_DIRECTORY": output}.items())
    if subprocess.run([doxygen, "-"], input=settings, text=True, cwd=source).returncode != 0:
        sys.exit(1)
    problems = list(without_comment(output / "xml"))
    print("\n".join(problems) or f"{output}/html/index.html")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
