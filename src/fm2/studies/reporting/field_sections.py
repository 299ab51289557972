"""The report's section on fields: information in pairs, embedding dimensions, and interaction strengths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fm2.studies.reporting.fields import VARIANCE, Dimensions, Information, ListLengths
from fm2.studies.reporting.maps import draw_bars, draw_map
from fm2.studies.reporting.mutual_information import Matrix, rank_correlation
from fm2.studies.reporting.page import figure, folded, paragraph, table

MOST_FIELDS = 60  # in a heat map; more cells would be too small to see
LISTED_PAIRS = 12


def most_informative(information: Information, fields: int) -> list[int]:
    """Choose the fields to show: all of them, or those with the most informative pairs."""
    if fields <= MOST_FIELDS:
        return list(range(fields))
    best_pair = information.corrected.max(axis=1)
    return sorted(np.argsort(-best_pair, kind="stable")[:MOST_FIELDS].tolist())


def information_figure(
    names: Sequence[str], information: Information, dimensions: Dimensions | None, shown: Sequence[int]
) -> str:
    """Show the mutual information of pairs next to their cross dimensions: the paper's figures 6 and 7."""
    selected, shown_names = np.ix_(shown, shown), [names[field] for field in shown]
    measured, chance = information.measured[selected], information.chance[selected]

    def tooltip(i: int, j: int) -> str:
        pair = shown_names[i] if i == j else _pair(shown_names, i, j)
        return f"{pair}: {measured[i, j]:.5f} nats, {chance[i, j]:.5f} of them expected by chance"

    charts = [draw_map("mutual information", "nats", shown_names, measured, tooltip)]
    title = "Mutual information between field pairs and the label"
    if dimensions is not None:
        cross = dimensions.cross[selected]
        charts.append(_pair_map("min(Dᵢ, Dⱼ)", "dimensions", shown_names, cross, "g"))
        title += ", and cross dimensions"
    caption = _information_caption(information, dimensions, len(shown), len(names))
    return figure(title, charts, caption, _informative_pairs(names, information, dimensions))


def _information_caption(information: Information, dimensions: Dimensions | None, shown: int, fields: int) -> str:
    rows, total = f"{information.rows:,}", f"{information.total_rows:,}"
    sample = rows if rows == total else f"a sample of {rows} of {total}"
    caption = (
        f"A stronger color means more information about the label, measured on {sample} training rows. "
        "The diagonal shows single fields."
    )
    if dimensions is not None:
        above, cross = np.triu_indices(fields, 1), dimensions.cross
        measured = rank_correlation(information.measured[above], cross[above])
        corrected = rank_correlation(information.corrected[above], cross[above])
        if measured is None or corrected is None:
            caption += " All pairs have the same information or dimension, so their rank correlation is undefined."
        else:
            caption += (
                f" The rank correlation between a pair's information and its dimension is {measured:.2f} "
                f"({corrected:.2f} after correcting for chance)."
            )
    if shown < fields:
        caption += f" The map shows the {shown} most informative of {fields} fields."
    return caption


def _informative_pairs(names: Sequence[str], information: Information, dimensions: Dimensions | None) -> str:
    matrices = [information.measured, information.chance, information.corrected]
    rows = []
    for i, j in highest_pairs(information.corrected):
        cross = [] if dimensions is None else [f"{dimensions.cross[i, j]:g}"]
        rows.append((_pair(names, i, j), *(f"{matrix[i, j]:.5f}" for matrix in matrices), *cross))
    headings = ("pair", "nats", "by chance", "beyond chance", *([] if dimensions is None else ["min(Dᵢ, Dⱼ)"]))
    return folded("Most informative pairs", table(headings, rows))


def highest_pairs(values: Matrix) -> list[tuple[int, int]]:
    """Return the pairs with the highest values, highest first.

    >>> highest_pairs(np.array([[9.0, 1.0, 3.0], [1.0, 9.0, 2.0], [3.0, 2.0, 9.0]]))
    [(0, 2), (1, 2), (0, 1)]
    """
    rows, columns = np.triu_indices(len(values), 1)
    order = np.argsort(-values[rows, columns], kind="stable")[:LISTED_PAIRS]
    return list(zip(rows[order].tolist(), columns[order].tolist(), strict=True))


