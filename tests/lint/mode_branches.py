"""Branches on a mode in layer zero: conditions that ask how the engine was configured to work.

A branch is an `if`, a `while`, a `switch`, a `?:` or a std::visit. It is on a mode when its condition names one of
  - a setting: a data member that is a bool, an enum or an optional, of a plain struct in the layer's *_config.hpp and
    *_rules.hpp (EngineConfig, OptimizerOffload, StageRules), or one of NUMBERS,
  - a nullable member (a pointer, an optional or a std::function, of any class of the layer) that is asked for its presence,
    as in `if (swapped_)`: there the null pointer means a mode,
  - std::get_if or std::holds_alternative,
  - a query: a function that returns bool, or a bool variable of the same file, whose value is computed from one of these, as
    is_on_host() { return host_ && host_->has(unit); }.
A branch counts once, however many modes it names. Contracts (TESSERA_VALIDATE, TESSERA_EXPECT) refuse and do not branch: they
do not count. An optional that only says whether a value has arrived counts too: its reader cannot tell it from a mode.
Other layers have no settings of this kind, so the measure is of zero only.
"""
import re

import cpp_source

# Settings that are numbers, or enums of other layers: ZeRO's stage, sizes of groups, bits of quantized weights, the extent and encoding of states.
NUMBERS = {"stage", "stage_of", "shard_group_size", "secondary_group_size", "quantized_weight_bits", "delay_from", "extent", "encoding", "replicated"}
SETTINGS_FILE = re.compile(r"\w*_(config|rules)\.hpp")
ASSIGNMENT = re.compile(r"(?<![=!<>+\-*/|&])=(?!=)")


def closing(text, at):
    """Index of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] in "([{") - (text[i] in ")]}")
        if depth == 0:
            return i
    return len(text) - 1


def without_contracts(text):
    out, at = [], 0
    for match in re.finditer(r"\bTESSERA_(?:VALIDATE|EXPECT)\s*\(", text):
        if match.start() >= at:
            out.append(text[at:match.start()])
            at = closing(text, match.end() - 1) + 1
            out.append("\n" * text.count("\n", match.start(), at))
    return "".join(out) + text[at:]


def before_question_mark(text, at):
    """The condition of the ?: whose question mark is at `at`."""
    depth, start = 0, at
    while start > 0:
        token = text[start - 1]
        depth += (token in ")]}") - (token in "([{")
        is_name = "::" in (text[start - 2:start], text[start - 1:start + 1])
        if depth < 0 or (depth == 0 and token in ";,{}?:" and not is_name):
            break
        start -= 1
    words = text[start:at]
    while head := re.match(r"\s*(?:else\b|(?:for|if|while)\s*\()", words):
        words = words[head.end() if "(" not in head.group() else closing(words, head.end() - 1) + 1:]
    return re.split(rf"{ASSIGNMENT.pattern}|\breturn\b", words)[-1]


def conditions_of(text):
    """(position, condition) of each branch of a text without literals."""
    for match in re.finditer(r"\b(?:if|while|switch)\s*(?:constexpr\s*)?\(", text):
        yield match.start(), text[match.end():closing(text, match.end() - 1)]
    for match in re.finditer(r"(?<=\s)\?(?=\s)", text):
        yield match.start(), before_question_mark(text, match.start())
    for match in re.finditer(r"\bstd::visit\s*\(", text):
        yield match.start(), "std::get_if"


class Modes:
    """The names that mean modes in the files of a layer, {name: text}."""

    def __init__(self, texts):
        self.texts = {name: without_contracts(cpp_source.without_literals(text)) for name, text in texts.items()}
        enums = {found for text in self.texts.values() for found in re.findall(r"\benum class (\w+)", text)}
        self.settings, self.nullable, self.queries = set(NUMBERS), set(), set()
        for name, text in self.texts.items():
            has_settings = SETTINGS_FILE.fullmatch(name.split("/")[-1])
            for found in cpp_source.classes_of(text):
                for kind, member, _ in found.members:
                    kind = re.split(r"[={]", kind)[0]
                    if has_settings and found.is_plain and (kind.split()[0] in enums | {"bool"} or "optional <" in kind):
                        self.settings.add(member)
                    if re.search(r"\*|_ptr <|optional <|function <", kind):
                        self.nullable.add(member)
        self.find_queries()

    def find_queries(self):
        """Functions of one name are a query when all of them depend on a mode."""
        bodies = [(found.group(1), text[found.end():closing(text, found.end() - 1)]) for text in self.texts.values()
                  for found in re.finditer(r"\bbool (?:\w+::)*(\w+)\s*\([^(){};]*\)[\w\s]*\{", text)]
        returned = [(name, re.findall(r"\breturn\b([^;]*);", body)) for name, body in bodies]
        known = None
        while known != self.queries:
            known = set(self.queries)
            on_mode = {name: True for name, _ in returned}
            for name, values in returned:
                on_mode[name] &= any(self.are_in(value) for value in values)
            self.queries |= {name for name, holds in on_mode.items() if holds}

    def are_in(self, condition, variables=()):
        named = "|".join(sorted(self.settings) + [rf"{query}(?=\s*\()" for query in sorted(self.queries)]
                         + sorted(variables) + ["std::get_if", "std::holds_alternative"])
        if re.search(rf"(?<![\w:])(?:{named})(?!\w)", condition):
            return True
        present = (rf"(?:^|[(!]|&&|\|\||{ASSIGNMENT.pattern})\s*(?:[\w\[\]()*]+(?:\.|->))*\b(?:{'|'.join(sorted(self.nullable))})"
                   r"\s*(?:$|\)|&&|\|\||\?|;|[!=]=\s*nullptr|\.has_value)")
        return bool(self.nullable and re.search(present, condition))

    def variables_of(self, text):
        """The bool variables of a file whose value depends on a mode."""
        values = re.findall(r"\b(?:bool|auto) (?:const )?(\w+) =([^;{}]*);", text)
        values += re.findall(r"\bbool const \w+ =[^;{}]*,\s*(\w+) =([^;{}]*);", text)
        known, found = None, set()
        while known != found:
            known = set(found)
            found |= {name for name, value in values if re.match(r"\s*[^?]*$", value) and self.are_in(value, found)}
        return found

    def branches_of(self, name):
        """The lines of the branches on a mode."""
        text = self.texts[name]
        variables = self.variables_of(text)
        return sorted(text.count("\n", 0, at) + 1 for at, condition in conditions_of(text) if self.are_in(condition, variables))
