"""Heat maps of field pairs (the paper's figures 6 and 7), and bar charts of fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fm2.errors import printable
from fm2.studies.reporting.mutual_information import Matrix
from fm2.svg import COLORS, escaped, svg, text, text_width

WIDTH, TOP, LABEL_SIZE = 440, 26, 9
LONGEST_NAME = 12  # longer names are shortened; tooltips have the full name
FAINTEST = 0.05  # opacity of the lowest cell, so that it remains visible
LEGEND_CELLS = 6


def draw_map(title: str, unit: str, names: Sequence[str], values: Matrix, tooltip: Callable[[int, int], str]) -> str:
    """Draw a matrix of fields by fields: the higher a value is above 0, the more opaque its cell."""
    count, left = len(names), 8 + _widest(names, LABEL_SIZE)
    side = min((WIDTH - left - 4) / count, 36)
    low, high = max(float(np.nanmin(values)), 0.0), max(float(np.nanmax(values)), 0.0)
    parts = [text(0, 14, f"{title}, {unit}", bold=True), '<g class="cells" fill="#2f6fb3">']
    for i, j in np.argwhere(np.isfinite(values)).tolist():
        parts.append(
            f'<rect x="{left + j * side:.1f}" y="{TOP + i * side:.1f}" width="{side:.1f}" height="{side:.1f}" '
            f'fill-opacity="{_opacity(values[i, j], low, high):.2f}"><title>{escaped(tooltip(i, j))}</title></rect>'
        )
    parts.append("</g>")
    bottom, step = TOP + count * side, math.ceil(0.9 * LABEL_SIZE / side)  # labels that would overlap are left out
    for number in range(0, count, step):
        center, name = (number + 0.5) * side, shortened(names[number])
        parts.append(text(left - 4, TOP + center + 3, name, "end", size=LABEL_SIZE))
        rotated = text(0, 0, name, "end", size=LABEL_SIZE)
        parts.append(f'<g transform="translate({left + center + 3:.1f} {bottom + 4:.1f}) rotate(-90)">{rotated}</g>')
    height = bottom + left + 30
    parts += _legend(height - 22, low, high)
    label = f"heat map of {count} by {count} fields: {title}, from {low:.3g} to {high:.3g} {unit}"
    return svg(WIDTH, height, label, parts)


def draw_bars(title: str, names: Sequence[str], values: Sequence[int], most: int, tooltips: Sequence[str]) -> str:
    """Draw a bar for every field, on top of a bar of length ``most``."""
    left, step = 8 + _widest(names, 11), 15
    width = WIDTH - left - 36
    parts = [text(0, 14, title, bold=True)]
    for number, (name, value, tooltip) in enumerate(zip(names, values, tooltips, strict=True)):
        y = TOP + number * step
        box = f'x="{left:.1f}" y="{y}" height="{step - 4}"'
        parts += [
            f"<g><title>{escaped(tooltip)}</title>{text(left - 6, y + 10, shortened(name), 'end', size=11)}",
            f'<rect class="cells" {box} width="{width:.1f}" fill="#2f6fb3" fill-opacity=".12"/>',
            f'<rect {box} width="{width * value / most:.1f}" fill="{COLORS[0]}"/>',
            f"{text(left + width + 6, y + 10, f'{value}', size=11)}</g>",
        ]
    label = f"{title}: {', '.join(f'{name} {value}' for name, value in zip(names, values, strict=True))}"
    return svg(WIDTH, TOP + len(names) * step + 4, label, parts)


def shortened(name: str, length: int = LONGEST_NAME) -> str:
    """Shorten a name to fit next to a chart. The end stays, because it is what similar names differ in.

    >>> shortened("top_level_domain_12")
    'top_l…ain_12'
    """
    shown, half = printable(name), length // 2
    return shown if len(shown) <= length else f"{shown[: half - 1]}…{shown[-half:]}"


def _widest(names: Sequence[str], size: float) -> float:
    return max(text_width(shortened(name), size) for name in names)


def _opacity(value: float, low: float, high: float) -> float:
    return FAINTEST + (1 - FAINTEST) * max(float(value) - low, 0) / (high - low) if high > low else 0.5


def _legend(top: float, low: float, high: float) -> list[str]:
    """Draw the color scale."""
    cells = "".join(
        f'<rect x="{70 + number * 20}" y="{top:.1f}" width="20" height="12" fill-opacity="{opacity:.2f}"/>'
        for number, opacity in enumerate(np.linspace(FAINTEST, 1, LEGEND_CELLS))
    )
    return [
        text(64, top + 10, f"{low:.3g}", "end", size=11),
        f'<g class="cells" fill="#2f6fb3">{cells}</g>',
        text(76 + LEGEND_CELLS * 20, top + 10, f"{high:.3g}", size=11),
    ]
