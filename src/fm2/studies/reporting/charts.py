"""Line and scatter charts: AUC against FLOPs (the paper's figure 8), learning curves, calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from typing import Any, NamedTuple

from fm2.studies.comparison.results import Comparison
from fm2.studies.reporting.inputs import finished, first_with_full_matrices, has_full_matrices
from fm2.svg import COLORS, Axis, Plot, Point, log_ticks, short_number, spread, svg, text, text_width, ticks

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 440, 290, 52, 12, 28, 44
LABEL_SIZE = 11
CACHED, SHRUNK = "fmfm, cached", "fmfm, cached and shrunk"
LABEL_GAP = 13  # between the baselines of two labels
MODELS_THAT_FIT = 8  # charts of more models are taller
LEADER_DISTANCE = 12  # a label farther than this from its point is joined to it by a line
# The outline keeps labels readable on top of lines and dots.
HALO = 'class="halo" stroke="#fff" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'

Box = tuple[float, float, float, float]  # left, top, right, bottom


class Dot(NamedTuple):
    """A point of the chart of AUC against FLOPs. Hollow dots belong to a cached or shrunk FmFM."""

    point: Point
    color: str
    tooltip: str
    hollow: bool = False


def colors_of(models: Sequence[str]) -> dict[str, str]:
    """Assign a color to every model. Colors repeat if there are many models; labels distinguish them."""
    order = sorted(models, key=lambda model: not has_full_matrices(model))  # FmFM has the same color in every report
    return {model: COLORS[number % len(COLORS)] for number, model in enumerate(order)}


def draw_quality(comparison: Comparison, shrunk: Sequence[Mapping[str, Any]] = ()) -> str:
    """Draw AUC against FLOPs: a dot for every model and seed, hollow dots for a cached or shrunk FmFM."""
    models = finished(comparison)
    colors = colors_of(list(models))
    trained = []
    for row in (row for rows in models.values() for row in rows):
        tooltip = f"{row['model']}, seed {row['seed']}: AUC {row['auc']:.5f}, {row['flops']:,} FLOPs"
        trained.append(Dot((row["flops"], row["auc"]), colors[row["model"]], tooltip))
    smaller = cached_dots(comparison, shrunk)
    dots = [*smaller, *trained]
    height = _height(models)
    best_possible = [comparison.truth["auc"]] if comparison.truth else []
    flops, aucs = zip(*(dot.point for dot in dots), strict=True)
    bars = _intervals(comparison)
    bounds = [bound for bar in bars.values() for bound in bar]
    plot = _plot(log_ticks(min(flops), max(flops)), [*aucs, *bounds, *best_possible], height, log=True)
    labels: dict[str, Point] = {
        model: (rows[0]["flops"], max(row["auc"] for row in rows)) for model, rows in models.items()
    }
    parts = plot.grid(f"AUC ({comparison.split})", "FLOPs per prediction (log scale)")
    occupied: list[Box] = []
    for auc in best_possible:
        parts += _level(plot, auc, f"best possible, {auc:.4f}", occupied)
    parts += _draw_intervals(plot, bars, {model: rows[0]["flops"] for model, rows in models.items()}, colors)
    if smaller:
        path = sorted(dot.point for dot in smaller)
        parts.append(plot.line(path, COLORS[0], "2 4"))
        labels[SHRUNK if len(path) > 1 else CACHED] = path[0]
    parts += [plot.dot(*dot) for dot in dots]
    occupied += [(x - 5, y - 5, x + 5, y + 5) for x, y in (plot.position(dot.point) for dot in dots)]
    parts += _labels(plot, labels, {**colors, CACHED: COLORS[0], SHRUNK: COLORS[0]}, occupied)
    figures = ", ".join(f"{model} {rows[0]['auc']:.4f}" for model, rows in models.items())
    return svg(WIDTH, height, f"AUC against FLOPs: {figures}", parts)


def _intervals(comparison: Comparison) -> dict[str, tuple[float, float]]:
    """Return, for each model, the AUC of the best model plus the interval of the difference from it.

    The best model has an interval of length 0. Empty without statistics, or if there is one model.
    """
    if comparison.statistics is None or len(comparison.statistics.metrics["auc"].models) < 2:
        return {}
    metric = comparison.statistics.metrics["auc"]
    best = next(entry["auc"] for entry in comparison.summary() if entry["model"] == metric.reference)
    pairs = {model: metric.difference(model, metric.reference) for model in metric.models if model != metric.reference}
    return {metric.reference: (best, best)} | {
        model: (best + pair.low, best + pair.high) for model, pair in pairs.items()
    }


def _draw_intervals(
    plot: Plot, bars: Mapping[str, tuple[float, float]], flops: Mapping[str, float], colors: Mapping[str, str]
) -> list[str]:
    """Draw a bar for every interval, and a line at the AUC of the best model."""
    parts = []
    for model, (low, high) in bars.items():
        x, bottom, top = plot.x.position(flops[model]), plot.y.position(low), plot.y.position(high)
        if low == high:
            line = f'd="M{plot.edges[0]:g} {top:.1f}H{plot.edges[1]:g}" stroke="{colors[model]}" stroke-dasharray="2 3"'
        else:
            line = f'd="M{x:.1f} {bottom:.1f}V{top:.1f}" stroke="{colors[model]}" stroke-width="1.5"'
        parts.append(f'<path {line} stroke-opacity=".6"/>')
    return parts


def cached_dots(comparison: Comparison, shrunk: Sequence[Mapping[str, Any]]) -> list[Dot]:
    """Return the dots of an FmFM with cached vectors, and of the models that were shrunk from it."""
    costs = {
        f"FmFM shrunk to {row['variance']:.0%} of the variance": (row["flops"], row["auc"])
        for row in shrunk
        if row["variance"] is not None
    }
    row = first_with_full_matrices(comparison)
    if row and row["flops_cached"]:
        costs["FmFM"] = (row["flops_cached"], row["auc"])
    return [
        Dot((flops, auc), COLORS[0], f"{name}: AUC {auc:.5f}, {flops:,.0f} FLOPs with cached vectors", hollow=True)
        for name, (flops, auc) in costs.items()
    ]


def draw_learning(histories: Mapping[str, Sequence[Mapping[str, Any]]], metric: str, title: str) -> str:
    """Draw a metric of every run's evaluations against its epochs; the dot marks the best evaluation."""
    lines = {name: [(row["epoch"], row[metric]) for row in rows] for name, rows in histories.items()}
    points = [point for line in lines.values() for point in line]
    label_width = max(text_width(name, LABEL_SIZE, bold=True) for name in lines)
    epochs, values = ticks(0, max(x for x, _ in points)), [y for _, y in points]
    plot = _plot(epochs, values, _height(lines), right_margin=label_width)
    parts, colors = plot.grid(title, "epoch"), colors_of(list(lines))
    for name, line in lines.items():
        parts.append(plot.line(line, colors[name]))
        best = [row for row in histories[name] if row.get("best")]
        if best:
            point = best[-1]["epoch"], best[-1][metric]
            parts.append(plot.dot(point, colors[name], f"{name}, epoch {point[0]:.3g}: {point[1]:.5f}"))
    ends = [plot.position(line[-1]) for line in lines.values()]
    heights = spread([y for _, y in ends], LABEL_GAP, plot.y.begin)
    for name, (x, _), y in zip(lines, ends, heights, strict=True):
        parts.append(_label(x + 7, y + 4, name, colors[name]))
    return svg(WIDTH, _height(lines), f"{title} by epoch: {', '.join(lines)}", parts)


