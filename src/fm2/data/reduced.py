"""A dataset without some of its fields, as if the log did not have them."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from fm2.data.dataset import SCHEMA, VOCABULARIES, Dataset
from fm2.data.list_files import DIRECTORY, DTYPES, file_name
from fm2.data.manifest import MANIFEST, array_files
from fm2.data.npy import open_array
from fm2.data.split_files import NpyWriter
from fm2.data.splits import SPLITS
from fm2.data.vocabulary import save_vocabularies
from fm2.errors import Fm2Error, suggest
from fm2.field import PARTS, Field
from fm2.files import atomic_directory, checksum
from fm2.schema import Schema

ROWS_PER_CHUNK = 1 << 18


def dependent_fields(schema: Schema, names: Collection[str]) -> list[str]:
    """Return fields of a schema, in its order, with the crosses and trees that read them.

    >>> schema = Schema([Field("user"), Field("item"), Field("both", cross=["user", "item"])], label="click")
    >>> dependent_fields(schema, ["item"])
    ['item', 'both']
    """
    for name in names:
        if name not in schema.names:
            raise Fm2Error(f"unknown field '{name}'; {suggest(name, schema.names)}")
    dropped = set(names)
    for setting in PARTS:  # first crosses, which trees may read
        dropped |= {field.name for field in schema.fields if dropped.intersection(getattr(field, setting))}
    return [field.name for field in schema.fields if field.name in dropped]


def without_fields(dataset: Dataset, names: Collection[str], out: str | Path) -> Dataset:
    """Write a copy of a dataset without some fields, and without their crosses and trees, and open it.

    Its rows are in the same order, and its splits are the same. If fields share the embeddings of a field that is left
    out, the first of them becomes their owner. Files that stay the same are links.
    """
    dropped = dependent_fields(dataset.schema, names)
    kept = [index for index, name in enumerate(dataset.schema.names) if name not in dropped]
    if not kept:
        raise Fm2Error(f"there are no fields without {', '.join(dropped)}")
    manifest = copy.deepcopy(dataset.manifest)
    with atomic_directory(Path(out), "prepare", "dataset", MANIFEST) as directory:
        files = _write_ids(dataset, kept, directory) | _link_files(dataset, kept, directory)
        _reduced_schema(dataset.schema, kept).save(directory / SCHEMA)
        save_vocabularies(directory / VOCABULARIES, [dataset.vocabularies[index] for index in kept])
        for name in (SCHEMA, VOCABULARIES):
            files[name] = {"bytes": (directory / name).stat().st_size, "sha256": checksum(directory / name)}
        manifest |= {"fields": [manifest["fields"][index] for index in kept], "files": files}
        (directory / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")
    return Dataset.open(out)


def _write_ids(dataset: Dataset, kept: Sequence[int], directory: Path) -> dict[str, Any]:
    """Write the ids of the kept fields; return the size and checksum of each file."""
    files = {}
    for split in SPLITS:
        rows = dataset.split(split)
        names, start = array_files(dataset.manifest, f"{split}/ids.npy"), 0
        for name in names:
            ids = rows.ids[start : start + len(open_array(dataset.path / name))]
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shape = len(ids), len(kept)
            writer = NpyWriter(directory / name, shape, ids.dtype, start if len(names) > 1 else None)
            for begin in range(0, len(ids), ROWS_PER_CHUNK):
                writer.append(ids[begin : begin + ROWS_PER_CHUNK, kept])
            files[name] = writer.close()
            start += len(ids)
    return files


def _link_files(dataset: Dataset, kept: Sequence[int], directory: Path) -> dict[str, Any]:
    """Link all files that do not change; the lists of a field get its new number."""
    numbers = {file_name(old, part): file_name(new, part) for new, old in enumerate(kept) for part in DTYPES}
    files = {}
    for name, entry in dataset.manifest["files"].items():
        written = name in (SCHEMA, VOCABULARIES) or name.endswith("/ids.npy")
        if written or (name.startswith(f"{DIRECTORY}/") and name not in numbers):
            continue
        target = numbers.get(name, name)
        (directory / target).parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(dataset.path / name, directory / target)
        except OSError:  # the dataset is on another file system
            shutil.copyfile(dataset.path / name, directory / target)
        files[target] = entry
    return files


def _reduced_schema(schema: Schema, kept: Sequence[int]) -> Schema:
    """Return the schema with some of its fields; the first one that shares a missing field becomes the owner."""
    original = {field.name: field for field in schema.fields}
    names, owners = {schema.names[index] for index in kept}, dict[str, str]()
    fields: list[Field] = []
    for index in kept:
        field = schema.fields[index]
        if field.shares and field.shares not in names:
            owner = original[field.shares]
            if owners.setdefault(owner.name, field.name) == field.name:
                field = dataclasses.replace(field, shares="", min_count=owner.min_count, hash_bits=owner.hash_bits)
            else:
                field = dataclasses.replace(field, shares=owners[owner.name])
        fields.append(field)
    return schema.replace(fields=fields)
