"""gpu_step.svg: the streams of one ZeRO stage 2 step on a GPU (order, not measured times)."""
from svg import (BLUE, GREEN, INK, ORANGE, PALE_BLUE, PALE_GREEN, PALE_ORANGE, PALE_VIOLET, VIOLET,
                 Picture, lanes)


def make(root):
    width, left, top, lane = 1030, 150, 20, 78
    picture = Picture(width, top + 4 * lane + 44, "Streams of a step",
                      "Order between the streams is by events; nothing synchronizes the device.")
    y = lanes(picture, [["staging"], ["compute"], ["tessera reductions", "NCCL, gradients"],
                        ["tessera", "NCCL, weights"]], left, top, width - left, lane)

    def task(x, lane_index, w, lines, fill, stroke):
        picture.labeled_box(x, y[lane_index] - 24, w, 48, lines, fill, stroke, 12)

    task(160, 0, 70, ["tokens"], PALE_VIOLET, VIOLET)
    task(240, 1, 120, ["forward", "blocks 0, 1, 2"], PALE_BLUE, BLUE)
    for i, block in enumerate((2, 1, 0)):
        task(366 + i * 84, 1, 78, ["backward", f"block {block}"], PALE_BLUE, BLUE)
        task(450 + i * 84, 2, 78, ["reduce-", f"scatter {block}"], PALE_ORANGE, ORANGE)
        picture.arrow([(444 + i * 84, y[1] + 24), (450 + i * 84, y[2] - 24)])
    task(706, 1, 90, ["norm and", "overflow"], PALE_GREEN, GREEN)
    for i in range(3):
        task(802 + i * 56, 1, 52, ["AdamW", f"unit {i}"], PALE_GREEN, GREEN)
        task(860 + i * 56, 3, 52, ["gather", f"unit {i}"], PALE_ORANGE, ORANGE)
        picture.arrow([(854 + i * 56, y[1] + 24), (862 + i * 56, y[3] - 24)])
    picture.arrow([(230, y[0]), (246, y[0]), (246, y[1] - 25)])
    picture.arrow([(696, y[2]), (716, y[2]), (716, y[1] + 25)])
    task(812, 0, 150, ["losses, StepDecision", "to the host"], PALE_VIOLET, VIOLET)
    picture.arrow([(780, y[1] - 24), (780, y[0]), (811, y[0])])
    picture.text(width / 2, top + 4 * lane + 28,
                 "Order only: the widths are not measured times.", 13, INK)
    return picture.result()
