"""layers.svg: the layers of the sources with their parts, and who uses whom, read from
src/CMakeLists.txt."""
import re

from graph import Rows, direct
from svg import BLUE, DARK_GREY, INK, PALE_BLUE, Picture

OWNS = {
    "core": ["errors, dtypes, logging,", "configuration trees"],
    "memory": ["tensors, queues,", "arenas, accounting"],
    "topology": ["MPI start, rank grid,", "device binding"],
    "data": ["tokenizers, datasets,", "samplers"],
    "kernels": ["all parallel loops,", "matrix products, attention"],
    "comm": ["collectives over", "MPI, NCCL, shared memory"],
    "optim": ["optimizers, schedules,", "loss scaler"],
    "model": ["layers and families:", "forward and backward"],
    "config": ["option tables,", "DeepSpeed JSON"],
    "zero": ["partition plan, engine,", "stages 0 to 3"],
    "checkpoint": ["shards, manifest, view,", "import and export"],
    "train": ["step, loop, evaluation,", "metrics"],
    "plan": ["choices of a run,", "memory and time"],
    "cli": ["the programs and", "their subcommands"],
}

LIBRARIES = [("MPI::", "MPI"), ("NCCL", "NCCL"), ("KOKKOS", "Kokkos"), ("TesseraGemm", "oneDNN or CBLAS"),
             ("hdf5", "HDF5"), ("HWLOC", "hwloc"), ("PCRE2", "PCRE2"), ("UTF8PROC", "utf8proc"), ("YAML", "libyaml"), ("ZLIB", "zlib"),
             ("nlohmann", "nlohmann-json")]

WORDS, HEIGHT, PAD = 180, 84, 10          # a layer: its words, which have the parts beside them
CHIP, CHIP_GAP, CHIP_GUTTER = 21, 8, 16   # a part: its height, and the distances to others


class Layer:
    def __init__(self):
        self.uses, self.libraries = [], []
        self.parts = {}  # part: the parts that it is built on


def layers(root):
    """{name: Layer}, lowest first. Its uses and libraries are those of all its parts."""
    text = re.sub(r"#.*", "", (root / "src/CMakeLists.txt").read_text())
    for name, value in re.findall(r"^set\((\w+)([^)]*)\)", text, re.M):
        text = text.replace("${" + name + "}", value)
    found = {}
    for kind, rest in re.findall(r"^tessera_add_(layer|part)\(([^)]*)\)", text, re.M):
        words = rest.split()
        layer = found.setdefault(words.pop(0), Layer())
        lists, current = {"ON": [], "USES": []}, []
        part = words.pop(0) if kind == "part" else None
        for word in words:
            if re.fullmatch("[A-Z_]+", word):
                current = lists.setdefault(word, [])
            else:
                current.append(word)
        if part:
            layer.parts[part] = lists["ON"]
        for used in lists["USES"]:
            used = next((name for name in found if used.startswith(name + "_")), used)
            layer.uses += [used] if used not in layer.uses else []
        layer.libraries += [label for mark, label in LIBRARIES
                            if mark in rest and label not in layer.libraries]
    cli = Layer()
    cli.uses, cli.libraries = [name for name in found if name != "core"], []
    found["cli"] = cli
    return found


def rows_of_parts(layer):
    arrows = direct(layer.parts)
    sizes = {part: (round(7.4 * len(part)) + 18, CHIP) for part in arrows}
    return Rows(arrows, sizes, CHIP_GAP, CHIP_GUTTER) if arrows else None


def draw_layer(picture, name, layer, parts, box):
    """The words of a layer, and its parts next to them."""
    x, y, width, height = box
    picture.box(x, y, width, height, PALE_BLUE, BLUE)
    words = y + (height - HEIGHT) / 2
    picture.text(x + WORDS / 2, words + 20, name, 15, INK, bold=True)
    for i, line in enumerate(OWNS[name]):
        picture.text(x + WORDS / 2, words + 38 + 15 * i, line, 12)
    picture.text(x + WORDS / 2, words + 74, ", ".join(layer.libraries), 11, DARK_GREY)
    if not parts:
        return
    left, top = x + WORDS, y + (height - parts.height) / 2
    for points in parts.lines():
        picture.arrow([(left + px, top + py) for px, py in points], BLUE, 1, 5)
    for part in layer.parts:
        px, py = parts.corner(part)
        picture.box(left + px, top + py, parts.sizes[part][0], CHIP, "#ffffff", BLUE, 3)
        picture.text(left + px + parts.sizes[part][0] / 2, top + py + 15, part, 12, INK)


def make(root):
    found = layers(root)
    parts = {name: rows_of_parts(layer) for name, layer in found.items()}
    sizes = {name: (WORDS + rows.width + PAD, max(HEIGHT, rows.height + 2 * PAD)) if rows
             else (WORDS, HEIGHT) for name, rows in parts.items()}
    rows = Rows(direct({name: layer.uses for name, layer in found.items()}), sizes, 20, 36)
    margin = 20
    picture = Picture(rows.width + 2 * margin, rows.height + 2 * margin, "Layers of Tessera",
                      "An arrow points from a layer to a layer whose headers it may include, and inside a "
                      "layer from a part to a part.")
    for points in rows.lines():
        picture.arrow([(margin + x, margin + y) for x, y in points])
    for name, layer in found.items():
        x, y = rows.corner(name)
        draw_layer(picture, name, layer, parts[name], (margin + x, margin + y, *sizes[name]))
    return picture.result()
