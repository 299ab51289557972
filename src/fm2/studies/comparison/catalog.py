"""Which models there are: what each is, where it is from, whether its fields may differ in dimension."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fm2.errors import Fm2Error, require, suggest
from fm2.models.defaults import DEFAULTS, MODELS
from fm2.models.networks import NETWORKS

PIPED_WIDTH = 160


@dataclass(frozen=True)
class Known:
    """A model that can be trained. ``own_dims``: whether each field may have a dimension of its own; None without any.

    A network may have options with which that is otherwise.
    """

    name: str
    summary: str
    source: str
    own_dims: bool | None
    deep: bool


_SHALLOW = (
    Known("lr", "LR: logistic regression, a weight per feature", "Richardson et al., 2007", None, False),
    Known("poly2", "Poly2: a weight per feature and, hashed, per pair of features", "Chang et al., 2010", None, False),
    Known("fm", "FM: any two features interact by the product of their embeddings", "Rendle, 2010", False, False),
    Known("ffm", "FFM: a feature has an embedding for every other field", "Juan et al., 2016", False, False),
    Known("fwfm", "FwFM: an FM with a weight for every pair of fields", "Pan et al., 2018", False, False),
    Known("fvfm", "FvFM: an FM with a vector for every pair of fields", "Sun et al., 2021", False, False),
    Known("fmfm", "FmFM: an FM with a matrix for every pair of fields", "Sun et al., 2021", True, False),
)
CATALOG = {known.name: known for known in _SHALLOW} | {
    name: Known(name, network.summary, network.source, not network.equal_dims, True)
    for name, network in NETWORKS.items()
}
GROUPS = {"all": MODELS, "shallow": tuple(DEFAULTS), "deep": tuple(NETWORKS)}


def chosen(models: str | Sequence[str]) -> list[str]:
    """Name the models that a list, or a text with commas, names; ``all``, ``shallow`` and ``deep`` stand for several.

    >>> chosen("lr,fmfm")
    ['lr', 'fmfm']
    >>> chosen("shallow,deepfm")
    ['lr', 'poly2', 'fm', 'ffm', 'fwfm', 'fvfm', 'fmfm', 'deepfm']
    """
    words = [word.strip() for word in models.split(",")] if isinstance(models, str) else list(models)
    for word in words:
        if word not in (*GROUPS, *MODELS):
            raise Fm2Error(f"compare: there is no model '{word}'; {suggest(word, (*GROUPS, *MODELS))}")
    if not words:
        raise Fm2Error("compare: no models are named; 'shallow' are the paper's seven, 'all' are all there are")
    return list(dict.fromkeys(name for word in words for name in GROUPS.get(word, (word,))))


def as_dicts() -> list[dict[str, Any]]:
    """Give the catalog in plain values."""
    return [asdict(known) for known in CATALOG.values()]


def print_catalog(console: Any = None) -> None:
    """Print the models as a table."""
    require("rich", "train", "printing tables")
    from rich.console import Console
    from rich.table import Table

    console = console or Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    table = Table(box=None, pad_edge=False)
    for heading, unbroken in (("model", True), ("what it is", False), ("from", False), ("own dims", True)):
        table.add_column(heading, no_wrap=unbroken)
    for known in CATALOG.values():
        dims = {None: "none", True: "yes", False: "no"}[known.own_dims]
        table.add_row(known.name, known.summary, known.source, dims)
    console.print(table)
    console.print("\nown dims: whether each field may have an embedding dimension of its own (--dim 4,8,...)")
