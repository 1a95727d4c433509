#!/usr/bin/env python3
"""Unicode classes as Hugging Face's tokenizers sees them.

    python tests/oracles/unicode_classes.py additions > src/data/detail/unicode_additions.hpp
        characters that are newer than Unicode 14, as the table that makes PCRE2 10.42 agree (needs a Python with Unicode 14: 3.11)
    python tests/oracles/unicode_classes.py classes > tests/data/vectors/unicode_classes.json
        [first, last, class] for every run of letters (L), numbers (N) and white space (S) of GPT-2's word pattern
"""
import json
import sys
import unicodedata

from tokenizers import Regex, pre_tokenizers

CATEGORIES = ["L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "Mn", "Mc", "N", "Nd", "P", "S"]


def characters():
    return (c for c in range(0x110000) if not 0xD800 <= c < 0xE000)


def runs(pairs):
    out = []
    for code, kind in pairs:
        if out and out[-1][1] == code - 1 and out[-1][2] == kind:
            out[-1][1] = code
        else:
            out.append([code, code, kind])
    return out


def additions():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    print("#pragma once")
    print("/// Characters of Unicode 15.0 to 16.0 by general category, as members of a PCRE2 class: what PCRE2 10.42 (Unicode 14) takes for")
    print("/// unassigned. A newer PCRE2 knows them; naming them twice is harmless. Written by tests/oracles/unicode_classes.py.")
    print("\n#include <string_view>\n\nnamespace tessera::data::detail {\n")
    print("struct UnicodeAddition {\n  std::string_view category, members;\n};\n")
    print("inline constexpr UnicodeAddition unicode_additions[] = {")
    for category in CATEGORIES:
        finder = pre_tokenizers.Split(Regex(rf"\p{{{category}}}"), "removed")
        new = [(c, category) for c in characters()
               if unicodedata.category(chr(c)) == "Cn" and not finder.pre_tokenize_str(chr(c))]
        lines = [""]
        for first, last, _ in runs(new):
            item = rf"\x{{{first:X}}}" + (rf"-\x{{{last:X}}}" if last > first else "")
            if len(lines[-1]) + len(item) > 118:
                lines.append("")
            lines[-1] += item
        if new:
            print(f'    {{"{category}",\n     ' + "\n     ".join(f'R"({line})"' for line in lines) + "},")
    print("};\n\n}  // namespace tessera::data::detail")


def classes():
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)

    def kind(c):
        for probe, name in (("a", "L"), ("1", "N"), ("!", "O")):
            if len(words.pre_tokenize_str(probe + chr(c))) == 1:
                return name
        return "S"

    found = [run for run in runs((c, kind(c)) for c in characters()) if run[2] != "O"]
    print(json.dumps(found, separators=(",", ":")))


if __name__ == "__main__":
    {"additions": additions, "classes": classes}[sys.argv[1]]()
