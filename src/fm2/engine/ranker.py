"""Ranking: the context's part of the score is computed once, and candidates are compared by an inner product."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.data.row_inputs import KeyCheck, as_ids, check_lists, native_errors, normalize_rows
from fm2.data.rows import EncodedRows
from fm2.engine.model_file import CATALOG_START, ModelWriter, Sections, align, open_sections
from fm2.engine.plans import LANES
from fm2.errors import Fm2Error, suggest
from fm2.files import atomic_file, check_replaceable, write_errors
from fm2.remote.paths import local_path, writes

if TYPE_CHECKING:
    from fm2.engine.scorer import Scorer


@dataclass(frozen=True)
class Ranked:
    """The best candidates, best first: their indices among all candidates, and their calibrated click probabilities.

    Candidates are ordered by the model's logits. Calibration keeps this order, except by values of a candidate's field.
    """

    indices: NDArray[np.int64]
    probabilities: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.indices)


class Ranker:
    """A compiled model whose columns are divided into those of a context and those of its candidates.

    :meth:`fm2.Scorer.ranker` creates it.
    """

    def __init__(self, scorer: Scorer, context: Sequence[str], candidate: Sequence[str]) -> None:
        for name, columns in (("context", context), ("candidate", candidate)):
            if isinstance(columns, str):
                raise Fm2Error(f"rank: {name} must be a list of columns, got '{columns}'; write ['{columns}']")
        self.scorer = scorer
        self._context = _context_fields(scorer, context, candidate)
        with native_errors("rank"):
            self._native = _native.Ranking(scorer.native, self._context)
        self._candidate = self._native.candidate
        self._context_columns, self._candidate_columns = map(self._columns_of, (self._context, self._candidate))
        self._check_context = KeyCheck(self._context_columns, scorer.columns)
        self._check_candidate = KeyCheck(self._candidate_columns, scorer.columns)
        self._both_sides = [index for index in self._candidate if self._reads_context(index)]
        self._has_trees = any(scorer.schema.fields[index].trees for index in self._both_sides)

    def rank(self, context: Any, candidates: Any, top: int | None = None) -> Ranked:
        """Return the ``top`` candidates in a context, or all of them, best first.

        ``context`` is a dict of values or an array of the ids of the context's fields. ``candidates`` are rows in any
        form that :meth:`fm2.Scorer.predict` takes; an array has the ids of the candidates' fields. With multi-valued
        fields, :class:`fm2.EncodedRows` of a side's fields take the place of an array. Crosses of fields of both
        sides are candidates' fields; their ids follow from the others, so those in an array are not read. Trees that
        read both sides are candidates' fields as well, but need values: with dicts, they are evaluated for each
        candidate; their ids in an array are used as they are.
        """
        rows = self._candidate_rows(candidates, context)
        search = functools.partial(self._native.rank, candidate_lists=rows.native_lists())
        return self._best(search, "context_lists", context, rows.ids, len(rows) if top is None else top)

    def catalog(self, items: Any) -> Catalog:
        """Precompute the candidates' part of the score, for :meth:`Catalog.top`.

        That is impossible for networks, and if the model has a cross of fields of both sides, or trees that read both.
        """
        self._check_catalog()
        encoded = self._candidate_rows(items)
        rows = np.empty((len(encoded), self._catalog_width), np.float32)
        with native_errors("catalog"):
            self._native.describe(encoded.ids, rows, self.scorer.threads, lists=encoded.native_lists())
        return Catalog(self, rows, self._shifts(encoded.ids))

    def _shifts(self, ids: NDArray[np.int32]) -> NDArray[np.float32] | None:
        """Return the shifts of candidates if the model is calibrated by one of their fields."""
        calibration = self.scorer.calibration
        if calibration is None or calibration.shifts is None or calibration.field not in self._candidate:
            return None
        shifts: NDArray[np.float32] = calibration.shifts[ids[:, self._candidate.index(calibration.field)]]
        return shifts

    def load_catalog(self, path: str | Path) -> Catalog:
        """Open a catalog written by :meth:`Catalog.save` for the same model and the same candidate columns."""
        self._check_catalog()
        sections = open_sections(local_path(path), "catalog")
        try:
            meta = json.loads(sections["meta"].tobytes())
            if meta != self._identity(meta["items"]):
                raise Fm2Error(f"catalog: {path} belongs to another model or to other candidate columns")
            rows = sections["rows"].view(np.float32).reshape(meta["items"], self._catalog_width)
            shifts = sections["shifts"].view(np.float32) if "shifts" in sections else None
            if shifts is not None and shifts.shape != (len(rows),):
                raise ValueError(f"expected {len(rows)} shifts, got {len(shifts)}")
        except (KeyError, TypeError, ValueError) as error:
            raise Fm2Error(f"catalog: {path}: not a valid catalog: {error}") from error
        return Catalog(self, rows, shifts)

    def _check_catalog(self) -> None:
        if self.scorer.is_network:
            raise Fm2Error(
                f"catalog: {self.scorer.spec.name} is a network: it does not compare candidates by an inner product, "
                "so they cannot be precomputed; rank rows instead (Ranker.rank)"
            )
        if self._both_sides:
            names = ", ".join(f"'{self.scorer.schema.names[index]}'" for index in self._both_sides)
            raise Fm2Error(
                f"catalog: fields of the context and the candidates are combined ({names}), so candidates cannot be "
                "precomputed; rank rows instead (Ranker.rank), or train without these crosses and trees"
            )

    @property
    def _catalog_width(self) -> int:
        return align(self._native.width + 1, LANES)

    def _identity(self, items: int) -> dict[str, Any]:
        return {"items": items, "model": self.scorer.fingerprint, "context": self._context, "width": self._native.width}

    def _best(
        self, search: Callable[..., Any], lists: str, context: Any, candidates: NDArray[Any], count: int
    ) -> Ranked:
        """Call a native search; ``lists`` names its argument for the lists of the context."""
        if not isinstance(count, int | np.integer) or isinstance(count, bool) or not 0 <= count < 1 << 63:
            raise Fm2Error(f"rank: the number of candidates must be an integer of 0 or more, got {count!r}")
        row = self._context_row(context)
        with native_errors("rank"):
            return Ranked(*search(row.ids[0], candidates, count, self.scorer.threads, **{lists: row.native_lists()}))

    def _context_row(self, context: Any) -> EncodedRows:
        if isinstance(context, np.ndarray):
            context = EncodedRows(as_ids(context, "fields", "rank").reshape(1, -1))
        if isinstance(context, EncodedRows):
            if len(context) != 1:
                raise Fm2Error(f"rank: expected one context, got {len(context)}")
            return self._checked(context, self._context)
        if not isinstance(context, Mapping):
            raise Fm2Error(f"rank: expected the context as a dict or an array of ids, got {type(context).__name__}")
        _check_columns("the context", context, self._context_columns)
        self._check_context([context], "rank")
        row = _select_fields(
            self.scorer.encode_rows([dict(context)], self._context_columns, operation="rank"), self._context
        )
        self._check_context.pending = False
        return row

    def _candidate_rows(self, candidates: Any, context: Any = None) -> EncodedRows:
        """Encode candidates. Trees that read both sides need the values of the context as well."""
        if isinstance(candidates, np.ndarray):
            candidates = EncodedRows(as_ids(candidates, "candidates × fields", "rank"))
        if isinstance(candidates, EncodedRows):
            return self._checked(candidates, self._candidate)
        given = self._has_trees and context is not None
        if given:
            candidates = self._check_values(candidates, context)
        if isinstance(candidates, Mapping | Sequence):
            rows = [candidates] if isinstance(candidates, Mapping) else candidates
            checked = rows if self._check_candidate.pending else rows[:1]  # all of them only once: it takes long
            for number, candidate in enumerate(checked, start=1):
                _check_columns(f"candidate {number}", candidate, self._candidate_columns)
            self._check_candidate(rows, "rank")
        values = {name: context.get(name) for name in self._context_columns} if given else {}
        complete = [{**row, **values} for row in candidates] if given else candidates
        encoded = self.scorer.encode_rows(complete, self._candidate_columns, operation="rank")
        encoded = _select_fields(encoded, self._candidate)
        self._check_candidate.pending = self._check_candidate.pending and not len(encoded)
        return encoded

    def _check_values(self, candidates: Any, context: Any) -> list[Any]:
        """Return candidates as dicts; raise an error unless these and the context are values, which trees need."""
        if not isinstance(context, Mapping):
            raise Fm2Error("rank: trees read both sides, so the context must be a dict of values")
        rows = candidates if isinstance(candidates, Sequence | Mapping) else None
        if rows is None:
            kind = type(candidates).__name__
            raise Fm2Error(f"rank: trees read both sides, so the candidates must be a list of dicts, got {kind}")
        dicts: list[Any] = normalize_rows(rows, "rank")
        return dicts

    def _reads_context(self, field: int) -> bool:
        """Return whether a field of the candidates is derived from one of the context."""
        return any(part in self._context or self._reads_context(part) for part in self.scorer.schema.parts[field])

    def _checked(self, rows: EncodedRows, fields: Sequence[int]) -> EncodedRows:
        """Check encoded rows of a side's fields."""
        rows = EncodedRows(as_ids(rows.ids, "candidates × fields", "rank"), rows.lists)
        check_lists(rows, [self.scorer.schema.fields[field] for field in fields], "rank")
        return rows

    def _columns_of(self, fields: Sequence[int]) -> list[str]:
        settings = [self.scorer.schema.fields[field] for field in fields]
        used = {name for field in settings for name in (field.column, field.weight_column) if name}
        return [name for name in self.scorer.columns if name in used]


