"""The catalog of models: what each one is, its source, and whether its fields may differ in dimension."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fm2.errors import Fm2Error, require, suggest
from fm2.models.registry import model_names, specs
from fm2.models.spec import ModelSpec

PIPED_WIDTH = 160


def groups() -> dict[str, list[str]]:
    """Return the names that stand for several models."""
    return {"all": model_names(), "shallow": model_names(deep=False), "deep": model_names(deep=True)}


def chosen(models: str | Sequence[str]) -> list[str]:
    """Return the models in a list or in a comma-separated string; ``all``, ``shallow`` and ``deep`` name several.

    >>> chosen("lr,fmfm")
    ['lr', 'fmfm']
    >>> chosen("shallow,deepfm")
    ['lr', 'poly2', 'fm', 'ffm', 'fwfm', 'fvfm', 'fmfm', 'deepfm']
    """
    names = [name.strip() for name in models.split(",")] if isinstance(models, str) else list(models)
    known = {**groups(), **{name: [name] for name in model_names()}}
    for name in names:
        if name not in known:
            raise Fm2Error(f"compare: unknown model '{name}'; {suggest(name, known)}")
    if not names:
        raise Fm2Error("compare: models is empty; 'shallow' selects the paper's models, 'all' selects every model")
    return list(dict.fromkeys(model for name in names for model in known[name]))


def as_dicts() -> list[dict[str, Any]]:
    """Return the catalog in plain values."""
    return [
        {
            "name": spec.name,
            "title": spec.title,
            "summary": spec.summary,
            "source": spec.source,
            "own_dims": _own_dims(spec),
            "deep": spec.deep,
        }
        for spec in specs()
    ]


def _own_dims(spec: ModelSpec) -> bool | None:
    """Return whether each field may have its own dimension; None for models without embeddings."""
    return None if spec.dimensions == "none" else spec.dimensions == "per_field"


def print_catalog(console: Any = None) -> None:
    """Print the models as a table."""
    require("rich", "train", "printing tables")
    from rich.console import Console
    from rich.table import Table

    console = console or Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    table = Table(box=None, pad_edge=False)
    for heading, unbroken in (("model", True), ("description", False), ("source", False), ("own dims", True)):
        table.add_column(heading, no_wrap=unbroken)
    for spec in specs():
        dims = {None: "none", True: "yes", False: "no"}[_own_dims(spec)]
        table.add_row(spec.name, f"{spec.title}: {spec.summary}", spec.source, dims)
    console.print(table)
    console.print("\nown dims: whether each field may have its own embedding dimension (--dim 4,8,...)")
