"""Draw the quality of cut models against their rank, as one SVG file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fm2.files import write_text
from fm2.svg import COLORS, Axis, Plot, Point, svg, text, ticks

WIDTH, PANEL, LEFT, RIGHT, TOP, BETWEEN, BOTTOM = 640, 200, 80, 24, 64, 56, 48

Series = dict[str, list[Point]]


def draw_ranks(path: Path, rows: Sequence[dict[str, Any]], trained: bool = True) -> None:
    """Draw AUC lost and worst logit error against the rank: as cut and, if they were ``trained``, after training."""
    first, ranks = rows[0], [row["rank"] for row in rows[1:]]
    figures = {"as cut": [row["cut"] for row in rows[1:]]} | ({"trained": list(rows[1:])} if trained else {})

    def series(value: Callable[[dict[str, Any]], float]) -> Series:
        return {name: list(zip(ranks, map(value, models), strict=True)) for name, models in figures.items()}

    height = TOP + 2 * PANEL + BETWEEN + BOTTOM
    title = f"Cut spectrum, on {first['split']} (AUC before: {first['auc']:.5f})"
    parts = [
        *_legend(title, list(figures)),
        *_panel(TOP, "AUC lost", series(lambda row: first["auc"] - row["auc"])),
        *_panel(TOP + PANEL + BETWEEN, "worst logit error", series(lambda row: row["worst_error"]), below="rank"),
    ]
    write_text(path, svg(WIDTH, height, title, parts, background=True))


def _panel(top: float, title: str, series: Series, below: str = "") -> list[str]:
    """Draw axes and lines; the rank axis is logarithmic, and the other axis includes 0."""
    points = [point for line in series.values() for point in line]
    across = Axis(sorted({x for x, _ in points}), LEFT + 12, WIDTH - RIGHT - 12, logarithmic=True)
    up = Axis(ticks(min(0.0, *(y for _, y in points)), max(0.0, *(y for _, y in points))), top + PANEL, top)
    plot = Plot(across, up, (LEFT, WIDTH - RIGHT))
    parts = plot.grid(title, below)
    for color, line in zip(COLORS, series.values(), strict=False):
        parts += [plot.line(line, color), *(plot.dot(point, color) for point in line)]
    return parts


def _legend(title: str, names: Sequence[str]) -> list[str]:
    parts, x = [text(LEFT, 24, title, bold=True)], WIDTH - RIGHT - 190
    for color, name in zip(COLORS, names, strict=False):
        parts.append(f'<circle cx="{x}" cy="{TOP - 14}" r="4" fill="{color}"/>')
        parts.append(text(x + 10, TOP - 10, name))
        x += 95
    return parts
