"""SVG charts without dependencies: axes, lines, points and labels.

Every color is an attribute, so a chart is complete as a file of its own. The classes next to them let a page replace
the colors, for example in dark mode.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from unicodedata import east_asian_width

from fm2.errors import printable

COLORS = ("#3b7dc4", "#d9772b", "#3a9a5b", "#9163c0", "#cf4d4d", "#2a9d9d", "#8a7a5c", "#c25b9b")
NARROW, WIDE = set("fijlrtI .,:;'!|()[]-/"), set("mwMW@%&×…—")  # all other characters have similar widths

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic scale from the first tick, drawn at ``begin``, to the last one, drawn at ``end``."""

    ticks: Sequence[float]
    begin: float
    end: float
    logarithmic: bool = False

    def position(self, value: float) -> float:
        """Return the coordinate of a value.

        >>> Axis([1, 100], 0, 10, logarithmic=True).position(10)
        5.0
        """
        scale = math.log if self.logarithmic else float
        low, high = scale(self.ticks[0]), scale(self.ticks[-1])
        return self.begin + (self.end - self.begin) * (scale(value) - low) / max(high - low, 1e-9)


@dataclass(frozen=True)
class Plot:
    """Two axes, and methods that draw between them."""

    x: Axis
    y: Axis
    edges: Point  # left and right end of the grid lines

    def grid(self, title: str, x_title: str = "", x_labels: Sequence[str] = ()) -> list[str]:
        """Draw the title, a grid line for every tick of y, and the labels of both axes.

        ``x_labels`` replace the numbers of the first ticks of x.
        """
        left, right = self.edges
        parts = [text(left, self.y.end - 10, title, bold=True)]
        for tick in self.y.ticks:
            kind, color = ("axis", "#888") if tick == 0 else ("grid", "#ddd")
            y = self.y.position(tick)
            parts.append(f'<path class="{kind}" d="M{left:g} {y:.1f}H{right:g}" stroke="{color}"/>')
            parts.append(text(left - 8, y + 4, short_number(tick), "end"))
        below = self.y.begin + 18
        labels = list(zip(self.x.ticks, x_labels or map(short_number, self.x.ticks), strict=False))
        size = 9 if x_labels else 0  # names need more space than numbers
        parts += [text(self.x.position(tick), below, label, "middle", size=size) for tick, label in labels]
        if x_title:
            parts.append(text((left + right) / 2, self.y.begin + 36, x_title, "middle"))
        return parts

    def position(self, point: Point) -> Point:
        """Return the coordinates of a point."""
        return self.x.position(point[0]), self.y.position(point[1])

    def line(self, points: Iterable[Point], color: str, dashes: str = "") -> str:
        """Draw a line through points."""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(self.position, points))
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        return f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"{dashed}/>'

    def dot(self, point: Point, color: str, tooltip: str = "", hollow: bool = False) -> str:
        """Draw a point, with an optional tooltip."""
        x, y = self.position(point)
        paint = f'class="hollow" fill="#fff" stroke="{color}" stroke-width="2"' if hollow else f'fill="{color}"'
        title = f"<title>{escaped(tooltip)}</title>" if tooltip else ""
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" {paint}>{title}</circle>'


def svg(width: float, height: float, label: str, parts: Iterable[str], background: bool = False) -> str:
    """Assemble a chart. Screen readers read its ``label``."""
    paper = f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>\n' if background else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escaped(label)}" font-family="system-ui, sans-serif" '
        f'font-size="12" fill="#222">\n{paper}' + "\n".join(parts) + "\n</svg>\n"
    )


def escaped(content: str) -> str:
    """Escape a text for use inside markup."""
    return escape(printable(content))


def text(x: float, y: float, content: str, anchor: str = "start", bold: bool = False, size: float = 0) -> str:
    """Draw a text."""
    style = (' font-weight="bold"' if bold else "") + (f' font-size="{size:g}"' if size else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escaped(content)}</text>'


def text_width(content: str, size: float, bold: bool = False) -> float:
    """Estimate the width of a text in the widest of the usual system fonts.

    >>> [round(text_width(content, 10)) for content in ("fmfm", "C10", "日本")]
    [27, 20, 20]
    """
    return size * sum(map(_character_width, content)) * (1.12 if bold else 1)


def _character_width(character: str) -> float:
    if east_asian_width(character) in "WF":
        return 1.0
    return 0.4 if character in NARROW else 0.95 if character in WIDE else 0.66


def short_number(number: float) -> str:
    """Format a number with a unit prefix.

    >>> [short_number(number) for number in (0.05, 250, 2000, 1_000_000)]
    ['0.05', '250', '2k', '1M']
    """
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= unit:
            return f"{number / unit:g}{letter}"
    return f"{number:g}"


def ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return about ``count`` round numbers that cover a range. ``short_number`` keeps them distinct.

    >>> ticks(-0.1, 2.2), ticks(0.775, 0.775)
    ([-1.0, 0.0, 1.0, 2.0, 3.0], [0.775, 0.77502])
    """
    width = max(high - low, 1e-4 * max(abs(low), abs(high)), 1e-9) / count
    size = 10.0 ** math.floor(math.log10(width))
    step = next(step for step in (size, 2 * size, 5 * size, 10 * size) if step >= width)
    begin, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(begin, max(end, begin + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers for a logarithmic axis that covers a range.

    >>> log_ticks(78, 24531)
    [50, 1000, 10000, 50000]
    """
    size = 10 ** math.floor(math.log10(low))
    begin = max(step * size for step in (1, 2, 5) if step * size <= low)
    size = 10 ** math.floor(math.log10(high))
    end = min(step * size for step in (1, 2, 5, 10) if step * size >= high)
    powers = [10**power for power in range(math.floor(math.log10(low)) + 1, math.ceil(math.log10(end)))]
    separate = [power for power in powers if 3 * begin < power < end / 3]  # closer labels would overlap
    return [begin, *separate, end if end > begin else 2 * begin]


def spread(positions: Sequence[float], gap: float, end: float) -> list[float]:
    """Move positions apart until neighbors are ``gap`` away: downward, then upward from ``end``.

    >>> spread([10, 12, 50], gap=10, end=60)
    [10, 20, 50]
    """
    moved = list(positions)
    order = sorted(range(len(moved)), key=lambda index: moved[index])
    for above, below in itertools.pairwise(order):
        moved[below] = max(moved[below], moved[above] + gap)
    limit = end
    for index in reversed(order):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - gap
    return moved
