"""Describe a prepared dataset, as a dict or as printed tables."""

from __future__ import annotations

import os
from typing import Any

from fm2.data.bad_rows import BAD_ROWS
from fm2.data.dataset import Dataset
from fm2.data.vocabulary import Vocabulary
from fm2.errors import require

MOST_FREQUENT = 3
PIPED_WIDTH = 160


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return rows and click rate of each split, and kind, features, unknown share and frequent values of each field."""
    splits = {
        name: {**entry, "click_rate": entry["clicks"] / entry["rows"] if entry["rows"] else None}
        for name, entry in dataset.manifest["splits"].items()
    }
    rows = sum(entry["rows"] for entry in splits.values())
    counted_rows = rows if dataset.manifest["settings"]["vocabulary"] == "all" else splits["train"]["rows"]
    fields = [
        {
            "name": field.name,
            "kind": field.kind,
            "how": field.transform or field.part or (f"hash, {field.hash_bits} bits" if field.hash_bits else ""),
            "features": entry["features"] - 1,  # without the unknown feature
            "dropped": entry["dropped"],
            "unknown": {
                name: count / splits[name]["rows"] if splits[name]["rows"] else None
                for name, count in entry["unknown"].items()
            },
            "most_frequent": _most_frequent(vocabulary, counted_rows),
        }
        for field, entry, vocabulary in zip(
            dataset.schema.fields, dataset.manifest["fields"], dataset.vocabularies, strict=True
        )
    ]
    return {"path": str(dataset.path), "splits": splits, "fields": fields, "bad_rows": dataset.manifest["bad_rows"]}


def _most_frequent(vocabulary: Vocabulary, rows: int) -> list[dict[str, Any]]:
    order = vocabulary.counts.argsort(kind="stable")[::-1] if vocabulary.hashed else range(len(vocabulary.counts))
    return [
        {"value": vocabulary.value(int(index) + 1), "share": int(vocabulary.counts[index]) / rows}
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
    features = sum(field["features"] for field in description["fields"])
    summary = f"\n{len(description['fields'])} fields, {features:,} features, in {description['path']}"
    console.print(summary, highlight=False, markup=False)
    reasons = dict(description["bad_rows"])
    skipped = reasons.pop("count")
    if skipped:
        share = skipped / (skipped + sum(entry["rows"] for entry in description["splits"].values()))
        counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.items() if count)
        console.print(f"{skipped:,} bad rows ({share:.1%}) were skipped ({counts}); see {BAD_ROWS}")


def _split_table(splits: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("split", box=None, pad_edge=False)
    for heading in ("rows", "clicks", "click rate"):
        table.add_column(heading, justify="right")
    for name, entry in splits.items():
        rate = "" if entry["click_rate"] is None else f"{entry['click_rate']:.4f}"
        table.add_row(name, f"{entry['rows']:,}", f"{entry['clicks']:,}", rate)
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
        kind = f"{field['kind']} {field['how']}".strip()
        shares = [field["unknown"][split] for split in ("train", "test")]
        unknown = ["" if share is None else f"{share:.1%}" for share in shares]
        counts = (f"{field['features']:,}", f"{field['dropped']:,}", *unknown)
        table.add_row(Text(field["name"]), kind, *counts, Text(values, no_wrap=True, overflow="ellipsis"))
    return table
