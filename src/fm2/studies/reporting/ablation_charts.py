"""Charts of an ablation: gaps by the frequency of features, and maps of embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fm2.studies.reporting.charts import HALO, LABEL_SIZE
from fm2.studies.reporting.maps import shortened
from fm2.svg import COLORS, Axis, Plot, escaped, short_number, spread, svg, text, text_width, ticks

WIDTH, GAP_WIDTH, HEIGHT = 440, 660, 300
LOW, HIGH = (0x3B, 0x7D, 0xC4), (0xD9, 0x6A, 0x1B)  # colors of a low and a high click rate
NAMED_FEATURES = 7
LABEL_GAP = 14


def draw_gaps(bins: Sequence[str], models: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Draw the test loss minus the training loss of each model by the frequency of features."""
    values = [entry["gap"] for entries in models.values() for entry in entries]
    marks = ticks(min(0.0, *values), max(0.0, *values), 5)
    left = 12 + max(text_width(short_number(mark), 12) for mark in marks)
    right = GAP_WIDTH - 16 - max(text_width(name, LABEL_SIZE, bold=True) for name in models)
    x_axis = Axis(range(max(len(bins), 2)), left + 30, right - 10)
    plot = Plot(x_axis, Axis(marks, HEIGHT - 44, 30), (left, right))
    starts = [title.split(" ")[0] for title in bins]
    parts = plot.grid("test loss − training loss", "occurrences of a feature in the training rows, from", starts)
    ends = []
    for (name, entries), color in zip(models.items(), _colors(models), strict=True):
        points = [(float(number), entry["gap"]) for number, entry in enumerate(entries)]
        parts.append(plot.line(points, color))
        for point, entry, title in zip(points, entries, bins, strict=True):
            losses = f"training {entry['train']:.4f}, test {entry['test']:.4f}"
            interval = f"[{entry['gap_low']:+.4f}, {entry['gap_high']:+.4f}]"
            parts.append(plot.dot(point, color, f"{name}, {title}: {entry['gap']:+.4f} {interval}; {losses}"))
        ends.append(plot.position(points[-1])[1])
    for name, color, y in zip(models, _colors(models), spread(ends, LABEL_GAP, HEIGHT - 44), strict=True):
        label = text(x_axis.position(len(bins) - 1) + 9, y + 4, name, bold=True, size=LABEL_SIZE)
        parts.append(f'<g fill="{color}" {HALO}>{label}</g>')
    return svg(GAP_WIDTH, HEIGHT, f"test loss minus training loss by frequency: {', '.join(models)}", parts)


def _colors(models: Mapping[str, Any]) -> list[str]:
    return [COLORS[number % len(COLORS)] for number in range(len(models))]


def draw_embeddings(embeddings: Mapping[str, Any]) -> str:
    """Draw the features of a field: the larger a dot, the more frequent; the color shows the click rate."""
    features = embeddings["features"]
    rates = [feature["click_rate"] for feature in features]
    low, high = (float(np.quantile(rates, share)) for share in (0.1, 0.9))
    most = max(feature["rows"] for feature in features)
    x_axis, y_axis = (
        Axis((min(values), max(values)), begin, end)
        for values, begin, end in (
            ([feature["x"] for feature in features], 24, WIDTH - 24),
            ([feature["y"] for feature in features], HEIGHT - 40, 44),
        )
    )
    title = f"{shortened(embeddings['field'], 24)}, {embeddings['variance']:.0%} of the variance"
    frame = f'<rect x="1" y="22" width="{WIDTH - 2}" height="{HEIGHT - 44}" fill="none" class="grid" stroke="#ddd"/>'
    parts = [text(0, 14, title, bold=True), frame]
    for feature in features:
        x, y = x_axis.position(feature["x"]), y_axis.position(feature["y"])
        share = min(max((feature["click_rate"] - low) / max(high - low, 1e-12), 0.0), 1.0)
        tooltip = f"{feature['value']}: {feature['rows']:,.0f} rows, click rate {feature['click_rate']:.1%}"
        radius = 2 + 7 * math.sqrt(feature["rows"] / most)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{_mixed(share)}" fill-opacity=".75">'
            f"<title>{escaped(tooltip)}</title></circle>"
        )
    for feature in features[:NAMED_FEATURES]:
        x, y = x_axis.position(feature["x"]), y_axis.position(feature["y"])
        anchor = "start" if x < WIDTH / 2 else "end"
        label = text(x + (8 if anchor == "start" else -8), y - 6, shortened(feature["value"]), anchor, size=10)
        parts.append(f"<g {HALO}>{label}</g>")
    legend = f"click rate: blue {low:.1%} or less, orange {high:.1%} or more"
    parts.append(text(0, HEIGHT - 4, legend, size=LABEL_SIZE))
    return svg(WIDTH, HEIGHT, f"embeddings of {len(features)} features of {embeddings['field']}", parts)


def _mixed(share: float) -> str:
    """Return a color between those of a low and a high click rate."""
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(LOW, HIGH, strict=True))
