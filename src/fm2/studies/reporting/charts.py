"""Lines and dots: AUC against operations (the paper's figure 9), learning curves, calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from typing import Any

from fm2.studies.reporting.inputs import Study, has_full_matrices
from fm2.svg import COLORS, Axis, Plot, Point, powers, short, spread, svg, text, ticks, width_of

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440, 290, 52, 12, 28, 44
SMALL = 11
CACHED, SHRUNK = "fmfm, cached", "fmfm, cached and shrunk"
LINE = 13  # from one label to the next
FEW = 8  # models: more make a picture higher
APART = 12  # from a place to its name: farther ones are joined by a thin line
# Whatever a text stands on ends before its letters.
HALO = 'class="halo" stroke="#fff" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'

Box = tuple[float, float, float, float]


def colors_of(models: Sequence[str]) -> dict[str, str]:
    """Give every model a color; where there are many, some share one, and labels tell them apart."""
    first = sorted(models, key=lambda model: not has_full_matrices(model))  # whose color is the same in every report
    return {model: COLORS[number % len(COLORS)] for number, model in enumerate(first)}


def draw_quality(study: Study, shrunk: Sequence[Mapping[str, Any]] = (), background: bool = False) -> str:
    """Draw AUC against floating point operations: a dot for every model and seed, and the sizes of a shrunk FmFM."""
    models, hue = study.models, colors_of(list(study.models))
    dots = [((entry.flops, entry.auc), entry) for some in models.values() for entry in some]
    smaller = _cached(study, shrunk)
    quality = [auc for (_, auc), _ in dots] + [auc for _, auc, _ in smaller]
    quality += [study.truth["auc"]] if study.truth else []
    work = [flops for (flops, _), _ in dots] + [flops for flops, _, _ in smaller]
    height = _height(models)
    plot = _plot(powers(min(work), max(work)), quality, height, logarithmic=True)
    parts = plot.grid(f"AUC, on {study.split}", "FLOPs for one prediction, logarithmic")
    taken: list[Box] = []
    if study.truth:
        level, room = _level(plot, study.truth["auc"], "the best possible")
        parts, taken = [*parts, *level], [room]
    path = sorted((flops, auc) for flops, auc, _ in smaller)
    if path:
        parts.append(plot.line(path, COLORS[0], "2 4"))
    for flops, auc, name in smaller:
        said = f"{name}: AUC {auc:.5f}, {flops:,.0f} FLOPs, cached"
        parts.append(plot.dot((flops, auc), COLORS[0], said, hollow=True))
    for point, entry in dots:
        said = f"{entry.model}, seed {entry.seed}: AUC {entry.auc:.5f}, {entry.flops:,} FLOPs"
        parts.append(plot.dot(point, hue[entry.model], said))
    named = {model: plot.place((some[0].flops, max(entry.auc for entry in some))) for model, some in models.items()}
    for x, y in map(plot.place, [*(point for point, _ in dots), *path]):
        taken.append((x - 5, y - 5, x + 5, y + 5))
    if path:
        named[CACHED if len(path) == 1 else SHRUNK] = plot.place(path[0])
    parts += _names(named, taken, {**hue, CACHED: COLORS[0], SHRUNK: COLORS[0]}, plot)
    label = f"AUC against FLOPs of {', '.join(f'{m} {some[0].auc:.4f}' for m, some in models.items())}"
    return svg(WIDTH, height, label, parts, background)


def _cached(study: Study, shrunk: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, str]]:
    """Give operations, AUC and name of an FmFM with cached vectors, and of those that were shrunk from it."""
    entry, rows = study.first_with_full_matrices(), [row for row in shrunk if row["variance"] is not None]
    found = [(row["flops"], row["auc"], f"FmFM shrunk to {row['variance']:g} of the variance") for row in rows]
    if entry and entry.flops_cached:
        found.append((entry.flops_cached, entry.auc, "FmFM"))
    return found


def draw_learning(histories: Mapping[str, Sequence[Mapping[str, Any]]], figure: str, title: str) -> str:
    """Draw a figure of every run's evaluations against its epochs; the dot is the state that was kept."""
    lines = {name: [(row["epoch"], row[figure]) for row in rows] for name, rows in histories.items()}
    points = [point for line in lines.values() for point in line]
    height, room = _height(lines), max(width_of(name, SMALL, bold=True) for name in lines)
    plot = _plot(ticks(0, max(x for x, _ in points)), [y for _, y in points], height, room)
    parts, hue = plot.grid(title, "epochs"), colors_of(list(lines))
    for name, line in lines.items():
        parts.append(plot.line(line, hue[name]))
        kept = [row for row in histories[name] if row.get("best")]
        if kept:
            said = f"{name}, after {kept[-1]['epoch']:.3g} epochs: {kept[-1][figure]:.5f}"
            parts.append(plot.dot((kept[-1]["epoch"], kept[-1][figure]), hue[name], said))
    ends = [plot.place(line[-1]) for line in lines.values()]
    for (x, _), y, name in zip(ends, spread([y for _, y in ends], LINE, plot.y.begin), lines, strict=True):
        parts.append(_name(x + 7, y + 4, name, hue[name]))
    return svg(WIDTH, height, f"{title} against epochs of {', '.join(lines)}", parts)