class Catalog:
    """Candidates with a precomputed part of the score: scoring one takes an inner product.

    :meth:`Ranker.catalog` creates it.
    """

    def __init__(self, ranker: Ranker, rows: NDArray[np.float32], shifts: NDArray[np.float32] | None = None) -> None:
        self.ranker = ranker
        self.rows = rows
        self.shifts = shifts  # if the model is calibrated by a field of the candidates

    def __len__(self) -> int:
        return len(self.rows)

    def top(self, context: Any, k: int = 100) -> Ranked:
        """Return the best ``k`` items in a context. The search is exact."""
        search = functools.partial(self.ranker._native.top, shifts=self.shifts)
        return self.ranker._best(search, "lists", context, self.rows, k)

    @writes("path")
    def save(self, path: str | Path) -> None:
        """Write the catalog to a file atomically, and replace the catalog there, if any."""
        path = Path(path)
        check_replaceable(path, "save", "catalog", CATALOG_START)
        meta = json.dumps(self.ranker._identity(len(self))).encode()
        sections: Sections = {
            "kind": np.frombuffer(b"catalog", np.uint8),  # the first section: CATALOG_START
            "rows": self.rows,
            "meta": np.frombuffer(meta, np.uint8),
            **({} if self.shifts is None else {"shifts": self.shifts}),
        }
        with write_errors(path.parent, "save"), atomic_file(path) as partial:
            ModelWriter(partial, sections).seal()


