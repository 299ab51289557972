"""The metadata of a compiled model. The file may come from anyone, so nothing in it is trusted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from fm2 import _native
from fm2.errors import Fm2Error
from fm2.models.choices import MatrixForm
from fm2.models.registry import get_spec, is_model
from fm2.models.spec import ModelSpec
from fm2.schema import Schema

LINEAR = ("features", "fields", "both")
MAX_HASH_BITS, MAX_TITLE = 30, 200
COUNTS = ("parameters", "flops")

Check = tuple[str, bool]  # the name of a value, and whether it is valid


def read_metadata(native: _native.Compiled, path: Path) -> tuple[dict[str, Any], Schema]:
    """Read the metadata of an open model, and check that it matches the encoder and the plan.

    Return it with its schema.
    """
    try:
        meta = json.loads(native.section("meta"))
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"its metadata is not JSON: {error}") from error
    if not isinstance(meta, dict):
        raise _invalid(path, f"its metadata is a {type(meta).__name__}, not an object")
    schema = _read_schema(meta, native, path)
    for name, valid in _checks(meta, native.sizes):
        if not valid:
            raise _invalid(path, f"missing or invalid {name} in its metadata")
    return meta, schema


def _read_schema(meta: dict[str, Any], native: _native.Compiled, path: Path) -> Schema:
    """Read the schema, which has to match the file's encoder."""
    try:
        schema = Schema.from_dict(meta["schema"])
    except (Fm2Error, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _invalid(path, f"invalid schema: {error}") from error
    if len(schema.fields) != len(native.sizes) or list(schema.feature_columns) != native.columns:
        raise _invalid(path, "its schema and its encoder have different columns")
    if [field.is_list for field in schema.fields] != native.lists:
        raise _invalid(path, "its schema and its plan have different multi-valued fields")
    if list(map(list, schema.parts)) != native.parts:
        raise _invalid(path, "its schema and its encoder have different crosses or trees")
    return schema


def _checks(meta: dict[str, Any], sizes: list[int]) -> Iterator[Check]:
    """Check the values one by one. A check may rely on those before it."""
    plan, measured, config = meta.get("plan"), meta.get("measured"), meta.get("model")
    rate = meta.get("negative_rate", 1.0)
    yield "negative_rate", type(rate) in (int, float) and 0 < rate <= 1
    yield "plan", isinstance(plan, str) and len(plan) <= MAX_TITLE
    yield "measured", isinstance(measured, dict) and all(type(time) in (int, float) for time in measured.values())
    yield "model", isinstance(config, dict) and is_model(config.get("model"))
    assert isinstance(config, dict)
    spec = get_spec(config["model"])
    yield "model", spec.compile_plan is not None
    yield "field_sizes", bool(sizes) and config.get("field_sizes") == sizes
    if spec.is_network:
        yield from _network_checks(meta, config, len(sizes))
    else:
        yield from _matrix_checks(spec, config, len(sizes)) if spec.has_field_matrices else _other_checks(spec, config)


def _network_checks(meta: dict[str, Any], config: dict[str, Any], fields: int) -> Iterator[Check]:
    """Check the settings of a network that are read again; its layers are checked with the plan."""
    dims, counts = config.get("dims"), meta.get("counts")
    yield "dims", isinstance(dims, list) and len(dims) == fields and all(map(_is_count, dims))
    yield "counts", isinstance(counts, dict) and all(_is_count(counts.get(name), 1 << 62) for name in COUNTS)


def _matrix_checks(spec: ModelSpec, config: dict[str, Any], fields: int) -> Iterator[Check]:
    """Check the settings of a model with field matrices."""
    dims, pruned, signs = config.get("dims"), config.get("pruned", []), config.get("signs")
    yield "dims", isinstance(dims, list) and len(dims) == fields and all(map(_is_count, dims))
    assert isinstance(dims, list)
    yield "dims", spec.dimensions == "per_field" or len(set(dims)) == 1
    yield "linear", config.get("linear") in LINEAR
    yield "matrices", config.get("matrices", "full") in (get_args(MatrixForm) if spec.has_full_matrices else ("full",))
    yield "pruned", isinstance(pruned, list) and all(_is_pair(pair, fields) for pair in pruned)
    yield "pruned", len({(i, j) for i, j in pruned}) == len(pruned)
    if signs:
        yield "signs", spec.interaction == "constant" and isinstance(signs, list) and len(signs) == dims[0]
        yield "signs", all(sign in (1, -1) for sign in signs)


def _other_checks(spec: ModelSpec, config: dict[str, Any]) -> Iterator[Check]:
    """Check the settings of a model without field matrices."""
    yield "hash_bits", "hash_bits" not in spec.option_names or _is_count(config.get("hash_bits"), MAX_HASH_BITS)
    yield "dim", spec.dimensions != "scalar" or _is_count(config.get("dim"))
    yield "dims", "dims" not in config
    yield "pruned", config.get("pruned", []) == []
    yield "signs", not config.get("signs")


def _is_count(value: Any, maximum: int = 1 << 31) -> bool:
    return type(value) is int and 1 <= value <= maximum


def _is_pair(value: Any, fields: int) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2 and all(type(field) is int for field in value)
    return is_pair and 0 <= value[0] < value[1] < fields


def _invalid(path: Path, reason: str) -> Fm2Error:
    return Fm2Error(f"load: {path}: not a valid compiled model: {reason}")
