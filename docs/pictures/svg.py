"""A small SVG writer for the pictures of the documentation: same input, same bytes."""
from xml.sax.saxutils import escape

INK = "#24292f"
GREY = "#8c959f"
DARK_GREY = "#57606a"
PALE = "#f6f8fa"
BLUE = "#0969da"
PALE_BLUE = "#ddf4ff"
GREEN = "#1a7f37"
PALE_GREEN = "#dafbe1"
ORANGE = "#bc4c00"
PALE_ORANGE = "#fff1e5"
VIOLET = "#8250df"
PALE_VIOLET = "#fbefff"


def number(value):
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Picture:
    def __init__(self, width, height, title, description):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" '
            'font-family="Helvetica, Arial, sans-serif" font-size="14">',
            f"<title>{escape(title)}</title>",
            f"<desc>{escape(description)}</desc>",
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        ]

    def box(self, x, y, width, height, fill=PALE, stroke=GREY, radius=4, dash=None):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" '
            f'height="{number(height)}" rx="{radius}" fill="{fill}" stroke="{stroke}"{dashes}/>')

    def text(self, x, y, words, size=14, fill=INK, anchor="middle", bold=False, mono=False):
        weight = ' font-weight="bold"' if bold else ""
        family = ' font-family="Consolas, Menlo, monospace"' if mono else ""
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y)}" font-size="{size}" fill="{fill}" '
            f'text-anchor="{anchor}"{weight}{family}>{escape(words)}</text>')

    def line(self, x1, y1, x2, y2, stroke=GREY, width=1, dash=None):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<path d="M{number(x1)} {number(y1)} L{number(x2)} {number(y2)}" fill="none" '
            f'stroke="{stroke}" stroke-width="{width}"{dashes}/>')

    def arrow(self, points, stroke=GREY, width=1.2, size=8):
        """A line through the points with a head at the last one."""
        path = " L".join(f"{number(x)} {number(y)}" for x, y in points)
        self.parts.append(
            f'<path d="M{path}" fill="none" stroke="{stroke}" stroke-width="{width}"/>')
        (x0, y0), (x, y) = points[-2], points[-1]
        length = ((x - x0) ** 2 + (y - y0) ** 2) ** 0.5
        dx, dy = (x - x0) / length, (y - y0) / length
        half = size / 2
        head = [(x, y), (x - size * dx + half * dy, y - size * dy - half * dx),
                (x - size * dx - half * dy, y - size * dy + half * dx)]
        corners = " ".join(f"{number(a)},{number(b)}" for a, b in head)
        self.parts.append(f'<polygon points="{corners}" fill="{stroke}"/>')

    def labeled_box(self, x, y, width, height, lines, fill=PALE, stroke=GREY, size=13):
        self.box(x, y, width, height, fill, stroke)
        first = y + height / 2 - (len(lines) - 1) * (size + 3) / 2 + size * 0.35
        for i, words in enumerate(lines):
            self.text(x + width / 2, first + i * (size + 3), words, size)

    def result(self):
        return "\n".join(self.parts + ["</svg>"]) + "\n"


def lanes(picture, names, left, top, width, height):
    """Named horizontal lanes; returns the y of the middle of each."""
    middles = []
    for i, words in enumerate(names):
        y = top + i * height
        if i % 2 == 0:
            picture.box(0, y, left + width, height, PALE, PALE, 0)
        first = y + height / 2 + 5 - (len(words) - 1) * 9
        for j, line in enumerate(words):
            picture.text(12, first + j * 18, line, 13, INK, "start", bold=j == 0)
        middles.append(y + height / 2)
    return middles
