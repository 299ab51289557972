"""Charts of differences with their confidence intervals, one row each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fm2.studies.reporting.maps import shortened
from fm2.studies.statistics import HIGHER_IS_BETTER, PairDifference, Statistics
from fm2.svg import COLORS, Axis, escaped, short_number, svg, text, text_width, ticks

WIDTH, TOP, STEP, LABEL_SIZE = 440, 30, 16, 11
LONGEST_LABEL = 18


def differences_from(statistics: Statistics, metric: str) -> list[PairDifference]:
    """Return the differences of all other models from the reference, best first."""
    measured = statistics.metrics[metric]
    names = [model for model in measured.models if model != measured.reference]
    others = [measured.difference(model, measured.reference) for model in names]
    sign = -1 if HIGHER_IS_BETTER[metric] else 1
    return sorted(others, key=lambda pair: sign * pair.difference)


def draw_differences(title: str, pairs: Sequence[PairDifference], labels: Mapping[str, str] | None = None) -> str:
    """Draw a row for every difference: a dot with its interval. Hollow dots are not significantly different from 0.

    ``labels`` are shorter names of models.
    """
    names = [shortened((labels or {}).get(pair.model, pair.model), LONGEST_LABEL) for pair in pairs]
    left = 10 + max(text_width(name, LABEL_SIZE) for name in names)
    marks = ticks(min(0.0, *(pair.low for pair in pairs)), max(0.0, *(pair.high for pair in pairs)))
    axis, bottom = Axis(marks, left + 8, WIDTH - 20), TOP + STEP * len(pairs)
    parts = [text(0, 14, title, bold=True)]
    for mark in marks:
        kind, color = ("axis", "#888") if mark == 0 else ("grid", "#ddd")
        x = axis.position(mark)
        parts.append(f'<path class="{kind}" d="M{x:.1f} {TOP - 6}V{bottom}" stroke="{color}"/>')
        parts.append(text(x, bottom + 16, short_number(mark), "middle", size=LABEL_SIZE))
    for number, (name, pair) in enumerate(zip(names, pairs, strict=True)):
        y = TOP + STEP * (number + 0.5)
        low, middle, high = (axis.position(value) for value in (pair.low, pair.difference, pair.high))
        paint = f'fill="{COLORS[0]}"' if pair.significant else f'class="hollow" fill="#fff" stroke="{COLORS[0]}"'
        parts += [
            f"<g><title>{escaped(f'{pair.model}: {pair}')}</title>",
            text(left, y + 4, name, "end", size=LABEL_SIZE),
            f'<path d="M{low:.1f} {y:.1f}H{high:.1f}" stroke="{COLORS[0]}" stroke-width="1.5"/>',
            f'<circle cx="{middle:.1f}" cy="{y:.1f}" r="3.5" {paint} stroke-width="2"/></g>',
        ]
    label = f"{title}: {', '.join(f'{pair.model} {pair.difference:+.5f}' for pair in pairs)}"
    return svg(WIDTH, bottom + 26, label, parts)
