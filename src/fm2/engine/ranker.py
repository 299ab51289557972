"""Ranking: what the context has is computed once, candidates are compared by an inner product."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.row_inputs import as_ids
from fm2.engine.model_file import BEGINS, new_model, open_sections
from fm2.engine.plans import padded
from fm2.errors import Fm2Error, suggest
from fm2.files import check_replaceable

if TYPE_CHECKING:
    from fm2.engine.scorer import Scorer

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Ranked:
    """The best candidates, best first: their places among all, and their click probabilities."""

    places: NDArray[np.int64]
    probabilities: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.places)


class Ranker:
    """A model whose columns are divided into those of the context and those of a candidate."""

    def __init__(self, scorer: Scorer, context: Sequence[str], candidate: Sequence[str]) -> None:
        self.scorer = scorer
        places = _places(scorer, context, candidate)
        try:
            self._native = _native.Ranking(scorer.native, places)
        except ValueError as wrong:
            raise Fm2Error(str(wrong)) from wrong
        self._context, self._candidate = places, self._native.candidate

    def rank(self, context: Any, candidates: Any, top: int | None = None) -> Ranked:
        """Give the best candidates in a context, or all of them.

        The context is a dict of values or an array of the ids of its fields; the candidates are rows in any form that
        :meth:`fm2.Scorer.predict` takes, or an array of ids, candidates × candidate fields.
        """
        ids = self._candidate_ids(candidates)
        many = len(ids) if top is None else _at_least_none(top)
        try:
            return Ranked(*self._native.rank(self._context_ids(context), ids, many, self.scorer.threads))
        except (IndexError, ValueError) as wrong:
            raise Fm2Error(f"rank: {wrong}") from wrong

    def catalog(self, items: Any) -> Catalog:
        """Compute beforehand what candidates bring, for :meth:`Catalog.top`."""
        ids = self._candidate_ids(items)
        rows = np.empty((len(ids), self._catalog_width), np.float32)
        try:
            self._native.describe(ids, rows, self.scorer.threads)
        except (IndexError, ValueError) as wrong:
            raise Fm2Error(f"catalog: {wrong}") from wrong
        return Catalog(self, rows)

    def load_catalog(self, path: str | Path) -> Catalog:
        """Open a catalog that :meth:`Catalog.save` wrote, for the same model and the same candidate columns."""
        sections = open_sections(Path(path), "catalog")
        try:
            told = json.loads(sections["meta"].tobytes())
            if told != self._identity(told["items"]):
                raise Fm2Error(f"catalog: {path} was made with another model, or for another choice of columns")
            rows = sections["rows"].view(np.float32).reshape(told["items"], self._catalog_width)
        except (KeyError, TypeError, ValueError) as wrong:
            raise Fm2Error(f"catalog: {path} is no catalog that can be used: {wrong}") from wrong
        return Catalog(self, rows)

    @property
    def _catalog_width(self) -> int:
        return padded(self._native.width + 1)

    def _identity(self, items: int) -> dict[str, Any]:
        return {"items": items, "model": self.scorer.fingerprint, "context": self._context, "width": self._native.width}

    def _best_of(self, rows: NDArray[np.float32], context: Any, k: int) -> Ranked:
        try:
            found = self._native.top(self._context_ids(context), rows, _at_least_none(k), self.scorer.threads)
        except (IndexError, ValueError) as wrong:
            raise Fm2Error(f"rank: {wrong}") from wrong
        return Ranked(*found)

    def _context_ids(self, context: Any) -> Ids:
        if isinstance(context, np.ndarray):
            return as_ids(context, "fields", "rank")
        if not isinstance(context, Mapping):
            raise Fm2Error(f"rank: the context is a dict of values or an array of ids, not {type(context).__name__}")
        self._check_columns("context", context, self._context)
        return np.ascontiguousarray(self.scorer.encode([dict(context)])[0, self._context])

    def _candidate_ids(self, candidates: Any) -> Ids:
        if isinstance(candidates, np.ndarray):
            return as_ids(candidates, "candidates × fields", "rank")
        if isinstance(candidates, Mapping) or (isinstance(candidates, Sequence) and candidates):
            some = candidates if isinstance(candidates, Mapping) else candidates[0]
            self._check_columns("first candidate", some, self._candidate)
        columns = [name for name in self.scorer.columns if name in self._columns_of(self._candidate)]
        return np.ascontiguousarray(self.scorer.encode(candidates, columns)[:, self._candidate])

    def _check_columns(self, what: str, row: Any, fields: Sequence[int]) -> None:
        """Refuse a row with nothing of its side: all of it would be missing values."""
        own = self._columns_of(fields)
        if isinstance(row, Mapping) and not own & set(row):
            raise Fm2Error(f"rank: the {what} has none of its columns, {', '.join(sorted(own))}")

    def _columns_of(self, fields: Sequence[int]) -> set[str]:
        described = self.scorer.schema.fields
        return {described[field].column for field in fields}


class Catalog:
    """Candidates whose part is computed: scoring one is an inner product."""

    def __init__(self, ranker: Ranker, rows: NDArray[np.float32]) -> None:
        self.ranker, self.rows = ranker, rows

    def __len__(self) -> int:
        return len(self.rows)

    def top(self, context: Any, k: int = 100) -> Ranked:
        """Give the best ``k`` of all items in a context, exactly."""
        return self.ranker._best_of(self.rows, context, k)

    def save(self, path: str | Path) -> None:
        """Write the catalog to a file, which appears whole or not at all; one that is there already is replaced."""
        check_replaceable(Path(path), "save", "catalog or model", BEGINS)
        meta = json.dumps(self.ranker._identity(len(self))).encode()
        told: dict[str, NDArray[Any] | int] = {"kind": np.frombuffer(b"catalog", np.uint8), "rows": self.rows}
        with new_model(Path(path), told | {"meta": np.frombuffer(meta, np.uint8)}):
            pass


def _at_least_none(count: int) -> int:
    if count < 0:
        raise Fm2Error(f"rank: the best {count} are asked for; it is 0 or more")
    return count


def _places(scorer: Scorer, context: Sequence[str], candidate: Sequence[str]) -> list[int]:
    """Give the fields of the context; every column has to be on one side."""
    for name in (*context, *candidate):
        if name not in scorer.columns:
            raise Fm2Error(f"rank: the model has no column '{name}'; {suggest(name, scorer.columns)}")
    both = set(context) & set(candidate)
    if both:
        raise Fm2Error(f"rank: the column '{sorted(both)[0]}' is both the context's and the candidates'")
    neither = [name for name in scorer.columns if name not in context and name not in candidate]
    if neither:
        raise Fm2Error(f"rank: the column '{neither[0]}' is neither the context's nor the candidates'")
    return [place for place, field in enumerate(scorer.schema.fields) if field.column in context]
