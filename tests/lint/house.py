#!/usr/bin/env python3
"""Measures the sources and holds each measure to a bound. Prints a table; fails, and names the offenders, where a measure is
above its bound.
  house.py REPOSITORY [--worst N] [--write-untested] [--tighten]"""
import argparse
import collections
import pathlib
import re
import sys

import cpp_source
import mode_branches

# Measure -> (bound, target). A bound may only move towards its target: house.py REPOSITORY --tighten does it.
BOUNDS = {
    "longest function, lines": (80, 80),
    "90th percentile of function lengths": (30, 30),
    "functions above 80 lines": (0, 0),
    "public headers": (80, 80),
    "public headers that include one that is not installed": (0, 0),
    "longest public header, lines": (400, 400),
    "longest other header, lines": (400, 400),
    "longest source, lines": (800, 800),
    "most parameters of a function": (6, 6),
    "functions with more than 6 parameters": (0, 0),
    "bool parameters of public functions": (0, 0),
    "sources that do not start with a header of their part": (0, 0),
    "sources without a test of their name": (63, 0),
    "sources without a test, not listed": (0, 0),
    "duplicated lines": (18, 0),
    "duplicated lines of tests": (0, 0),
    "includes of undeclared layers": (0, 0),
    "declared layers that are not used": (0, 0),
    "include cycles": (0, 0),
    "cycles between the parts of a layer": (0, 0),
    "backward includes between parts": (0, 0),
    "most members of a class": (14, 12),
    "classes with more than 12 members": (3, 0),
    "most virtual functions of an interface": (29, 12),
    "interfaces with more than 12 virtual functions": (4, 0),
    "most files of a folder": (40, 40),
    "folders with more than 40 files": (0, 0),
    "most files of a folder detail": (23, 12),
    "folders detail with more than 12 files": (4, 0),
    "most mode branches of a file of zero": (12, 12),
    "files of zero with more than 12 mode branches": (0, 0),
    "headers of at most 25 lines, percent": (10, 10),
}
# A choice between two behaviors of a function is an enum. A bool parameter is right only where it is data: a value that the
# caller has computed or read, never a literal that selects. These are all of them:
DATA_BOOLS = {
    "agree(bool ok)",                       # the operand of a logical AND
    "run_on_ranks(bool takes_part)",        # which ranks, computed from the rank
    "get_bool(bool default_value)",         # a value of the type that the function returns
    "update(bool overflow)",                # of LossScaler: what the overflow check found
}
MAX_FUNCTION_LINES, MAX_PARAMETERS, DUPLICATE_WINDOW = 80, 6, 8
MAX_MEMBERS, MAX_VIRTUALS, MAX_MODE_BRANCHES, MAX_FILES, MAX_DETAIL_FILES, SMALL_HEADER = 12, 12, 12, 40, 12, 25
UNTESTED = pathlib.Path(__file__).with_name("untested_sources.txt")
MAINS = re.compile(r"src/cli/\w*main\.cpp|src/cuda_driver/.*")


