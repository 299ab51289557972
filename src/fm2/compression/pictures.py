"""A picture of what is lost at which rank: one SVG file, which needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from fm2.storage import new_file

WIDTH, PANEL, LEFT, RIGHT, TOP, BETWEEN, BOTTOM = 640, 200, 80, 24, 64, 56, 48
COLOURS = {"as cut": "#b35806", "trained on": "#2166ac"}
TICKS = 4

Series = dict[str, list[tuple[float, float]]]


def draw_ranks(path: Path, rows: Sequence[dict[str, Any]], trained: bool = True) -> None:
    """Draw the AUC that is lost, and the worst logit error, against the rank: as cut, and if so, ``trained`` on."""
    first, ranks = rows[0], [row["rank"] for row in rows[1:]]
    figures = {"as cut": [row["cut"] for row in rows[1:]]} | ({"trained on": list(rows[1:])} if trained else {})
    lost: Series = {}
    worst: Series = {}
    for name, found in figures.items():
        lost[name] = [(rank, first["auc"] - row["auc"]) for rank, row in zip(ranks, found, strict=True)]
        worst[name] = [(rank, row["worst_error"]) for rank, row in zip(ranks, found, strict=True)]
    height = TOP + 2 * PANEL + BETWEEN + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="13" fill="#222">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        *_legend(f"Cut spectrum, on {first['split']} (AUC before: {first['auc']:.5f})", list(figures)),
        *_panel(TOP, "AUC lost", lost),
        *_panel(TOP + PANEL + BETWEEN, "worst logit error", worst),
        _text(WIDTH / 2, height - 8, "rank", "middle"),
        "</svg>",
    ]
    with new_file(path) as partial:
        partial.write_text("\n".join(parts) + "\n", encoding="utf-8")


def ticks(low: float, high: float) -> list[float]:
    """Give round numbers that reach from one to the other, a few.

    >>> ticks(-0.1, 2.2)
    [-1.0, 0.0, 1.0, 2.0, 3.0]
    """
    width = max(high - low, 1e-9) / TICKS
    size = 10.0 ** math.floor(math.log10(width))
    step = next(step for step in (size, 2 * size, 5 * size, 10 * size) if step >= width)
    begin, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(begin, max(end, begin + 1) + 1)]


def _panel(top: float, title: str, series: Series) -> list[str]:
    """Draw axes and lines; ranks stand by their logarithms, and 0 is always on the scale."""
    points = [point for line in series.values() for point in line]
    marks = ticks(min(0.0, *(y for _, y in points)), max(0.0, *(y for _, y in points)))
    ranks = sorted({x for x, _ in points})
    low, span = math.log(ranks[0]), max(math.log(ranks[-1] / ranks[0]), 1e-9)

    def across(rank: float) -> float:
        return LEFT + 12 + (WIDTH - LEFT - RIGHT - 24) * (math.log(rank) - low) / span

    def down(value: float) -> float:
        return top + PANEL * (marks[-1] - value) / (marks[-1] - marks[0])

    parts = [_text(LEFT, top - 10, title, bold=True)]
    for mark in marks:
        shade = "#888" if mark == 0 else "#ddd"
        parts.append(f'<path d="M{LEFT} {down(mark):.1f}H{WIDTH - RIGHT}" stroke="{shade}"/>')
        parts.append(_text(LEFT - 8, down(mark) + 4, f"{mark:g}", "end"))
    parts += [_text(across(rank), top + PANEL + 18, f"{rank:g}", "middle") for rank in ranks]
    for name, line in series.items():
        parts += _line(COLOURS[name], line, across, down)
    return parts


def _line(
    colour: str,
    points: Sequence[tuple[float, float]],
    across: Callable[[float], float],
    down: Callable[[float], float],
) -> list[str]:
    places = [(across(x), down(y)) for x, y in points]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in places]
    return [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>', *dots]


def _legend(title: str, names: Sequence[str]) -> list[str]:
    parts, x = [_text(LEFT, 24, title, bold=True)], WIDTH - RIGHT - 190
    for name in names:
        parts.append(f'<circle cx="{x}" cy="{TOP - 14}" r="4" fill="{COLOURS[name]}"/>')
        parts.append(_text(x + 10, TOP - 10, name))
        x += 95
    return parts


def _text(x: float, y: float, text: str, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{escape(text)}</text>'