def _context_fields(scorer: Scorer, context: Sequence[str], candidate: Sequence[str]) -> list[int]:
    """Return the fields of the context; every column must be on exactly one side."""
    for name in (*context, *candidate):
        if name not in scorer.columns:
            raise Fm2Error(f"rank: unknown column '{name}'; {suggest(name, scorer.columns, (*context, *candidate))}")
    for name in scorer.columns:
        if name in context and name in candidate:
            raise Fm2Error(f"rank: column '{name}' is in both the context and the candidates")
        if name not in context and name not in candidate:
            raise Fm2Error(f"rank: column '{name}' is in neither the context nor the candidates")
    for field in scorer.schema.fields:
        if field.weight_column and (field.column in context) != (field.weight_column in context):
            raise Fm2Error(
                f"rank: column '{field.weight_column}' has the weights of '{field.column}', but is on the other side"
            )
    fields = {index for index, field in enumerate(scorer.schema.fields) if field.column in context}
    for is_tree in (False, True):  # trees may read crosses
        fields |= {
            index
            for index, (field, parts) in enumerate(zip(scorer.schema.fields, scorer.schema.parts, strict=True))
            if parts and bool(field.trees) == is_tree and fields.issuperset(parts)
        }
    return sorted(fields)


def _check_columns(name: str, row: Any, columns: Sequence[str]) -> None:
    """Raise an error if a row has no column of its side: all its values would be missing."""
    if isinstance(row, Mapping) and not any(column in row for column in columns):
        raise Fm2Error(f"rank: {name} has none of its columns: {', '.join(sorted(columns))}")


def _select_fields(rows: EncodedRows, fields: Sequence[int]) -> EncodedRows:
    """Return the columns of some fields, in this order."""
    lists = {column: rows.lists[field] for column, field in enumerate(fields) if field in rows.lists}
    return EncodedRows(np.ascontiguousarray(rows.ids[:, fields]), lists)
