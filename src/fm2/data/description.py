"""Describe a prepared dataset, as a dict or as printed tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from fm2.data.bad_rows import BAD_ROWS
from fm2.data.dataset import Dataset
from fm2.data.manifest import counted_splits, impressions
from fm2.data.number_ranges import feature_text
from fm2.data.row_identifiers import is_nearly_unique
from fm2.data.vocabulary import Vocabulary
from fm2.errors import printable, require
from fm2.schema import Field

MOST_FREQUENT = 3
PIPED_WIDTH = 160


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return rows and click rate of each split, and kind, features, unknown share and frequent values of each field.

    The features of a field include the unknown one. The values of numbers are the ranges of their buckets.
    The shares of a multi-valued field are shares of its values. ``lists`` has their number per row, and the shares of
    empty and missing lists; ``single`` says that no list has more than one value, as with a wrong separator. A field is
    ``nearly_unique`` if there are nearly as many values as training rows.
    """
    splits = {name: {**entry, "click_rate": _click_rate(entry)} for name, entry in dataset.manifest["splits"].items()}
    rows = {name: impressions(entry) for name, entry in splits.items()}
    counted = counted_splits(dataset.manifest)
    fields = [
        _describe_field(field, entry, vocabulary, rows, counted)
        for field, entry, vocabulary in zip(
            dataset.schema.fields, dataset.manifest["fields"], dataset.vocabularies, strict=True
        )
    ]
    sampled = {"negative_rate": dataset.negative_rate} if dataset.negative_rate != 1 else {}
    bad_rows = dataset.manifest["bad_rows"]
    return {"path": str(dataset.path), "splits": splits, **sampled, "fields": fields, "bad_rows": bad_rows}


def _click_rate(totals: dict[str, Any]) -> float | None:
    """Return the click rate of a split as a model sees it: weighted, and per impression."""
    if "weight" in totals:
        clicks, rows = totals["weighted_clicks"], totals["weight"]
    else:
        clicks, rows = totals["clicks"], impressions(totals)
    return clicks / rows if rows else None


def kind_name(field: Field) -> str:
    """Return what a field is, in one word."""
    special = {"multi-valued": field.multivalued, "cross": field.cross, "trees": field.trees}
    return next((name for name, applies in special.items() if applies), field.kind)


def _describe_field(
    field: Field, entry: dict[str, Any], vocabulary: Vocabulary, rows: dict[str, int], counted: Sequence[str]
) -> dict[str, Any]:
    lists = entry.get("lists")
    values = lists["values"] if lists else rows  # by split
    how = [" × ".join(field.cross), field.transform or field.part or ""]
    how += [f"on {len(field.trees)} fields"] if field.trees else []
    how += [f"hash, {field.hash_bits} bits"] if field.hash_bits else []
    description = {
        "name": field.name,
        "kind": kind_name(field),
        "how": ", ".join(filter(None, how)),
        "features": entry["features"],
        "dropped": entry["dropped"],
        "unknown": {name: count / values[name] if values[name] else None for name, count in entry["unknown"].items()},
        "most_frequent": _most_frequent(field, vocabulary, sum(values[name] for name in counted)),
    }
    if is_nearly_unique(field, entry["features"] - 1 + entry["dropped"], sum(rows[name] for name in counted)):
        description["nearly_unique"] = True
    if lists and field.multivalued:
        values_total, empty, missing = (sum(lists[name].values()) for name in ("values", "empty", "missing"))
        total = max(sum(rows.values()), 1)
        description["lists"] = {
            "values_per_row": (values_total - missing) / total,  # a missing list has one value, the missing value
            "empty": empty / total,
            "missing": missing / total,
            "single": bool(values_total) and values_total == total - empty,
        }
    return description


def _most_frequent(field: Field, vocabulary: Vocabulary, counted: int) -> list[dict[str, Any]]:
    counted = max(counted, 1)  # a damaged manifest may say that there are no values
    order = (
        vocabulary.counts.argsort(kind="stable")[::-1]
        if vocabulary.hashed or field.trees
        else range(len(vocabulary.counts))
    )
    return [
        {"value": feature_text(field, vocabulary, int(index) + 1), "share": int(vocabulary.counts[index]) / counted}
        for index in list(order[:MOST_FREQUENT])
        if vocabulary.counts[index]
    ]


def print_description(description: dict[str, Any], console: Any = None) -> None:
    """Print the result of :func:`describe`."""
    require("rich", "train", "printing tables")
    from rich.console import Console

    console = console or Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    console.print(_split_table(description["splits"]), "", _field_table(description["fields"]), sep="\n")
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)  # the terminal wraps sentences
    fields = len(description["fields"])
    features = sum(field["features"] for field in description["fields"])
    say(f"\n{fields} fields, {features:,} features (including one unknown per field), in {description['path']}")
    if "negative_rate" in description:
        rate = description["negative_rate"]
        say(f"train has {rate:g} of its rows without a click; models correct their bias for that")
    for field in description["fields"]:
        name = printable(field["name"])
        if field.get("nearly_unique"):
            problem = f"{field['features'] - 1 + field['dropped']:,} values are nearly as many as rows"
            say(f"warning: {name}: {problem}; remove the field from the schema, or use a coarser value")
        if unknown := [split for split, share in field["unknown"].items() if share == 1]:
            problem = f"all values in {' and '.join(unknown)} are unknown"
            say(f"warning: {name}: {problem}; check the order of the rows and min_count, or use a coarser value")
        if "lists" in field:
            shares = [f"{field['lists'][name]:.1%} of the lists are {name}" for name in ("empty", "missing")]
            say(f"{name}: {', '.join(shares)}")
            if field["lists"]["single"]:
                say(f"warning: {name}: no list has more than one value; check the separator in the schema")
    reasons = dict(description["bad_rows"])
    skipped = reasons.pop("count")
    if skipped:
        share = skipped / (skipped + sum(entry["rows"] for entry in description["splits"].values()))
        counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items() if count)
        say(f"{skipped:,} bad rows ({share:.1%}) were skipped ({counts}); see {BAD_ROWS}")


def _split_table(splits: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("split", box=None, pad_edge=False)
    totals = [total for total in ("rows", "impressions", "clicks", "weight") if total in splits["train"]]
    for heading in (*totals, "click rate"):
        table.add_column(heading, justify="right")
    for name, entry in splits.items():
        rate = "" if entry["click_rate"] is None else f"{entry['click_rate']:.4f}"
        table.add_row(name, *(f"{entry[total]:,.0f}" for total in totals), rate)
    return table


def _field_table(fields: list[dict[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for heading in ("field", "kind"):
        table.add_column(heading, no_wrap=True)
    for heading in ("features", "dropped", "unknown", "in test"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("most frequent values")
    for field in fields:
        values = ", ".join(
            f"{'(missing)' if entry['value'] is None else repr(entry['value'])[1:-1]} {entry['share']:.0%}"
            for entry in field["most_frequent"]
        )
        kind = printable(f"{field['kind']} {field['how']}".strip())
        if "lists" in field:
            kind += f", {field['lists']['values_per_row']:.1f} values"
        shares = [field["unknown"][split] for split in ("train", "test")]
        unknown = ["" if share is None else f"{share:.1%}" for share in shares]
        counts = (f"{field['features']:,}", f"{field['dropped']:,}", *unknown)
        table.add_row(Text(printable(field["name"])), kind, *counts, Text(values, no_wrap=True, overflow="ellipsis"))
    return table
