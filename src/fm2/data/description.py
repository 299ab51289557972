"""What a prepared data set holds, for people and for programs."""

from __future__ import annotations

import os
from typing import Any

from fm2.data.dataset import Dataset
from fm2.data.vocabulary import Vocabulary
from fm2.errors import require

MOST_FREQUENT = 3
PIPED_WIDTH = 160


def describe(dataset: Dataset) -> dict[str, Any]:
    """Tell each split's rows and click rate, and each field's kind, features, unknown share and frequent values."""
    splits = {
        name: {**entry, "click_rate": entry["clicks"] / entry["rows"] if entry["rows"] else None}
        for name, entry in dataset.manifest["splits"].items()
    }
    rows = sum(entry["rows"] for entry in splits.values())
    counted = rows if dataset.manifest["settings"]["vocabulary"] == "all" else splits["train"]["rows"]
    fields = [
        {
            "name": field.name,
            "kind": field.kind,
            "how": field.transform or field.part or (f"hash, {field.hash_bits} bits" if field.hash_bits else ""),
            "features": entry["features"] - 1,  # those kept; the unknown one is not among them
            "dropped": entry["dropped"],
            "unknown": {
                name: count / splits[name]["rows"] if splits[name]["rows"] else None
                for name, count in entry["unknown"].items()
            },
            "most_frequent": _most_frequent(vocabulary, counted),
        }
        for field, entry, vocabulary in zip(
            dataset.schema.fields, dataset.manifest["fields"], dataset.vocabularies, strict=True
        )
    ]
    return {"path": str(dataset.path), "splits": splits, "fields": fields, "bad_rows": dataset.manifest["bad_rows"]}


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _most_frequent(vocabulary: Vocabulary, rows: int) -> list[dict[str, Any]]:
    order = vocabulary.counts.argsort(kind="stable")[::-1] if vocabulary.hashed else range(len(vocabulary.counts))
    return [
        {"value": vocabulary.value(int(place) + 1), "share": int(vocabulary.counts[place]) / rows}
        for place in list(order[:MOST_FREQUENT])
        if vocabulary.counts[place]
    ]


def print_description(description: dict[str, Any], console: Any = None) -> None:
    """Print what :func:`describe` told, as tables."""
    require("rich", "train", "printing tables")
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = console or Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    splits = Table("split", box=None, pad_edge=False)
    for heading in ("rows", "clicks", "click rate"):
        splits.add_column(heading, justify="right")
    for name, entry in description["splits"].items():
        rate = "" if entry["click_rate"] is None else f"{entry['click_rate']:.4f}"
        splits.add_row(name, f"{entry['rows']:,}", f"{entry['clicks']:,}", rate)
    fields = Table(box=None, pad_edge=False)
    for heading in ("field", "kind"):
        fields.add_column(heading, no_wrap=True)
    for heading in ("features", "dropped", "unknown", "in test"):
        fields.add_column(heading, justify="right", no_wrap=True)
    fields.add_column("most frequent values")
    for field in description["fields"]:
        values = ", ".join(f"{_shown(entry['value'])} {entry['share']:.0%}" for entry in field["most_frequent"])
        kind = f"{field['kind']} {field['how']}".strip()
        unknown = [_percent(field["unknown"][split]) for split in ("train", "test")]
        numbers = (f"{field['features']:,}", f"{field['dropped']:,}", *unknown)
        fields.add_row(Text(field["name"]), kind, *numbers, Text(values, no_wrap=True, overflow="ellipsis"))
    console.print(splits, "", fields, sep="\n")
    features = sum(field["features"] for field in description["fields"])
    summary = f"\n{len(description['fields'])} fields, {features:,} features, in {description['path']}"
    console.print(summary, highlight=False, markup=False)
    bad = {reason: count for reason, count in description["bad_rows"].items() if count}
    if bad:
        skipped = bad.pop("count")
        share = skipped / (skipped + sum(entry["rows"] for entry in description["splits"].values()))
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in bad.items())
        console.print(f"{skipped:,} bad rows were skipped, {share:.1%} of all ({reasons}); bad_rows.tsv tells why")


def _shown(value: str | None) -> str:
    return "(missing)" if value is None else repr(value)[1:-1]