def draw_calibration(bins: Sequence[Mapping[str, float]]) -> str:
    """Draw the observed click rate against the predicted one, with two standard errors to both sides."""
    most = max(max(row["predicted"], row["observed"]) for row in bins)
    marks = ticks(0, most)
    plot = Plot(Axis(marks, LEFT, WIDTH - RIGHT - 10), Axis(marks, HEIGHT - BOTTOM, TOP), (LEFT, WIDTH - RIGHT))
    parts = plot.grid("click rate observed", "click rate predicted")
    parts.append(plot.line([(0, 0), (marks[-1], marks[-1])], "#999", "2 4"))
    for row in bins:
        rate, rows = row["observed"], row["rows"]
        error = 2 * math.sqrt(rate * (1 - rate) / rows)
        low, high = (plot.y.at(min(max(edge, 0), marks[-1])) for edge in (rate - error, rate + error))
        x = plot.x.at(row["predicted"])
        parts.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{COLORS[0]}" stroke-opacity=".5"/>')
        said = f"{rows:,.0f} rows: {row['predicted']:.4f} predicted, {rate:.4f} observed, ± {error:.4f}"
        parts.append(plot.dot((row["predicted"], rate), COLORS[0], said))
    return svg(WIDTH, HEIGHT, f"observed against predicted click rates in {len(bins)} bins", parts)


def _height(models: Sized) -> int:
    return HEIGHT + LINE * max(len(models) - FEW, 0)


def _plot(
    across: Sequence[float], values: Sequence[float], height: float, room: float = 0, logarithmic: bool = False
) -> Plot:
    """Make the axes; beside them is the room that the marks need on the left, and names on the right."""
    marks = ticks(min(values), max(values), 6)
    left = max(LEFT, 12 + max(width_of(short(mark), 12) for mark in marks))
    right = WIDTH - (room or RIGHT)
    return Plot(Axis(across, left + 10, right - 10, logarithmic), Axis(marks, height - BOTTOM, TOP), (left, right))


def _level(plot: Plot, value: float, said: str) -> tuple[list[str], Box]:
    """Draw a level that nothing passes; tell where its name stands too."""
    (left, right), y, words = plot.edges, plot.y.at(value), f"{said}, {value:.4f}"
    line = f'<path class="axis" d="M{left:g} {y:.1f}H{right:g}" stroke="#888" stroke-dasharray="6 3"/>'
    room = (left + 4, y - SMALL - 4, left + 4 + width_of(words, SMALL), y)
    return [line, f"<g {HALO}>{text(left + 4, y - 4, words, size=SMALL)}</g>"], room


def _name(x: float, y: float, name: str, color: str) -> str:
    return f'<g fill="{color}" {HALO}>{text(x, y, name, bold=True, size=SMALL)}</g>'


def _names(places: Mapping[str, Point], taken: list[Box], hue: Mapping[str, str], plot: Plot) -> list[str]:
    """Write names beside their places, where they cover neither what is ``taken`` nor each other if that can be."""
    lines, parts, (edge, _), end = [], [], plot.edges, plot.y.begin
    for name, (x, y) in sorted(places.items(), key=lambda item: item[1]):
        wide = width_of(name, SMALL, bold=True)
        sides = [(x + 7, y + 4), (x - 7 - wide, y + 4), (x - wide / 2, y - 8), (x - wide / 2, y + 16)]
        sides += [(x + shift, y + low) for low in (-7, 15, -18, 26, -29, 37) for shift in (5, -5 - wide)]
        boxes = [(left, low - SMALL + 2, left + wide, low + 2) for left, low in sides]
        inside = [box for box in boxes if box[0] >= edge and box[2] <= WIDTH and box[1] >= 0 and box[3] <= end]
        box = min(inside or boxes, key=lambda box: sum(_overlap(box, other) for other in taken))
        taken.append(box)
        parts.append(_name(box[0], box[3] - 2, name, hue[name]))
        near = min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3])
        if math.dist((x, y), near) > APART:
            lines.append(f'<path d="M{x:.1f} {y:.1f}L{near[0]:.1f} {near[1]:.1f}" stroke="{hue[name]}"/>')
    return [*lines, *parts]


def _overlap(one: Box, other: Box) -> float:
    """Give the area that two boxes share."""
    wide, high = (min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in (0, 1))
    return max(wide, 0) * max(high, 0)
