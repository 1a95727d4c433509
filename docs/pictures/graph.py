"""Places boxes in rows, so that each is above all that it points to: the layout of layers.svg.
The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical
System Structures" (1981)."""


def levels(arrows):
    """{name: row}, 0 for the lowest; `arrows` is {name: names it points to}, lowest first."""
    level = {}
    for name, targets in arrows.items():
        level[name] = 1 + max([level[target] for target in targets], default=-1)
    return level


def direct(uses):
    """The arrows that do not follow from others; `uses` is {name: names}, lowest first."""
    below = {}
    for name, used in uses.items():
        below[name] = set(used).union(*[below[other] for other in used])
    return {name: [other for other in used
                   if not any(other in below[between] for between in used)]
            for name, used in uses.items()}


def in_order(wanted, distances):
    """The positions closest to `wanted` [(position, weight)] with at least `distances` between
    neighbors."""
    offsets = [0.0]
    for distance in distances:
        offsets.append(offsets[-1] + distance)
    pools = []  # [weighted sum, weight, count] of neighbors that are as close as they may be
    for (position, weight), offset in zip(wanted, offsets):
        pools.append([(position - offset) * weight, weight, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            pools[-2:] = [[a + b for a, b in zip(*pools[-2:])]]
    means = [total / weight for total, weight, count in pools for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets)]


class Rows:
    """`arrows` as in levels(), `sizes` {name: (width, height)}. An arrow over several rows has a
    place of its own between the boxes of each row that it passes."""

    def __init__(self, arrows, sizes, gap, gutter):
        self.arrows, self.sizes, self.gap, self.gutter = arrows, dict(sizes), gap, gutter
        level = levels(arrows)
        self.rows = [[] for _ in range(1 + max(level.values()))]
        for name in arrows:
            self.rows[level[name]].append(name)
        self.paths = {}       # (from, to) -> places from top to bottom
        self.above = {name: [] for name in arrows}
        self.below = {name: [] for name in arrows}
        for name, targets in arrows.items():
            for target in targets:
                passed = [(name, target, row) for row in range(level[name] - 1, level[target], -1)]
                path = [name, *passed, target]
                for place in passed:
                    self.rows[place[2]].append(place)
                    self.sizes[place] = (0, 0)
                    self.above[place], self.below[place] = [], []
                for upper, lower in zip(path, path[1:]):
                    self.below[upper].append(lower)
                    self.above[lower].append(upper)
                self.paths[name, target] = path
        self.order()
        self.place()

    def crossings(self):
        count = 0
        for upper, lower in zip(self.rows[1:], self.rows):
            at = {place: i for i, place in enumerate(lower)}
            lines = [(i, at[target]) for i, place in enumerate(upper)
                     for target in self.below[place]]
            count += sum((a < c and b > d) for a, b in lines for c, d in lines)
        return count

    def order(self):
        """Each place moves to the middle of its neighbors, row by row; the best order stays."""
        best = (self.crossings(), [list(row) for row in self.rows])
        for turn in range(16):
            upward = turn % 2 == 0
            for i in range(len(self.rows)) if upward else reversed(range(len(self.rows))):
                neighbors = self.below if upward else self.above
                other = self.rows[i - 1] if upward else self.rows[min(i + 1, len(self.rows) - 1)]
                at = {place: (k + 0.5) / len(other) for k, place in enumerate(other)}
                own = {place: (k + 0.5) / len(self.rows[i]) for k, place in enumerate(self.rows[i])}

                def middle(place):
                    found = [at[n] for n in neighbors[place] if n in at]
                    return sum(found) / len(found) if found else own[place]
                self.rows[i].sort(key=middle)
            if self.crossings() < best[0]:
                best = (self.crossings(), [list(row) for row in self.rows])
        self.rows = best[1]

    def place(self):
        self.center = {}
        for row in self.rows:
            at = 0.0
            for place in row:
                self.center[place] = at + self.sizes[place][0] / 2
                at += self.sizes[place][0] + self.gap
            for place in row:
                self.center[place] -= (at - self.gap) / 2
        for _ in range(200):
            for row in [*self.rows, *reversed(self.rows)]:
                wanted = [self.wanted(place) for place in row]
                distances = [self.distance(a, b) for a, b in zip(row, row[1:])]
                self.center.update(zip(row, in_order(wanted, distances)))
        self.straighten()
        left = min(self.center[place] - self.sizes[place][0] / 2 for place in self.center)
        self.center = {place: round(x - left) for place, x in self.center.items()}
        right = max(self.center[place] + self.sizes[place][0] / 2 for place in self.center)
        self.width = round(right + 0.5)
        heights = [max(self.sizes[place][1] for place in row) for row in self.rows]
        self.height = sum(heights) + self.gutter * (len(heights) - 1)
        self.extent = {}  # place -> top and bottom of its row
        y = self.height
        for row, height in zip(self.rows, heights):
            self.extent.update({place: (y - height, y) for place in row})
            y -= height + self.gutter

    def straighten(self):
        """From the lowest row up, a place that is almost above what it points to moves there, if
        its row has room."""
        for row in self.rows[1:]:
            for i, place in enumerate(row):
                beside = row[max(i - 1, 0):i] + row[i + 1:i + 2]
                for at in [self.center[target] for target in self.below[place]]:
                    has_room = all(abs(at - self.center[other]) >= self.distance(place, other)
                                   for other in beside)
                    if abs(at - self.center[place]) < 24 and has_room:
                        self.center[place] = at
                        break

    def distance(self, place, other):
        return (self.sizes[place][0] + self.sizes[other][0]) / 2 + self.gap

    def wanted(self, place):
        """Where a place should be, and how much that counts: in the middle of its neighbors, and
        near the middle of the picture, so that it stays narrow. Long arrows should be straight."""
        bends = {0: 1, 1: 2, 2: 16}
        near = [(self.center[n], bends[isinstance(n, tuple) + isinstance(place, tuple)])
                for n in self.above[place] + self.below[place]]
        near.append((0, 0.5))
        weight = sum(w for _, w in near)
        return sum(x * w for x, w in near) / weight, weight

    def corner(self, name):
        """The upper left corner of a box, in the middle of its row."""
        (width, height), (top, bottom) = self.sizes[name], self.extent[name]
        return self.center[name] - width / 2, (top + bottom - height) / 2

    def lines(self):
        """The points of each arrow. Lines lean only between the rows."""
        for path in self.paths.values():
            points = [(self.center[path[0]], self.corner(path[0])[1] + self.sizes[path[0]][1])]
            for i, place in enumerate(path):
                top, bottom = self.extent[place]
                points += [(self.center[place], top)] if i > 0 else []
                points += [(self.center[place], bottom)] if i + 1 < len(path) else []
            points.append((self.center[path[-1]], self.corner(path[-1])[1]))
            yield [point for i, point in enumerate(points) if i == 0 or point != points[i - 1]]