def dimensions_figure(names: Sequence[str], sizes: Sequence[int], dimensions: Dimensions) -> str:
    """Show the dimension of every field."""
    needed, most = dimensions.needed, max(dimensions.trained)
    tooltips = [
        f"{name}: {dim} dimensions, {size:,} features" for name, size, dim in zip(names, sizes, needed, strict=True)
    ]
    mean, low = sum(needed) / len(needed), sum(2 * dim <= most for dim in needed)
    if dimensions.by_pca:
        title = f"dimensions that keep {VARIANCE:.0%} of the variance, out of {most}"
        caption = f"fm2 shrink would reduce the mean dimension from {most} to {mean:.2f}"
    else:
        title, caption = "embedding dimension", f"The mean dimension is {mean:.2f}"
    caption += f"; {low} of {len(needed)} fields need at most half of {most} dimensions."
    return figure("Dimensions per field", [draw_bars(title, names, needed, most, tooltips)], caption)


def lists_table(lists: Sequence[ListLengths]) -> str:
    """Show how many values the rows of multi-valued fields have."""
    rows = [
        (
            each.name,
            f"{each.features:,}",
            f"{each.mean:.2f}",
            f"{each.longest:,}",
            f"{each.empty:.1%}",
            f"{each.missing:.1%}",
        )
        for each in lists
    ]
    headings = ("multi-valued field", "features", "values per row", "most values", "empty lists", "missing lists")
    note = paragraph(
        "Mutual information counts one value per row, drawn at random: a lower bound for that of the whole list.",
        "soft",
    )
    return table(headings, rows) + note


def strengths_figure(
    names: Sequence[str], information: Information, model: str, strengths: Matrix | None, shown: Sequence[int]
) -> str:
    """Show the synergy of field pairs next to the strength of their interaction in the model."""
    selected, shown_names = np.ix_(shown, shown), [names[field] for field in shown]
    charts = [_pair_map("synergy", "nats", shown_names, information.synergy[selected])]
    title = "Synergy of field pairs"
    caption = "Synergy is the information of a pair, beyond chance, minus the information of its two fields."
    if strengths is None:
        return figure(title, charts, caption)
    charts.append(_pair_map("interaction strength", "logits", shown_names, strengths[selected]))
    pairs, above = highest_pairs(np.nan_to_num(strengths)), np.triu_indices(len(names), 1)
    (i, j), correlation = pairs[0], rank_correlation(information.synergy[above], strengths[above])
    caption += (
        " Interaction strength, the criterion of fm2 prune, is the standard deviation of what a pair adds to the logit "
        f"beyond its two fields. In {model}, {_pair(names, i, j)} is the strongest pair ({strengths[i, j]:.3f}), and "
        f"the strongest tenth of the pairs has {_variance_of_a_tenth(strengths[above]):.0%} of the variance."
    )
    if correlation is not None:
        caption += f" The rank correlation between synergy and strength is {correlation:.2f}."
    rows = [(_pair(names, i, j), f"{strengths[i, j]:.4f}") for i, j in pairs]
    strongest = folded("Strongest pairs", table(("pair", "logits"), rows))
    return figure(f"{title}, and interaction strengths", charts, caption, strongest)


def _pair(names: Sequence[str], i: int, j: int) -> str:
    return f"{names[i]} × {names[j]}"


def _pair_map(title: str, unit: str, names: Sequence[str], values: Matrix, digits: str = ".5f") -> str:
    return draw_map(title, unit, names, values, lambda i, j: f"{_pair(names, i, j)}: {values[i, j]:{digits}} {unit}")


def _variance_of_a_tenth(strengths: Matrix) -> float:
    """Return the share of the variance in the strongest tenth of the pairs."""
    squares = np.sort(strengths**2)[::-1]
    return float(squares[: max(round(len(squares) / 10), 1)].sum() / max(squares.sum(), 1e-300))
