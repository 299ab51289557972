"""``fm2.load``: a compiled model at work."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2 import _native
from fm2.cpu import check_threads
from fm2.data.dataset import Dataset
from fm2.data.encoder import Encoder
from fm2.data.row_inputs import normalize_rows
from fm2.data.vocabulary import Vocabulary
from fm2.engine.explanation import Explanation
from fm2.engine.metadata import read_description
from fm2.engine.plans import NUMBERS
from fm2.engine.ranker import Ranker
from fm2.errors import Fm2Error
from fm2.evaluation.evaluate import evaluate_split
from fm2.evaluation.metrics import sigmoid


class Scorer:
    """A compiled model, mapped into memory. Any number of threads may use one.

    Values that training did not show, and values that cannot be read, are unknown. In a dict, a column that is not
    there is a missing value; in a table, it is an error. Columns that are no fields are passed over.
    """

    def __init__(self, path: str | Path, *, threads: int = 0, verify: bool = True) -> None:
        check_threads("load", threads)
        self.path, self.threads = Path(path), threads
        if self.path.is_dir():
            raise Fm2Error(
                f"load: {path} is not a file but a directory; fm2 compile makes a run's model one file "
                "(networks are served as ONNX: fm2 export)"
            )
        try:
            self.native = _native.open_compiled(str(path), verify, threads)
            described = self.native.section("meta")
        except OSError as wrong:
            raise Fm2Error(f"load: {wrong}") from wrong
        except ValueError as wrong:  # a column's name that is no text
            raise Fm2Error(f"load: {path} is no model that can be used: {wrong}") from wrong
        self.meta, self.schema = read_description(described, self.native.columns, self.native.sizes, self.path)

    @property
    def columns(self) -> list[str]:
        """The columns that a row of raw values has."""
        return self.native.columns

    @property
    def fingerprint(self) -> str:
        """What tells this model from others."""
        return self.native.checksum

    @property
    def dtype(self) -> str:
        """What the features' numbers are kept as: f32, f16 or i8."""
        number = int(np.frombuffer(self.native.section("plan"), np.int64)[1])
        return next(name for name, own in NUMBERS.items() if own == number)

    def ranker(self, context: Sequence[str] = (), candidate: Sequence[str] = ()) -> Ranker:
        """Divide the columns into those of a context and those of its candidates; one side may be left out.

        A model with one candidate in a context is scored as ever; with many, what they share is computed once.
        """
        context = context or [name for name in self.columns if name not in candidate]
        candidate = candidate or [name for name in self.columns if name not in context]
        return Ranker(self, context, candidate)

    def predict(self, rows: Any) -> NDArray[np.float32]:
        """Give the click probabilities of rows.

        ``rows`` is a list of dicts, a dict of columns, a polars, pandas or pyarrow table, or an array of ids, rows ×
        fields.
        """
        return sigmoid(self.logits(rows)).astype(np.float32)

    def probabilities(self, ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Give the click probabilities of encoded rows."""
        return self.predict(ids)

    def evaluate(self, dataset: Dataset | str | Path, split: str = "test") -> dict[str, Any]:
        """Measure the model on a split of a data set: the one it was trained on, or one of another day."""
        return evaluate_split(self, dataset, split)

    @functools.cached_property
    def encoder(self) -> Encoder:
        """What reads whole files of raw rows: the model's vocabularies once more, in tables of their own."""
        counts = np.frombuffer(self.native.section("vocabulary.counts"), np.uint64).reshape(-1, 3).astype(np.int64)
        ends = np.frombuffer(self.native.section("vocabulary.ends"), np.uint64)
        data = np.frombuffer(self.native.section("vocabulary.bytes"), np.uint8)
        boundaries = np.frombuffer(self.native.section("encoder.boundaries"), np.float32)
        cuts = np.frombuffer(self.native.section("encoder.fields"), np.int32).reshape(-1, 4)[:, 3]
        parts = zip(
            np.split(data, np.cumsum(counts[:-1, 2])),
            np.split(ends, np.cumsum(counts[:-1, 1])),
            np.split(boundaries, np.cumsum(cuts[:-1])),
            [1 << field.hash_bits if field.hash_bits else 0 for field in self.schema.fields],
            strict=True,
        )
        none = np.empty(0, np.int64)
        return Encoder(self.schema, [Vocabulary(text, own, none, cut, hashed) for text, own, cut, hashed in parts])

    def predict_one(self, row: Mapping[str, Any]) -> float:
        """Give the click probability of one row, a dict of values by column."""
        try:
            return self.native.predict_one(row)
        except (TypeError, KeyError, ValueError) as wrong:
            raise Fm2Error(f"predict: {wrong.args[0] if isinstance(wrong, KeyError) else wrong}") from wrong

    def logits(self, rows: Any) -> NDArray[np.float32]:
        """Give the logits of rows."""
        ids = self.encode(rows)
        logits = np.empty(len(ids), np.float32)
        with _telling():
            self.native.score(ids, logits, self.threads)
        return logits

    def explain(self, row: Any) -> Explanation:
        """Tell what every field and every pair of fields adds to the logit of a row: a dict of values, or its ids."""
        ids = self.encode([row] if isinstance(row, Mapping) else np.asarray(row).reshape(1, -1))[0]
        try:
            bias, own, pairs = self.native.explain(ids)
        except (IndexError, ValueError) as wrong:
            raise Fm2Error(f"explain: {wrong}") from wrong
        names = self.schema.names
        terms = np.array(pairs).reshape(len(names), len(names))
        together = {(names[i], names[j]): float(terms[i, j]) for i, j in combinations(range(len(names)), 2)}
        return Explanation(bias, dict(zip(names, own, strict=True)), together)

    def time(self, rows: Any) -> NDArray[np.float64]:
        """Tell how many seconds the prediction of each row takes on its own, once it is encoded, on one thread."""
        ids = self.encode(rows)
        nanoseconds = np.empty(len(ids), np.float32)
        with _telling():
            self.native.time_rows(ids, nanoseconds)
        return nanoseconds.astype(np.float64) * 1e-9

    def encode(self, rows: Any, columns: Sequence[str] | None = None) -> NDArray[np.int32]:
        """Give the ids of rows; ids stay as they are. A table need have these ``columns`` alone, if they are given."""
        given = normalize_rows(rows, "predict")
        if isinstance(given, np.ndarray):
            return given
        if isinstance(given, list):
            return self._encode_rows(given)
        return self._encode_table(given, self.columns if columns is None else columns)

    def _encode_rows(self, rows: list[Any]) -> NDArray[np.int32]:
        ids = np.empty((len(rows), len(self.native.sizes)), np.int32)
        with _telling():
            self.native.encode_rows(rows, ids)
        return ids

    def _encode_table(self, table: Any, columns: Sequence[str]) -> NDArray[np.int32]:
        reader = _native.ArrowReader(table)
        places = {name: place for place, name in enumerate(reader.names)}
        missing = [name for name in columns if name not in places]
        if missing:
            raise Fm2Error(f"predict: the table has no column '{missing[0]}'")
        # Of a column that need not be there, any other may take the place: its ids are not used.
        positions = [places[name] if name in columns else places[columns[0]] for name in self.columns]
        parts = [np.empty((0, len(self.native.sizes)), np.int32)]
        while reader.next():
            ids = np.empty((reader.rows, len(self.native.sizes)), np.int32)
            self.native.encode_table(reader, positions, self.threads, ids)
            parts.append(ids)
        return np.concatenate(parts)


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    """Turn what native code refuses into an error that a user understands."""
    try:
        yield
    except (TypeError, LookupError, ValueError) as wrong:
        raise Fm2Error(f"predict: {wrong.args[0] if isinstance(wrong, KeyError) else wrong}") from wrong


def load(path: str | Path, *, threads: int = 0, verify: bool = True) -> Scorer:
    """Open a compiled model; ``verify`` reads all of it once, to compare its checksum."""
    return Scorer(path, threads=threads, verify=verify)
