#!/usr/bin/env python3
"""Unicode classes as Hugging Face's tokenizers sees them.

    python tests/oracles/unicode_classes.py additions > src/data/tokenizer/unicode_additions.hpp
        characters that are newer than Unicode 14, as the table that makes PCRE2 10.42 agree (needs a Python with Unicode 14: 3.11)
    python tests/oracles/unicode_classes.py classes > tests/data/vectors/unicode_classes.json
        [first, last, class] for every run of letters (L), numbers (N) and white space (S) of GPT-2's word pattern
    python tests/oracles/unicode_classes.py normal_forms > src/data/tokenizer/normal_form_limits.hpp
        characters that take part in normal forms today, but not for Hugging Face (needs unicodedata2 of PyPI); clang-format the result
    python tests/oracles/unicode_classes.py bert > src/data/tokenizer/unicode_ranges.hpp
        classes of the Bert normalizer, of Punctuation and of StripAccents, and new letters with a lower case (Python 3.11); clang-format it
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


NORMAL_FORMS = """#pragma once
/// Code points that take part in normal forms today and did not in the Unicode version of Hugging
/// Face's tables (9): they stay as they are, and the text before and after them is normalized
/// separately. Written by tests/oracles/unicode_classes.py.

#include "detail/unicode_ranges.hpp"

namespace tessera::data::detail {

inline constexpr CodePoints inert_ranges[] = {
    %s};

inline bool is_inert_in_normal_forms(char32_t code) { return is_one_of(inert_ranges, code); }

}  // namespace tessera::data::detail"""


def normal_forms():
    import unicodedata2 as today
    from tokenizers import normalizers
    nfd, nfkd = normalizers.NFD().normalize_str, normalizers.NFKD().normalize_str

    def canonical_parts(code):
        parts = today.decomposition(chr(code))
        return [] if not parts or parts.startswith("<") else [int(part, 16) for part in parts.split()]

    def decomposes(text):
        return nfd(text) != text or nfkd(text) != text

    def reorders(text):
        return nfd(text + "\u0334") == "\u0334" + text or nfd("\u0301" + text) == text + "\u0301"

    found = {c for c in characters() if (today.combining(chr(c)) and not reorders(chr(c)) and not decomposes(chr(c)))
             or (today.normalize("NFKD", chr(c)) != chr(c) and not decomposes(chr(c)))}
    known = {part for c in characters() if nfd(chr(c)) != chr(c) for part in canonical_parts(c)}
    found |= {part for c in list(found) for part in canonical_parts(c) if part not in known}  # these two would be composed
    ranges = runs((c, "inert") for c in sorted(found))
    print(NORMAL_FORMS % ", ".join(f"{{0x{first:X}, 0x{last:X}}}" for first, last, _ in ranges))


BERT = """#pragma once
/// Classes of characters as Hugging Face's tokenizers has them: those of BERT and of StripAccents
/// are of older Unicode versions. Written by tests/oracles/unicode_classes.py.

#include <algorithm>
#include <span>

namespace tessera::data::detail {

struct CodePoints {
  char32_t first, last;
};

%s
/// Capital letters of Unicode 15 to 17, and the lower case of the first; the others follow at the
/// same distance.
struct Capitals {
  char32_t first, last, lower;
};
inline constexpr Capitals new_capitals[] = {
    %s};

inline bool is_one_of(std::span<CodePoints const> ranges, char32_t code) {
  auto const range = std::ranges::upper_bound(ranges, code, {}, &CodePoints::first);
  return range != ranges.begin() && code <= (range - 1)->last;
}

}  // namespace tessera::data::detail"""


def bert():
    from tokenizers import normalizers
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    split = pre_tokenizers.Punctuation().pre_tokenize_str
    clean = normalizers.BertNormalizer(**{**off, "clean_text": True}).normalize_str
    strip = normalizers.BertNormalizer(**{**off, "strip_accents": True}).normalize_str
    marks, lower = normalizers.StripAccents().normalize_str, normalizers.Lowercase().normalize_str
    text = ""
    for name, what, test in [("punctuation", "Split off by Punctuation and BertPreTokenizer.", lambda c: len(split("a" + chr(c))) == 2),
                             ("removed_by_bert", "Removed by clean_text of BertNormalizer.", lambda c: clean(chr(c)) == ""),
                             ("nonspacing_marks", "Removed by strip_accents of BertNormalizer.", lambda c: strip(chr(c)) == ""),
                             ("combining_marks", "Removed by StripAccents.", lambda c: marks(chr(c)) == "")]:
        found = runs((c, "") for c in characters() if test(c))
        text += f"/// {what}\ninline constexpr CodePoints {name}[] = {{\n    " + ", ".join(f"{{0x{a:X}, 0x{b:X}}}" for a, b, _ in found) + "};\n"
    new = [(c, ord(lower(chr(c))) - c) for c in characters() if lower(chr(c)) != chr(c).lower() and len(lower(chr(c))) == 1]
    print(BERT % (text, ", ".join(f"{{0x{a:X}, 0x{b:X}, 0x{a + d:X}}}" for a, b, d in runs(new))))


if __name__ == "__main__":
    {"additions": additions, "classes": classes, "normal_forms": normal_forms, "bert": bert}[sys.argv[1]]()
