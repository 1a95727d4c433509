"""ranks.svg: what each of four ranks keeps in each ZeRO stage, and which files they write."""
from svg import (BLUE, GREEN, GREY, INK, ORANGE, PALE_BLUE, PALE_GREEN, PALE_ORANGE, Picture)

RANKS = 4
STATES = [("weights", BLUE, PALE_BLUE, 3), ("gradients", ORANGE, PALE_ORANGE, 2),
          ("optimizer state", GREEN, PALE_GREEN, 1)]  # name, colors, first stage that shards it


def make(root):
    left, column, bar, gap = 150, 170, 13, 5
    stage_height = 3 * (bar + gap) + 24
    width, top = left + RANKS * column + 20, 92
    files = top + 4 * stage_height + 26
    height = files + 190
    picture = Picture(width, height, "Ranks, ZeRO stages and files",
                      "Each rank keeps the filled part of weights, gradients and optimizer state; "
                      "every stage writes the same files.")
    x = left
    for name, stroke, fill, _ in STATES:
        picture.box(x, 14, 26, bar, stroke, stroke, 2)
        picture.text(x + 34, 25, name, 13, INK, "start")
        x += 60 + 8 * len(name)
    picture.box(x, 14, 26, bar, "#ffffff", GREY, 2, "3 3")
    picture.text(x + 34, 25, "on other ranks", 13, INK, "start")

    for rank in range(RANKS):
        picture.text(left + rank * column + column / 2 - 10, 58, f"rank {rank}", 14, INK, bold=True)
        picture.text(left + rank * column + column / 2 - 10, 76, "one process, one GPU", 11, GREY)
    for stage in range(4):
        y = top + stage * stage_height
        picture.text(12, y + 22, f"stage {stage}", 14, INK, "start", bold=True)
        shares = ["all replicated", "optimizer sharded", "gradients too", "weights too"]
        picture.text(12, y + 40, shares[stage], 11, GREY, "start")
        for rank in range(RANKS):
            x = left + rank * column
            for i, (_, stroke, fill, first) in enumerate(STATES):
                bar_y = y + 8 + i * (bar + gap)
                full = column - 24
                if stage < first:
                    picture.box(x, bar_y, full, bar, stroke, stroke, 2)
                else:
                    picture.box(x, bar_y, full, bar, "#ffffff", GREY, 2, "3 3")
                    picture.box(x + rank * full / RANKS, bar_y, full / RANKS, bar, stroke, stroke, 2)
        picture.line(12, y + stage_height - 6, width - 20, y + stage_height - 6, "#d0d7de")

    picture.text(12, files + 34, "checkpoint", 14, INK, "start", bold=True)
    picture.text(12, files + 52, "same for all stages", 11, GREY, "start")
    for rank in range(RANKS):
        x = left + rank * column
        picture.arrow([(x + column / 2 - 12, files - 18), (x + column / 2 - 12, files + 10)])
        picture.box(x, files + 12, column - 24, 46, PALE_GREEN, GREEN)
        picture.text(x + column / 2 - 12, files + 31, f"shard_{rank:05d}.h5", 13, INK, mono=True)
        picture.text(x + column / 2 - 12, files + 48, "fp32 + moments", 11, GREY)
    full = RANKS * column - 24
    picture.box(left, files + 70, full, 30, PALE_BLUE, BLUE)
    picture.text(left + full / 2, files + 90, "view.h5: every tensor in its true shape over all shards",
                 13)
    picture.box(left, files + 108, full, 30, PALE_BLUE, BLUE)
    picture.text(left + full / 2, files + 128,
                 "manifest.json: names, shapes, places, checksums; written last", 13)
    picture.text(left + full / 2, files + 166,
                 "Any number of ranks in any stage resumes from these files.", 13, INK, bold=True)
    return picture.result()
