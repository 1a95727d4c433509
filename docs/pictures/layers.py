"""layers.svg: the layers of the sources and who uses whom, read from src/CMakeLists.txt."""
import re

from svg import BLUE, GREY, INK, PALE_BLUE, Picture

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
             ("nlohmann", "nlohmann-json"), ("CLI11", "CLI11")]


def layers(root):
    """name -> (layers used, libraries), lowest first. The parts of a layer count as one."""
    text = (root / "src/CMakeLists.txt").read_text()
    found = {}
    for name, rest in re.findall(r"^tessera_add_(?:layer|part)\((\w+)([^)]*)\)", text, re.M):
        uses, libraries = found.setdefault(name, ([], []))
        if words := re.search(r"USES([a-z_ \n]*)", rest):
            uses += [used for used in words.group(1).split() if used not in uses]
        libraries += [label for mark, label in LIBRARIES
                      if mark in rest and label not in libraries]
    found["cli"] = ([name for name in found if name not in ("core",)], ["CLI11"])
    return found


def direct(found):
    """The uses that do not follow from others: the arrows of the picture."""
    below = {}
    for name, (uses, _) in found.items():
        below[name] = set(uses).union(*[below[used] for used in uses])
    return {name: [used for used in uses
                   if not any(used in below[other] for other in uses)]
            for name, (uses, _) in found.items()}


def make(root):
    found = layers(root)
    arrows = direct(found)
    level = {}
    for name in found:
        level[name] = 1 + max([level[used] for used in arrows[name]], default=-1)
    rows = [[name for name in found if level[name] == row] for row in range(max(level.values()) + 1)]

    width, box_width, box_height, pitch = 900, 200, 84, 126
    height = pitch * len(rows) + 20
    picture = Picture(width, height, "Layers of Tessera",
                      "An arrow points from a layer to a layer whose headers it may include.")
    place = {}
    for row, names in enumerate(rows):
        y = height - 20 - pitch * row - box_height
        gap = (width - box_width * len(names)) / (len(names) + 1)
        # a layer stays close to what it uses
        center = {n: sum(place[u][0] for u in arrows[n]) / len(arrows[n]) if arrows[n] else 0
                  for n in names}
        for i, name in enumerate(sorted(names, key=lambda n: (center[n], n))):
            place[name] = (gap + i * (box_width + gap), y)
    def blocked(x, above, below):
        """Whether a vertical line at x meets a box of the rows between two levels."""
        return any(below < level[n] < above and place[n][0] - 8 < x < place[n][0] + box_width + 8
                   for n in found)

    margin = 24
    for name, used in ((n, u) for n in found for u in arrows[n]):
        x, y = place[name]
        to_x, to_y = place[used]
        center, to_center = x + box_width / 2, to_x + box_width / 2
        if level[name] - level[used] == 1 or (
                center == to_center and not blocked(center, level[name], level[used])):
            picture.arrow([(center, y + box_height), (to_center, to_y - 1)])
            continue
        side = x if to_center <= center else x + box_width
        middle = y + box_height / 2 + 8 * arrows[name].index(used)
        if not blocked(to_center, level[name] + (center != to_center), level[used]):
            picture.arrow([(side, middle), (to_center, middle), (to_center, to_y - 1)])
        else:
            shift = margin + 14 * arrows[name].index(used)
            lane = shift if to_center <= center else width - shift
            to_side = to_x if to_center <= center else to_x + box_width
            to_middle = to_y + box_height / 2
            picture.arrow([(side, middle), (lane, middle), (lane, to_middle),
                           (to_side, to_middle)])
    for name, (x, y) in place.items():
        picture.box(x, y, box_width, box_height, PALE_BLUE, BLUE)
        picture.text(x + box_width / 2, y + 20, name, 15, INK, bold=True)
        for i, words in enumerate(OWNS[name]):
            picture.text(x + box_width / 2, y + 38 + 15 * i, words, 12)
        libraries = ", ".join(found[name][1])
        picture.text(x + box_width / 2, y + 76, libraries, 11, GREY)
    return picture.result()
