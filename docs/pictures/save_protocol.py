"""save_protocol.svg: the steps of a background save, by thread."""
from svg import (BLUE, GREEN, GREY, INK, ORANGE, PALE_BLUE, PALE_GREEN, PALE_ORANGE, Picture, lanes)


def make(root):
    width, left, top, lane = 980, 170, 40, 92
    picture = Picture(width, top + 4 * lane + 54, "A background save",
                      "Training waits for steps 1 and 2 only; the disk queues do the rest.")
    y = lanes(picture, [["training thread", "every rank"], ["disk queue", "every rank"],
                        ["disk queue", "rank 0"], ["on disk"]], left, top, width - left, lane)

    def step(x, lane_index, w, lines, fill=PALE_BLUE, stroke=BLUE):
        picture.labeled_box(x, y[lane_index] - 30, w, 60, lines, fill, stroke, 12)

    step(180, 0, 86, ["1 begin", "make folder"], PALE_ORANGE, ORANGE)
    step(272, 0, 92, ["2 copy state", "to the host"], PALE_ORANGE, ORANGE)
    step(376, 0, 202, ["training continues", "step N+1, N+2, ..."], PALE_GREEN, GREEN)
    step(590, 0, 84, ["4 agree:", "all written?"])
    step(686, 0, 180, ["training continues"], PALE_GREEN, GREEN)
    step(878, 0, 84, ["9 agree", "on outcome"])
    step(376, 1, 202, ["3 write shard, checksum,", "flush to disk"])
    step(686, 2, 88, ["5 view and", "manifest"])
    step(778, 2, 88, ["6-8 rename,", "latest, prune"])
    picture.arrow([(364, y[0] + 22), (370, y[0] + 22), (370, y[1]), (375, y[1])])
    picture.arrow([(578, y[1]), (632, y[1]), (632, y[0] + 31)])
    picture.arrow([(650, y[0] + 30), (650, y[2]), (685, y[2])])
    picture.arrow([(866, y[2]), (920, y[2]), (920, y[0] + 31)])
    picture.text(210, 26, "training waits", 12, ORANGE, "start", bold=True)

    def state(x, w, words):
        picture.text(x + w / 2, y[3] - 10, words, 12, INK, mono=True)
        picture.line(x, y[3] + 4, x + w, y[3] + 4, GREY, 3)
    state(200, 566, "step_N.tmp.1/    the previous checkpoint counts")
    state(782, 180, "step_N/ counts")
    picture.line(774, y[3] - 22, 774, y[3] + 22, GREEN, 2)
    picture.text(width / 2, top + 4 * lane + 30,
                 "A kill at any point leaves the previous or the new checkpoint intact.", 13, INK,
                 bold=True)
    return picture.result()
