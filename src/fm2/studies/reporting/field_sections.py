"""The section on fields: what pairs of them tell, what the model spends on them, and how strongly they interact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fm2.studies.reporting.fields import VARIANCE, Dimensions, Information, likeness
from fm2.studies.reporting.maps import draw_bars, draw_map
from fm2.studies.reporting.markup import figure, folded, table
from fm2.studies.reporting.mutual_information import Matrix, rank_correlation

MOST_FIELDS = 60  # in a map: more cells than that are no longer seen
LISTED = 12


def most_telling(information: Information, fields: int) -> list[int]:
    """Choose the fields to show, in their order: all, or those whose best pair is among the best."""
    if fields <= MOST_FIELDS:
        return list(range(fields))
    value = information.beyond.max(axis=1)
    return sorted(np.argsort(-value, kind="stable")[:MOST_FIELDS].tolist())


def information_figure(
    names: Sequence[str], information: Information, dimensions: Dimensions | None, shown: Sequence[int]
) -> str:
    """Show the mutual information of pairs, and beside it the cross dimensions: the paper's figures 7 and 8."""
    some = np.ix_(shown, shown)
    plain, chance = information.plain[some], information.chance[some]
    few = [names[field] for field in shown]

    def said(i: int, j: int) -> str:
        both = few[i] if i == j else f"{few[i]} × {few[j]}"
        return f"{both}: {plain[i, j]:.5f} nats, of which chance gives {chance[i, j]:.5f}"

    pictures = [draw_map("information", "nats", few, plain, said)]
    title = "Mutual information of pairs of fields with the label"
    if dimensions is not None:
        cross = dimensions.cross[some]
        pictures.append(
            draw_map("min(Dᵢ, Dⱼ)", "dimensions", few, cross, lambda i, j: f"{few[i]} × {few[j]}: {cross[i, j]:g}")
        )
        title += ", and cross dimensions"
    return figure(
        title,
        pictures,
        _read_information(information, dimensions, few, len(names)),
        _pairs(names, information, dimensions),
    )


def _read_information(information: Information, dimensions: Dimensions | None, few: Sequence[str], fields: int) -> str:
    rows = (
        f"{information.rows:,}" if information.rows == information.of else f"{information.rows:,} of {information.of:,}"
    )
    said = f"Darker pairs tell more of the label of {rows} training rows; on the diagonal is what one field tells alone"
    if dimensions is not None:
        plain, corrected = likeness(information, dimensions.cross)
        if plain is not None and corrected is not None:
            said += (
                f". What a pair tells and the dimensions it gets have the rank correlation {plain:.2f} "
                f"({corrected:.2f} without the part of the information that chance would give)"
            )
        else:
            said += ". All pairs tell the same or have the same dimension, so there is no rank correlation"
    less = f" The map has the {len(few)} most telling of {fields} fields." if len(few) < fields else ""
    return f"{said}.{less}"


def _pairs(names: Sequence[str], information: Information, dimensions: Dimensions | None) -> str:
    beyond = information.beyond
    rows = [
        (
            f"{names[i]} × {names[j]}",
            f"{information.plain[i, j]:.5f}",
            f"{information.chance[i, j]:.5f}",
            f"{beyond[i, j]:.5f}",
            *([] if dimensions is None else [f"{dimensions.cross[i, j]:g}"]),
        )
        for i, j in strongest(beyond)
    ]
    headings = ("pair", "nats", "by chance", "beyond chance", *([] if dimensions is None else ["min(Dᵢ, Dⱼ)"]))
    return folded("The pairs that tell most beyond chance", table(headings, rows))


def strongest(values: Matrix) -> list[tuple[int, int]]:
    """Give the pairs whose values are the highest, the highest first.

    >>> strongest(np.array([[9.0, 1.0, 3.0], [1.0, 9.0, 2.0], [3.0, 2.0, 9.0]]))
    [(0, 2), (1, 2), (0, 1)]
    """
    above = np.triu_indices(len(values), 1)
    order = np.argsort(-values[above], kind="stable")[:LISTED]
    return [(int(above[0][place]), int(above[1][place])) for place in order]


def dimensions_figure(names: Sequence[str], sizes: Sequence[int], dimensions: Dimensions) -> str:
    """Show the dimension of every field."""
    needed, most = dimensions.needed, max(dimensions.own)
    said = [
        f"{name}: {dim} dimensions, {size:,} features" for name, size, dim in zip(names, sizes, needed, strict=True)
    ]
    average, few = sum(needed) / len(needed), sum(2 * dim <= most for dim in needed)
    if dimensions.found:
        title = f"Dimensions that keep {VARIANCE:.0%} of the variance, of {most}"
        reading = f"fm2 shrink would leave {average:.2f} dimensions on average"
    else:
        title, reading = "Dimensions of the model", f"The model has {average:.2f} dimensions on average"
    reading += f"; for {few} of {len(needed)} fields, half of {most} or fewer are enough."
    return figure("Dimensions per field", [draw_bars(title, names, needed, most, said)], reading)


def strengths_figure(
    names: Sequence[str], information: Information, model: str, strengths: Matrix | None, shown: Sequence[int]
) -> str:
    """Show what fields tell only together, and beside it how strongly they interact in the model."""
    some, few = np.ix_(shown, shown), [names[field] for field in shown]
    together = information.together
    pictures = [_map("told only together", "nats", few, together[some])]
    title = "What two fields tell only together"
    reading = "Darker pairs tell more of the label, beyond chance, than their two fields tell each alone"
    if strengths is None:
        return figure(title, pictures, f"{reading}.")
    pictures.append(_map("strength", "logits", few, strengths[some]))
    pairs, above = strongest(np.nan_to_num(strengths)), np.triu_indices(len(names), 1)
    (i, j), like = pairs[0], rank_correlation(together[above], strengths[above])
    if like is not None:
        reading += f", and strength has the rank correlation {like:.2f} with it"
    reading += (
        ". The strength is the standard deviation of what a pair adds to the logit beyond either field alone, by which "
        f"fm2 prune chooses: in {model}, {names[i]} × {names[j]} has the most, {strengths[i, j]:.3f}, and a tenth of "
        f"the pairs has {_held_by_a_tenth(strengths[above]):.0%} of the variance."
    )
    rows = [(f"{names[i]} × {names[j]}", f"{strengths[i, j]:.4f}") for i, j in pairs]
    strong = folded("The strongest pairs", table(("pair", "logits"), rows))
    return figure(f"{title}, and strengths of pairs", pictures, reading, strong)


def _map(title: str, unit: str, names: Sequence[str], values: Matrix) -> str:
    return draw_map(title, unit, names, values, lambda i, j: f"{names[i]} × {names[j]}: {values[i, j]:.5f} {unit}")


def _held_by_a_tenth(strengths: Matrix) -> float:
    """Give the share of the variance that the strongest tenth of the pairs has."""
    squares = np.sort(strengths**2)[::-1]
    return float(squares[: max(round(len(squares) / 10), 1)].sum() / max(squares.sum(), 1e-300))