class House:
    def __init__(self, root):
        self.root = root
        self.text = {}
        for folder in ("include", "src"):
            for path in sorted((root / folder).rglob("*")):
                if path.suffix in (".hpp", ".cpp", ".cu", ".cuh"):
                    self.text[str(path.relative_to(root))] = path.read_text()
        readers = {name: cpp_source.read(text) for name, text in self.text.items()}
        self.functions = [(f, name) for name, reader in readers.items() for f in reader.functions]
        self.classes = [(c, name) for name, reader in readers.items() for c in reader.classes]
        self.declared = self.declared_uses()
        self.spelled = {spelling_of(name): name for name in self.text if spelling_of(name)}
        self.values = {}   # measure -> number
        self.places = {}   # measure -> [(weight, text)], worst first

    def set(self, measure, value, places=()):
        self.values[measure] = value
        self.places[measure] = sorted(places, key=lambda p: (-p[0], p[1]))

    def count(self, measure, places):
        self.set(measure, len(places), places)

    def set_cap(self, most, above, cap, places):
        """Two measures of places that should weigh no more than `cap` each: the largest weight, and how many are above."""
        self.set(most, max(places, default=(0, ""))[0], places)
        self.count(above, [place for place in places if place[0] > cap])

    def measure_functions(self):
        bodies = [(f.lines, f"{name}:{f.line}: {f.name} has {f.lines} lines") for f, name in self.functions if f.has_body]
        lengths = sorted(n for n, _ in bodies)
        self.values["functions"] = len(bodies)
        self.set("longest function, lines", lengths[-1], bodies)
        self.set("90th percentile of function lengths", lengths[len(lengths) * 9 // 10], bodies)
        self.count("functions above 80 lines", [b for b in bodies if b[0] > MAX_FUNCTION_LINES])
        declared = {}   # a function counts once: where it is declared, or else where it is defined
        for f, name in sorted(self.functions, key=lambda p: p[1]):
            key = (place_of(name)[0], f.name, tuple(p.split(" = ")[0] for p in f.parameters))
            declared.setdefault(key, (len(f.parameters), f"{name}:{f.line}: {f.name} has {len(f.parameters)} parameters"))
        wide = list(declared.values())
        self.set("most parameters of a function", max(wide)[0], wide)
        self.count("functions with more than 6 parameters", [w for w in wide if w[0] > MAX_PARAMETERS])
        flags = [(1, f"{name}:{f.line}: {f.name}({p})") for f, name in self.functions if spelling_of(name) and f.public
                 for p in f.parameters if re.match(r"(const )?bool\b", p) and not (f.constructor and len(f.parameters) == 1)]
        self.count("bool parameters of public functions", [f for f in flags if f[1].split(": ", 1)[1] not in DATA_BOOLS])
        stale = DATA_BOOLS - {f[1].split(": ", 1)[1] for f in flags}
        assert not stale, f"remove from DATA_BOOLS: {stale}"

    def measure_files(self):
        lines = {name: text.count("\n") for name, text in self.text.items()}
        for kind, wanted in {"public header": lambda n: n.startswith("include/"), "other header": lambda n: n.startswith("src/") and n.endswith(".hpp"),
                             "source": lambda n: n.endswith(".cpp")}.items():
            sizes = [(n, f"{name} has {n} lines") for name, n in lines.items() if wanted(name)]
            self.set(kind + "s", len(sizes))
            self.set(f"longest {kind}, lines", max(sizes, default=(0, ""))[0], sizes)
        sources = [name for name in self.text if name.endswith(".cpp") and not MAINS.fullmatch(name)]
        self.count("sources that do not start with a header of their part",
                   [(1, f"{name}: include the header first that declares what it defines") for name in sources
                    if self.unit_of(self.first_header(name)) != self.unit_of(name)])
        self.measure_tests(sources)

    def measure_classes(self):
        """Data members of classes. A struct of values is left out: its data is public and no function is virtual, as in the options
        of a command. Virtual functions count where they are declared first, not where they are overridden."""
        self.set_cap("most members of a class", "classes with more than 12 members", MAX_MEMBERS,
                     [(len(c.members), f"{name}:{c.line}: {c.name} has {len(c.members)} data members")
                      for c, name in self.classes if c.members and not c.is_plain])
        self.set_cap("most virtual functions of an interface", "interfaces with more than 12 virtual functions", MAX_VIRTUALS,
                     [(len(c.virtuals), f"{name}:{c.line}: {c.name} has {len(c.virtuals)} virtual functions") for c, name in self.classes if c.virtuals])

    def measure_folders(self):
        """Files that lie directly in a folder; a folder `detail` is a sheet without parts and may hold fewer."""
        files = collections.Counter(str(pathlib.PurePosixPath(name).parent) for name in self.text)
        places = [(n, f"{folder} has {n} files") for folder, n in files.items()]
        self.set_cap("most files of a folder", "folders with more than 40 files", MAX_FILES, places)
        self.set_cap("most files of a folder detail", "folders detail with more than 12 files", MAX_DETAIL_FILES,
                     [place for place in places if place[1].split(" has ")[0].endswith("/detail")])
        headers = {name: text.count("\n") for name, text in self.text.items() if name.endswith(".hpp")}
        small = [(SMALL_HEADER - n, f"{name} has {n} lines; merge it with what is included with it") for name, n in headers.items() if n <= SMALL_HEADER]
        self.set("headers of at most 25 lines, percent", -(-100 * len(small) // max(1, len(headers))), small)

    def measure_modes(self):
        """What a branch on a mode is: mode_branches.py."""
        modes = mode_branches.Modes({name: text for name, text in self.text.items() if place_of(name)[0] == "zero"})
        assert not modes.texts or modes.settings > mode_branches.NUMBERS, "layer zero has no *_config.hpp with settings: mend mode_branches.py"
        lines = {name: modes.branches_of(name) for name in modes.texts}
        self.set_cap("most mode branches of a file of zero", "files of zero with more than 12 mode branches", MAX_MODE_BRANCHES,
                     [(len(found), f"{name} has {len(found)} mode branches: lines {', '.join(map(str, found))}")
                      for name, found in lines.items() if found])

    def untested(self, sources):
        """The sources without a test of their base name in the mirrored folder: tests/<layer>/<part> for a part that
        src/CMakeLists.txt declares, else tests/<layer>. A test anywhere in tests/gpu counts for every source of its name."""
        folders = collections.defaultdict(set)   # base name -> folders of tests
        for path in (self.root / "tests").rglob("*.test.cpp"):
            place = path.relative_to(self.root / "tests")
            folders[path.name[:-len(".test.cpp")]].add("gpu" if place.parts[0] == "gpu" else str(place.parent))
        return {name for name in sources if not {self.unit_of(name), "gpu"} & folders[pathlib.Path(name).stem]}

    def measure_tests(self, sources):
        allowed = {line for line in UNTESTED.read_text().splitlines() if line and not line.startswith("#")}
        untested = self.untested(sources)
        places = [(1, f"{name}: write tests/{self.unit_of(name)}/{pathlib.Path(name).stem}.test.cpp for it; it is not in {UNTESTED.name}") for name in untested - allowed]
        places += [(1, f"{name}: remove it from {UNTESTED.name}; it has a test or does not exist") for name in allowed - untested]
        self.set("sources without a test of their name", len(untested), places + [(0, name) for name in allowed & untested])
        self.count("sources without a test, not listed", places)

    def write_untested(self):
        sources = [name for name in self.text if name.endswith(".cpp") and not MAINS.fullmatch(name)]
        UNTESTED.write_text("# Sources without a test of their base name in the folder that mirrors theirs. This list may only shrink: house.py bounds its length.\n"
                            + "".join(name + "\n" for name in sorted(self.untested(sources))))

    def tighten(self):
        path = pathlib.Path(__file__)
        text = path.read_text()
        for measure, (bound, target) in BOUNDS.items():
            text = text.replace(f'"{measure}": ({bound}, {target})', f'"{measure}": ({min(bound, max(self.values[measure], target))}, {target})')
        path.write_text(text)

    def measure_duplicates(self):
        tests = {str(path.relative_to(self.root)): path.read_text() for path in sorted((self.root / "tests").rglob("*.?pp"))}
        self.duplicates_in("duplicated lines", self.text)
        self.duplicates_in("duplicated lines of tests", tests)

    def duplicates_in(self, measure, texts):
        """Lines inside windows of DUPLICATE_WINDOW lines that occur twice. Blank lines, comments, brackets, includes and
        using declarations are left out."""
        windows = collections.defaultdict(list)
        dull = re.compile(r"[\s{}();,]*|#.*|using .*|namespace .*|template <.*>|(public|private|protected|default):|break;|return;|else \{|\} else \{")
        kept = {}
        for name, text in texts.items():
            lines = [(number, " ".join(line.split())) for number, line in enumerate(cpp_source.without_literals(text, keep_strings=True).split("\n"), 1)]
            kept[name] = [(number, line) for number, line in lines if not dull.fullmatch(line)]
            for i in range(len(kept[name]) - DUPLICATE_WINDOW + 1):
                windows[tuple(line for _, line in kept[name][i:i + DUPLICATE_WINDOW])].append((name, i))
        twice = sorted(place for places in windows.values() if len(places) > 1 for place in places)
        blocks = []   # [file, first, last + 1] of kept lines
        for name, i in twice:
            if blocks and blocks[-1][0] == name and i <= blocks[-1][2]:
                blocks[-1][2] = i + DUPLICATE_WINDOW
            else:
                blocks.append([name, i, i + DUPLICATE_WINDOW])
        first_of = {}
        for places in windows.values():
            for place in places[1:]:
                first_of[place] = places[0]
            if len(places) > 1:
                first_of[places[0]] = places[1]
        places = []
        for name, begin, end in blocks:
            other, at = first_of[(name, begin)]
            places.append((end - begin, f"{name}:{kept[name][begin][0]}: {end - begin} lines as in {other}:{kept[other][at][0]}"))
        self.set(measure, sum(p[0] for p in places), places)

    def unit_of(self, name):
        """The part of a file as "layer/part", or its layer where src/CMakeLists.txt declares no parts of it."""
        layer, part = place_of(name)
        return f"{layer}/{part}" if f"{layer}/{part}" in self.declared else layer

    def declared_uses(self):
        """{layer or "layer/part": what src/CMakeLists.txt declares that it may include}; a part as "layer/part", also where
        USES or SEES names one of another layer as layer_part."""
        uses = {}
        text = re.sub(r"#.*", "", (self.root / "src/CMakeLists.txt").read_text())
        for kind, words in re.findall(r"tessera_add_(layer|part)\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text):
            name, *words = words.split()
            lists, current = collections.defaultdict(set), None
            if kind == "part":
                layer, name = name, f"{name}/{words.pop(0)}"
            for word in words:
                if word in ("USES", "SEES", "ON", "PRIVATE_LIBS", "DEFINITIONS", "DEVICE"):
                    current = word
                else:
                    lists[current].add(word)
            uses[name] = lists["USES"] | lists["SEES"] | {f"{layer}/{part}" for part in lists["ON"]}
        targets = {name.replace("/", "_"): name for name in uses}
        uses = {name: {targets.get(used, used) for used in others} for name, others in uses.items()}
        uses["cli"] = {name.split("/")[0] for name in uses}
        return uses

    def measure_includes(self):
        declared, backward = self.declared, []
        self.values["layers"] = len({name.split("/")[0] for name in declared})
        used, undeclared, graph, parts = collections.defaultdict(set), [], {}, collections.defaultdict(lambda: collections.defaultdict(dict))
        for name, text in self.text.items():
            layer, part = place_of(name)
            unit = self.unit_of(name)
            graph[name] = []
            for line, include in cpp_source.includes_of(text):
                target = self.resolve(name, layer, include)
                if target is None:
                    continue
                graph[name].append(target)
                other, other_part = place_of(target)
                if other == layer and part and other_part and part != other_part:
                    parts[layer][part].setdefault(other_part, f"{name}:{line}")
                if (other == layer and unit != layer) or f"{other}/{other_part}" in declared.get(unit, ()):
                    other = f"{other}/{other_part}"
                if other == unit or unit not in declared:
                    continue
                used[unit].add(other)
                if other not in declared[unit]:
                    (backward if "/" in other else undeclared).append((1, f"{name}:{line}: includes {include}, and {unit} does not declare {other}"))
        self.count("includes of undeclared layers", undeclared)
        self.count("backward includes between parts", backward)
        self.count("public headers that include one that is not installed",
                   [(1, f"{name}: includes {target}; declare what it needs, or make both public") for name, targets in graph.items()
                    for target in targets if name.startswith("include/") and not target.startswith("include/")])
        self.count("declared layers that are not used", [(1, f"src/CMakeLists.txt: {unit} declares {other} and includes nothing of it")
                                                         for unit in declared if unit != "cli" for other in declared[unit] - used[unit]])
        self.count("include cycles", [(1, " -> ".join(cycle)) for cycle in cycles_of(graph)])
        loops = [(1, f"{layer}: " + " -> ".join(cycle) + "; " + ", ".join(parts[layer][a][b] for a, b in zip(cycle, cycle[1:])))
                 for layer in list(parts) for cycle in cycles_of({part: list(others) for part, others in parts[layer].items()})]
        self.count("cycles between the parts of a layer", loops)

    def first_header(self, name):
        """The header that a source includes first: it declares what the source defines, and compiles without other includes."""
        includes = cpp_source.includes_of(self.text[name])
        return (self.resolve(name, place_of(name)[0], includes[0][1]) if includes else None) or "src/none"

    def resolve(self, name, layer, include):
        """The file of this repository that an include names, or None."""
        layers = [layer] + [used.split("/")[0] for used in self.declared.get(layer, ()) if "/" in used]
        candidates = [self.spelled.get(include), *(f"src/{other}/{include}" for other in layers), str(pathlib.PurePosixPath(name).parent / include)]
        return next((c for c in candidates if c in self.text), None)


def place_of(name):
    """(layer, part) of a file: src/checkpoint/format/detail/x.cpp is in the part format of checkpoint; detail and shared are no parts."""
    words = name.split("/")
    words = words[2:] if words[0] == "include" else words[1:]
    return words[0], words[1] if len(words) > 2 and words[1] not in ("detail", "shared") else ""


def spelling_of(name):
    """How other layers include a header, whether it is installed (include/tessera/zero/layout/x.hpp) or only shared between layers
    (src/zero/layout/shared/x.hpp): tessera/zero/layout/x.hpp. None for other files."""
    folder, _, file = name.rpartition("/")
    if folder.startswith("include/"):
        return name.removeprefix("include/")
    return f"tessera/{folder.removeprefix('src/').removesuffix('/shared')}/{file}" if folder.endswith("/shared") else None


def cycles_of(graph):
    """One cycle for each strongly connected component with more than one node, as a closed path."""
    done, found = set(), []

    def visit(start):
        path, on_path, stack = [start], {start}, [iter(graph.get(start, ()))]
        while stack:
            for node in stack[-1]:
                if node in on_path:
                    found.append(path[path.index(node):] + [node])
                elif node not in done:
                    path.append(node)
                    on_path.add(node)
                    stack.append(iter(graph.get(node, ())))
                    break
            else:
                stack.pop()
                on_path.discard(path[-1])
                done.add(path.pop())

    for start in graph:
        if start not in done:
            visit(start)
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("repository", type=pathlib.Path)
    arguments.add_argument("--worst", type=int, default=0, help="also name the N worst places of each measure")
    arguments.add_argument("--write-untested", action="store_true", help=f"write {UNTESTED.name} again from the tests that exist")
    arguments.add_argument("--tighten", action="store_true", help="lower each bound in this file to what holds now, at most to its target")
    options = arguments.parse_args()
    house = House(options.repository)
    if options.write_untested:
        house.write_untested()
    house.measure_functions()
    house.measure_files()
    house.measure_classes()
    house.measure_folders()
    house.measure_modes()
    house.measure_duplicates()
    house.measure_includes()
    failed = 0
    for measure, value in sorted(house.values.items(), key=lambda item: (item[0] in BOUNDS, list(BOUNDS).index(item[0]) if item[0] in BOUNDS else 0)):
        bound, target = BOUNDS.get(measure, (None, None))
        above = bound is not None and value > bound
        failed += above
        print(f"{measure:46} {value:6}" + ("" if bound is None else f"   at most {bound:4}, target {target:3}") + ("   ABOVE" if above else ""))
        for _, place in house.places.get(measure, ())[:max(options.worst, 25 if above else 0)]:
            print("    " + place)
    if options.tighten:
        house.tighten()
    if failed:
        print(f"{failed} measures are above their bounds; shorten or split what is named, or see docs/development/README.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