def draw_calibration(bins: Sequence[Mapping[str, float]]) -> str:
    """Draw the observed click rate against the predicted one, with bars of two standard errors."""
    marks = ticks(0, max(max(row["predicted"], row["observed"]) for row in bins))
    end = marks[-1]
    plot = Plot(Axis(marks, LEFT, WIDTH - RIGHT - 10), Axis(marks, HEIGHT - BOTTOM, TOP), (LEFT, WIDTH - RIGHT))
    parts = plot.grid("observed click rate", "predicted click rate")
    parts.append(plot.line([(0, 0), (end, end)], "#999", "2 4"))
    for row in bins:
        predicted, observed, rows = row["predicted"], row["observed"], row["rows"]
        error = 2 * math.sqrt(observed * (1 - observed) / rows)
        x = plot.x.position(predicted)
        low, high = (plot.y.position(min(max(rate, 0), end)) for rate in (observed - error, observed + error))
        parts.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{COLORS[0]}" stroke-opacity=".5"/>')
        tooltip = f"{rows:,.0f} rows: {predicted:.4f} predicted, {observed:.4f} ± {error:.4f} observed"
        parts.append(plot.dot((predicted, observed), COLORS[0], tooltip))
    return svg(WIDTH, HEIGHT, f"observed against predicted click rate in {len(bins)} bins", parts)


