"""Heat maps of pairs of fields (the paper's figures 7 and 8), and bars of fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fm2.errors import printable
from fm2.studies.reporting.mutual_information import Matrix
from fm2.svg import COLORS, svg, text, width_of, words

WIDTH, TOP, SMALL = 440, 26, 9
LONGEST = 12  # letters of a name; the whole name is in the title of what it names
FAINT = 0.05  # how dark the lowest cell is, so that it is seen to be one
LEGEND = 6


def draw_map(title: str, unit: str, names: Sequence[str], values: Matrix, said: Callable[[int, int], str]) -> str:
    """Draw a matrix of fields by fields, darker where it is higher above 0; a cell that is pointed at says ``said``."""
    n, left = len(names), 8 + _widest(names, SMALL)
    side = min((WIDTH - left - 4) / n, 36)
    low, high = max(float(np.nanmin(values)), 0.0), max(float(np.nanmax(values)), 0.0)
    parts = [text(0, 14, f"{title}, {unit}", bold=True), '<g class="cells" fill="#2f6fb3">']
    for i in range(n):
        row = [
            f'<rect x="{left + j * side:.1f}" y="{TOP + i * side:.1f}" width="{side:.1f}" height="{side:.1f}" '
            f'fill-opacity="{_share(values[i, j], low, high):.2f}"><title>{words(said(i, j))}</title></rect>'
            for j in range(n)
            if np.isfinite(values[i, j])
        ]
        parts += row
    every = math.ceil(0.9 * SMALL / side)  # names that would stand on each other are left out
    parts += ["</g>", *(_label(left - 4, TOP + (i + 0.5) * side, names[i]) for i in range(0, n, every))]
    below = TOP + n * side
    parts += [_label(left + (j + 0.5) * side, below + 4, names[j], turned=True) for j in range(0, n, every)]
    height = below + left + 30
    parts += _legend(height - 22, low, high)
    return svg(WIDTH, height, f"heat map of {n} by {n} fields: {title}, from {low:.3g} to {high:.3g} {unit}", parts)


def draw_bars(title: str, names: Sequence[str], values: Sequence[int], most: int, said: Sequence[str]) -> str:
    """Draw a bar for every field, as long as its value, out of the most that there could be."""
    left, step = 8 + _widest(names, 11), 15
    wide = WIDTH - left - 36
    parts = [text(0, 14, title, bold=True)]
    for number, (name, value, words_of) in enumerate(zip(names, values, said, strict=True)):
        y, end = TOP + number * step, left + wide * value / most
        parts.append(f"<g><title>{words(words_of)}</title>{text(left - 6, y + 10, shortened(name), 'end', size=11)}")
        box = f'y="{y}" height="{step - 4}"'
        parts.append(f'<rect class="cells" x="{left:.1f}" {box} width="{wide:.1f}" fill="#2f6fb3" fill-opacity=".12"/>')
        parts.append(f'<rect x="{left:.1f}" {box} width="{end - left:.1f}" fill="{COLORS[0]}"/>')
        parts.append(f"{text(left + wide + 6, y + 10, f'{value}', size=11)}</g>")
    label = f"{title}: {', '.join(f'{name} {value}' for name, value in zip(names, values, strict=True))}"
    return svg(WIDTH, TOP + len(names) * step + 4, label, parts)


def shortened(name: str) -> str:
    """Give a name that fits beside a picture: its beginning and its end, by which fields of one kind differ.

    >>> shortened("top_level_domain_12")
    'top_l…ain_12'
    """
    shown, half = printable(name), LONGEST // 2
    return shown if len(shown) <= LONGEST else f"{shown[: half - 1]}…{shown[-half:]}"


def _widest(names: Sequence[str], size: float) -> float:
    return max(width_of(shortened(name), size) for name in names)


def _share(value: float, low: float, high: float) -> float:
    return FAINT + (1 - FAINT) * max(float(value) - low, 0) / (high - low) if high > low else 0.5


def _label(x: float, y: float, name: str, turned: bool = False) -> str:
    if turned:
        upright = text(0, 0, shortened(name), "end", size=SMALL)
        return f'<g transform="translate({x + 3:.1f} {y:.1f}) rotate(-90)">{upright}</g>'
    return text(x, y + 3, shortened(name), "end", size=SMALL)


def _legend(top: float, low: float, high: float) -> list[str]:
    """Show what the shades stand for."""
    shades = np.linspace(FAINT, 1, LEGEND)
    boxes = "".join(
        f'<rect x="{70 + number * 20}" y="{top:.1f}" width="20" height="12" fill-opacity="{shade:.2f}"/>'
        for number, shade in enumerate(shades)
    )
    end = 70 + LEGEND * 20
    return [
        text(64, top + 10, f"{low:.3g}", "end", size=11),
        f'<g class="cells" fill="#2f6fb3">{boxes}</g>',
        text(end + 6, top + 10, f"{high:.3g}", size=11),
    ]
