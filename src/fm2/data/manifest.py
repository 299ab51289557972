"""The manifest of a dataset, manifest.json. The file may be damaged, so all that fm2 reads from it is checked."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

from fm2.data.splits import SPLITS
from fm2.errors import Fm2Error, not_found

FORMAT = "fm2 dataset"
VERSION = 1
PARTS_VERSION = 2  # of a dataset with the entry "parts", which has several files for each array of a split
PARTS = "parts"
MANIFEST = "manifest.json"
LARGEST_SIZE = 1 << 31  # ids are int32
INVALID = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check the manifest of the dataset in a directory. All its files must exist and have the right size."""
    try:
        manifest: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        format = f"{manifest['format']} {manifest['version']}"
    except (OSError, *INVALID) as error:
        if not path.exists():
            raise not_found("dataset", path, "fm2 prepare creates one", "directory") from error
        if (path / "model.safetensors").is_file():
            raise Fm2Error(f"{path} is a run, not a prepared dataset; fm2 inspect describes runs") from error
        raise Fm2Error(
            f"{path} is not a prepared dataset (no readable {MANIFEST}); create one with fm2 prepare"
        ) from error
    if format not in (f"{FORMAT} {VERSION}", f"{FORMAT} {PARTS_VERSION}"):
        read = f"'{FORMAT} {VERSION}' and '{FORMAT} {PARTS_VERSION}'"
        raise Fm2Error(f"{path} has the format '{format}'; this version of fm2 reads {read}")
    try:
        _check(manifest)
    except INVALID as error:
        raise Fm2Error(f"{path} is damaged: {MANIFEST}: invalid or missing {error}") from error
    for name, entry in manifest["files"].items():
        file = path / name
        if not file.is_file() or file.stat().st_size != entry["bytes"]:
            raise Fm2Error(f"{path} is damaged: {name} is missing or its size has changed")
    return manifest


def negative_rate(manifest: dict[str, Any]) -> float:
    """Return the share of the training rows without a click that were kept."""
    return float(manifest["settings"].get("negative_rate", 1.0))


def impressions(totals: dict[str, Any]) -> int:
    """Return the number of rows of a split, or of impressions if its rows are aggregated."""
    return int(totals.get("impressions", totals["rows"]))


def counted_splits(manifest: dict[str, Any]) -> list[str]:
    """Return the splits whose values the vocabularies count."""
    return [*SPLITS] if manifest["settings"]["vocabulary"] == "all" else ["train"]


def array_files(manifest: dict[str, Any], name: str) -> list[str]:
    """Return the files of an array of a split, such as ``train/ids.npy``: one, or one per part of the dataset.

    >>> array_files({"parts": 2}, "train/ids.npy")
    ['parts/0/train/ids.npy', 'parts/1/train/ids.npy']
    """
    if PARTS not in manifest:
        return [name]
    return [f"{PARTS}/{number}/{name}" for number in range(manifest[PARTS])]


def _check(manifest: dict[str, Any]) -> None:
    """Raise an error that names the first invalid value."""
    parts = manifest.get(PARTS, 1)
    _expect(_is_count(parts) and 1 <= parts <= len(manifest["files"]), PARTS)
    for name, entry in manifest["files"].items():
        within = not PurePosixPath(name).is_absolute() and ".." not in PurePosixPath(name).parts
        _expect(within and _is_count(entry["bytes"]) and isinstance(entry["sha256"], str), f"files: {name}")
    for split in SPLITS:
        totals = manifest["splits"][split]
        for name in {"rows", "clicks", *totals}:
            whole = name in ("rows", "clicks", "impressions")
            _expect(_is_count(totals[name]) if whole else _is_number(totals[name]), f"splits: {split}: {name}")
    _expect(isinstance(manifest["fields"], list) and manifest["fields"], "fields")
    for entry in manifest["fields"]:
        _check_field(entry)
    _check_counts(manifest["bad_rows"], "bad_rows", "count")
    settings = manifest["settings"]
    _expect(isinstance(settings["vocabulary"], str), "settings: vocabulary")
    _expect(
        _is_number(settings.get("negative_rate", 1)) and 0 < negative_rate(manifest) <= 1, "settings: negative_rate"
    )
    _expect(_is_count(settings.get("dropped_rows", 0)), "settings: dropped_rows")


def _check_field(entry: dict[str, Any]) -> None:
    name = f"fields: {entry['name']}"
    _expect(isinstance(entry["name"], str), "fields: name")
    _expect(_is_count(entry["features"]) and 1 <= entry["features"] <= LARGEST_SIZE, f"{name}: features")
    _expect(_is_count(entry["dropped"]), f"{name}: dropped")
    _check_counts(entry["unknown"], f"{name}: unknown", *SPLITS)
    if "lists" in entry:
        for kind in ("values", "empty", "missing"):
            _check_counts(entry["lists"][kind], f"{name}: lists: {kind}", *SPLITS)


def _check_counts(counts: dict[str, Any], what: str, *required: str) -> None:
    for name in {*required, *counts}:
        _expect(_is_count(counts[name]), f"{what}: {name}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < float("inf")


def _expect(valid: Any, what: str) -> None:
    if not valid:
        raise ValueError(what)