def _height(models: Sized) -> int:
    return HEIGHT + LABEL_GAP * max(len(models) - MODELS_THAT_FIT, 0)


def _plot(
    x_ticks: Sequence[float], values: Sequence[float], height: float, right_margin: float = RIGHT, log: bool = False
) -> Plot:
    """Make the axes; the left margin fits the labels of the y axis."""
    y_ticks = ticks(min(values), max(values), 6)
    left = max(LEFT, 12 + max(text_width(short_number(tick), 12) for tick in y_ticks))
    right = WIDTH - right_margin
    return Plot(Axis(x_ticks, left + 10, right - 10, log), Axis(y_ticks, height - BOTTOM, TOP), (left, right))


def _level(plot: Plot, value: float, label: str, occupied: list[Box]) -> list[str]:
    """Draw a labeled horizontal line; add its label to the boxes that other labels avoid."""
    (left, right), y = plot.edges, plot.y.position(value)
    occupied.append((left + 4, y - LABEL_SIZE - 4, left + 4 + text_width(label, LABEL_SIZE), y))
    line = f'<path class="axis" d="M{left:g} {y:.1f}H{right:g}" stroke="#888" stroke-dasharray="6 3"/>'
    return [line, f"<g {HALO}>{text(left + 4, y - 4, label, size=LABEL_SIZE)}</g>"]


def _label(x: float, y: float, name: str, color: str) -> str:
    return f'<g fill="{color}" {HALO}>{text(x, y, name, bold=True, size=LABEL_SIZE)}</g>'


def _labels(plot: Plot, points: Mapping[str, Point], colors: Mapping[str, str], occupied: list[Box]) -> list[str]:
    """Write names next to their points so that they overlap as little as possible of what is ``occupied``."""
    leaders, labels = [], []
    for name, (x, y) in sorted(((name, plot.position(point)) for name, point in points.items()), key=lambda i: i[1]):
        boxes = _label_boxes(plot, x, y, text_width(name, LABEL_SIZE, bold=True))
        box = min(boxes, key=lambda box: sum(_overlap(box, other) for other in occupied))
        occupied.append(box)
        left, top, right, bottom = box
        labels.append(_label(left, bottom - 2, name, colors[name]))
        nearest = min(max(x, left), right), min(max(y, top), bottom)
        if math.dist((x, y), nearest) > LEADER_DISTANCE:
            leaders.append(f'<path d="M{x:.1f} {y:.1f}L{nearest[0]:.1f} {nearest[1]:.1f}" stroke="{colors[name]}"/>')
    return [*leaders, *labels]


def _label_boxes(plot: Plot, x: float, y: float, width: float) -> list[Box]:
    """Return the boxes where the label of a point may be, in order of preference; those inside the chart if any are."""
    corners = [(x + 7, y + 4), (x - 7 - width, y + 4), (x - width / 2, y - 8), (x - width / 2, y + 16)]
    corners += [(x + shift, y + drop) for drop in (-7, 15, -18, 26, -29, 37) for shift in (5, -5 - width)]
    boxes = [(left, baseline - LABEL_SIZE + 2, left + width, baseline + 2) for left, baseline in corners]
    edge, bottom = plot.edges[0], plot.y.begin
    inside = [box for box in boxes if box[0] >= edge and box[1] >= 0 and box[2] <= WIDTH and box[3] <= bottom]
    return inside or boxes


def _overlap(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return max(width, 0) * max(height, 0)
