"""The catalog of models: what each one is, its source, and whether its fields may differ in dimension."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from fm2.errors import Fm2Error, require, suggest
from fm2.models.registry import model_names, specs

PIPED_WIDTH = 160


def chosen(models: str | Sequence[str]) -> list[str]:
    """Return the models in a list or in a comma-separated string; ``all``, ``shallow`` and ``deep`` name several.

    >>> chosen("lr,fmfm")
    ['lr', 'fmfm']
    >>> chosen("shallow,deepfm")
    ['lr', 'poly2', 'fm', 'ffm', 'fwfm', 'fvfm', 'fmfm', 'deepfm']
    """
    names = [name.strip() for name in models.split(",")] if isinstance(models, str) else list(models)
    groups = {"all": model_names(), "shallow": model_names(deep=False), "deep": model_names(deep=True)}
    known = groups | {name: [name] for name in model_names()}
    for name in names:
        if name not in known:
            raise Fm2Error(f"compare: unknown model '{name}'; {suggest(name, known)}")
    if not names:
        raise Fm2Error("compare: models is empty; 'shallow' selects the paper's models, 'all' selects every model")
    return list(dict.fromkeys(model for name in names for model in known[name]))


def catalog() -> list[dict[str, Any]]:
    """Return what the catalog has on each model. ``own_dims`` is None for models without embeddings."""
    return [
        {
            **{name: getattr(spec, name) for name in ("name", "title", "summary", "source", "deep")},
            "own_dims": None if spec.dimensions == "none" else spec.dimensions == "per_field",
        }
        for spec in specs()
    ]


def print_catalog() -> None:
    """Print the models as a table."""
    require("rich", "train", "printing tables")
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    table = Table(box=None, pad_edge=False)
    for heading, unbroken in (("model", True), ("description", False), ("source", False), ("per-field dims", True)):
        table.add_column(heading, no_wrap=unbroken)
    for model in catalog():
        dims = {None: "none", True: "yes", False: "no"}[model["own_dims"]]
        table.add_row(model["name"], f"{model['title']}: {model['summary']}", model["source"], dims)
    console.print(table)
    console.print("\nper-field dims: whether each field may have its own embedding dimension (--dim 4,8,...)")
