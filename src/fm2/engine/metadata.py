"""What a compiled file says of its model. The file may be anyone's, so nothing of it is taken on trust."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fm2.errors import Fm2Error
from fm2.models.registry import get_spec, is_model
from fm2.schema import Schema

LINEAR = ("features", "fields", "both")
MOST_BITS, LONGEST_PLAN = 30, 200


def read_description(
    text: bytes, columns: Sequence[str], sizes: Sequence[int], path: Path
) -> tuple[dict[str, Any], Schema]:
    """Read the description of a model with such columns and sizes of fields, and the schema in it."""
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise _useless(path, f"its description cannot be read: {wrong}") from wrong
    if not isinstance(meta, dict):
        raise _useless(path, f"its description is a {type(meta).__name__}")
    schema = _schema(meta, columns, len(sizes), path)
    wrong_part = _wrong_part(meta, list(sizes))
    if wrong_part:
        raise _useless(path, f"its description has no {wrong_part} that can be")
    return meta, schema


def _schema(meta: dict[str, Any], columns: Sequence[str], fields: int, path: Path) -> Schema:
    """Read the schema, which has to be that of the file's encoder."""
    try:
        schema = Schema.from_dict(meta["schema"])
    except (Fm2Error, KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise _useless(path, f"its schema is none: {wrong}") from wrong
    if len(schema.fields) != fields or list(schema.source_columns[1:]) != list(columns):
        raise _useless(path, "its schema has other columns than its encoder")
    return schema


def _wrong_part(meta: dict[str, Any], sizes: list[int]) -> str | None:
    """Name what is missing or cannot be of a model with such fields, if anything."""
    plan, measured, config = meta.get("plan"), meta.get("measured"), meta.get("model")
    if not (isinstance(plan, str) and len(plan) <= LONGEST_PLAN):
        return "plan"
    if not (isinstance(measured, dict) and all(type(time) in (int, float) for time in measured.values())):
        return "measured times"
    if not isinstance(config, dict) or not is_model(config.get("model")):
        return "model"
    if get_spec(config["model"]).compile_plan is None:
        return "model"
    if not sizes or config.get("field_sizes") != sizes:
        return "field_sizes"
    return _wrong_shape(config, len(sizes))


def _wrong_shape(config: dict[str, Any], fields: int) -> str | None:
    spec, dims, pruned, signs = (
        get_spec(config["model"]),
        config.get("dims"),
        config.get("pruned", []),
        config.get("signs"),
    )
    if "hash_bits" in spec.option_names and not _is_number(config.get("hash_bits"), MOST_BITS):
        return "hash_bits"
    if spec.dimensions == "scalar" and not _is_number(config.get("dim")):
        return "dim"
    if not spec.has_field_matrices:
        return "dims" if dims is not None or signs or pruned else None
    alike = spec.dimensions == "per_field" or (isinstance(dims, list) and dims == dims[:1] * len(dims))
    if not (isinstance(dims, list) and len(dims) == fields and alike and all(map(_is_number, dims))):
        return "dims"
    if config.get("linear") not in LINEAR:
        return "linear part"
    if not (isinstance(pruned, list) and all(_is_pair(pair, fields) for pair in pruned)):
        return "pruned pairs"
    if len({(i, j) for i, j in pruned}) < len(pruned):
        return "pruned pairs"
    ours = spec.interaction == "constant" and isinstance(signs, list) and len(signs) == dims[0]
    return None if not signs or (ours and all(sign in (1, -1) for sign in signs)) else "signs"


def _is_number(value: Any, most: int = 1 << 31) -> bool:
    return type(value) is int and 1 <= value <= most


def _is_pair(value: Any, fields: int) -> bool:
    two = isinstance(value, list) and len(value) == 2 and all(type(one) is int for one in value)
    return two and 0 <= value[0] < value[1] < fields


def _useless(path: Path, why: str) -> Fm2Error:
    return Fm2Error(f"load: {path} is no model that can be used: {why}")
