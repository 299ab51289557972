"""Pictures as SVG text that needs nothing else: axes, lines, dots and their labels.

Colors stand in attributes, so that a picture is whole in a file of its own; the classes beside them let a page that
holds the picture choose others, as for a dark screen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from unicodedata import east_asian_width

from fm2.errors import printable

TICKS = 4
COLORS = ("#3b7dc4", "#d9772b", "#3a9a5b", "#9163c0", "#cf4d4d", "#2a9d9d", "#8a7a5c", "#c25b9b")
NARROW, WIDE = set("fijlrtI .,:;'!|()[]-/"), set("mwMW@%&×…—")  # letters; the others are much alike

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """Where numbers stand between the first and the last of its marks: evenly, or by their logarithms."""

    marks: Sequence[float]
    begin: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Give a number's place.

        >>> Axis([1, 100], 0, 10, logarithmic=True).at(10)
        5.0
        """
        low, high, here = (math.log(x) if self.logarithmic else x for x in (self.marks[0], self.marks[-1], value))
        return self.begin + (self.end - self.begin) * (here - low) / max(high - low, 1e-9)


@dataclass(frozen=True)
class Plot:
    """Two axes, and what is drawn between them."""

    x: Axis
    y: Axis
    edges: Point  # the grid's, left and right

    def grid(self, title: str, below: str = "") -> list[str]:
        """Draw a line for every mark of y, the marks of both, and what they are of."""
        left, right = self.edges
        parts = [text(left, self.y.end - 10, title, bold=True)]
        for mark in self.y.marks:
            kind, shade = ("axis", "#888") if mark == 0 else ("grid", "#ddd")
            parts.append(f'<path class="{kind}" d="M{left:g} {self.y.at(mark):.1f}H{right:g}" stroke="{shade}"/>')
            parts.append(text(left - 8, self.y.at(mark) + 4, short(mark), "end"))
        parts += [text(self.x.at(mark), self.y.begin + 18, short(mark), "middle") for mark in self.x.marks]
        return [*parts, text((left + right) / 2, self.y.begin + 36, below, "middle")] if below else parts

    def place(self, point: Point) -> Point:
        """Give where a point is."""
        return self.x.at(point[0]), self.y.at(point[1])

    def line(self, points: Iterable[Point], color: str, dashes: str = "") -> str:
        """Draw a line through points."""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(self.place, points))
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        return f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"{dashed}/>'

    def dot(self, point: Point, color: str, title: str = "", hollow: bool = False) -> str:
        """Draw a point, which may say what it is."""
        x, y = self.place(point)
        paint = f'class="hollow" fill="#fff" stroke="{color}" stroke-width="2"' if hollow else f'fill="{color}"'
        said = f"<title>{words(title)}</title>" if title else ""
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {paint}>{said}</circle>'


def svg(width: float, height: float, label: str, parts: Iterable[str], background: bool = False) -> str:
    """Put a picture together; its ``label`` is for those who do not see it."""
    own = f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>\n' if background else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{words(label)}" font-family="system-ui, sans-serif" '
        f'font-size="12" fill="#222">\n{own}' + "\n".join(parts) + "\n</svg>\n"
    )


def words(said: str) -> str:
    """Make any text harmless within markup.

    >>> words('<b> & "c"\\x00')
    '&lt;b&gt; &amp; &quot;c&quot;\\\\x00'
    """
    return escape(printable(said))


def text(x: float, y: float, said: str, anchor: str = "start", bold: bool = False, size: float = 0) -> str:
    """Write a text."""
    more = (' font-weight="bold"' if bold else "") + (f' font-size="{size:g}"' if size else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words(said)}</text>'


def width_of(said: str, size: float, bold: bool = False) -> float:
    """Tell how much room a text needs, by the widest of the fonts that browsers have for such pages.

    >>> [round(width_of(said, 10)) for said in ("fmfm", "C10", "日本")]
    [27, 20, 20]
    """
    shares = (1.0 if east_asian_width(c) in "WF" else 0.4 if c in NARROW else 0.95 if c in WIDE else 0.66 for c in said)
    return size * sum(shares) * (1.12 if bold else 1)


def short(number: float) -> str:
    """Write a number briefly.

    >>> [short(number) for number in (0.05, 250, 2000, 1_000_000)]
    ['0.05', '250', '2k', '1M']
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:g}{letter}"
    return f"{number:g}"


def ticks(low: float, high: float, many: int = TICKS) -> list[float]:
    """Give round numbers that reach from one to the other, about so many; they differ as ``short`` writes them too.

    >>> ticks(-0.1, 2.2), ticks(0.775, 0.775)
    ([-1.0, 0.0, 1.0, 2.0, 3.0], [0.775, 0.77502])
    """
    width = max(high - low, 1e-4 * max(abs(low), abs(high)), 1e-9) / many
    size = 10.0 ** math.floor(math.log10(width))
    step = next(step for step in (size, 2 * size, 5 * size, 10 * size) if step >= width)
    begin, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(begin, max(end, begin + 1) + 1)]


def powers(low: float, high: float) -> list[float]:
    """Give round numbers for a logarithmic axis that reaches from one to the other.

    >>> powers(78, 24531)
    [50, 1000, 10000, 50000]
    """
    size = 10 ** math.floor(math.log10(low))
    begin = max(step * size for step in (1, 2, 5) if step * size <= low)
    size = 10 ** math.floor(math.log10(high))
    end = min(step * size for step in (1, 2, 5, 10) if step * size >= high)
    between = [10**power for power in range(math.floor(math.log10(low)) + 1, math.ceil(math.log10(end)))]
    apart = [mark for mark in between if 3 * begin < mark < end / 3]  # two numbers would stand on one place
    return [begin, *apart, end if end > begin else 2 * begin]


def spread(places: Sequence[float], gap: float, end: float) -> list[float]:
    """Move places apart, downwards and if there is no room upwards, until each has its gap.

    >>> spread([10, 12, 50], gap=10, end=60)
    [10, 20, 50]
    """
    found = list(places)
    order = sorted(range(len(found)), key=lambda place: found[place])
    for above, below in itertools.pairwise(order):
        found[below] = max(found[below], found[above] + gap)
    limit = end
    for place in reversed(order):
        found[place] = min(found[place], limit)
        limit = found[place] - gap
    return found
