"""The base class of all classifiers: scikit-learn's methods around ``fm2.prepare``, ``fm2.train`` and a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, check_random_state

from fm2.data.rows import EncodedRows
from fm2.engine.compile import compile
from fm2.engine.scorer import Scorer, load
from fm2.errors import Fm2Error
from fm2.estimators import saving
from fm2.estimators.fields import Fields, column_names, make_schema
from fm2.estimators.fit import Rows, fit_run, scratch
from fm2.estimators.inputs import InputError, read_classes, read_labels, read_table, value_errors
from fm2.evaluation.metrics import sigmoid
from fm2.models.choices import Metric, Optimizer, Schedule
from fm2.models.registry import get_spec
from fm2.remote.paths import local_path, writes
from fm2.training.candidates import check_effort

if TYPE_CHECKING:
    import polars

    from fm2.training.run import Run

# All other parameters are training settings.
DATA_PARAMETERS = ("fields", "min_count", "validation_fraction", "random_state", "effort")


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A binary classifier with scikit-learn's interface.

    Its parameters are the settings of ``fm2 train``; None stands for the model's default for the number of rows.

    ``fields`` describes the columns: a :class:`fm2.Schema`, a list of :class:`fm2.Field`, or a mapping from columns to
    kinds or fields. By default the column types determine the fields. Values that occur fewer than ``min_count`` times
    are unknown (default: 1 with fewer than 1,000 rows, otherwise 2, 3 or 4, depending on the number of rows).

    Without an ``eval_set``, ``fit`` holds out a ``validation_fraction`` of the rows of both classes for early stopping,
    but at least ten rows of a class, or a quarter of a class with fewer than 40 rows. If a class has fewer than five
    rows, or with a ``validation_fraction`` of 0, it validates on the training rows.

    With an ``effort`` of 2 or 3, ``fit`` trains with several settings around the defaults and keeps those that are best
    on the validation rows. Parameters that are not None do not change.

    After ``fit``, ``run_`` is the trained model, ``history_`` has the evaluations on the validation rows, ``settings_``
    the training settings, and ``classes_`` the two classes, of which the second one is the positive class.
    """

    model: ClassVar[str]

    fields: Fields = None
    min_count: int | None = None
    validation_fraction: float = 0.1
    random_state: int | np.random.RandomState | None = 0
    effort: int = 1
    optimizer: Optimizer | None = None
    learning_rate: float | None = None
    schedule: Schedule | None = None
    batch_size: int | None = None
    epochs: int | None = None
    l2: float | None = None
    l2_power: float | None = None
    l1: float | None = None
    initial_accumulator: float | None = None
    value_dropout: float | None = None
    unknown_dropout: float | None = None
    ema_decay: float | None = None
    positive_weight: float | None = None
    metric: Metric | None = None
    evaluations_per_epoch: int | None = None
    patience: int | None = None
    threads: int | None = None
    device: str | None = None

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None, eval_set: Any = None) -> Self:
        """Train on the rows of X with the classes y; ``eval_set`` is a pair (X, y) for early stopping."""
        with value_errors():
            if y is None:
                raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
            table = read_table(self, X, column_names(self.fields), reset=True)
            y, self.classes_ = read_classes(y)
            return self._learn(self._rows(table, y, sample_weight, "fit"), eval_set)

    @available_if(lambda self: not get_spec(self.model).no_warm_start)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train the model further on new rows, which have to contain both classes; the first call fits the model.

        New values are added to the vocabularies, and known values keep their weights. ``classes`` default to the
        classes of the first call's y. Each call holds out validation rows as :meth:`fit` does, which the model never
        learns from; collect small batches, or set ``validation_fraction=0``.
        """
        with value_errors():
            first = not self.__sklearn_is_fitted__()
            table = read_table(self, X, column_names(self.fields), reset=first)
            y, classes_of_y = read_classes(y)
            declared = classes_of_y if classes is None else read_classes(classes)[1]
            if not first and classes is not None and not np.array_equal(declared, self.classes_):
                expected = self.classes_.tolist()
                raise InputError(f"partial_fit: classes must stay {expected}, got {declared.tolist()}")
            self.classes_ = declared if first else self.classes_
            return self._learn(self._rows(table, y, sample_weight, "partial_fit"), start=None if first else self.run_)

    def _rows(self, table: polars.DataFrame, y: NDArray[Any], sample_weight: Any, operation: str) -> Rows:
        """Return the rows with a positive weight; raise an error if they are all of one class."""
        check_consistent_length(table, y)
        if len(self.classes_) == 2:
            rows = Rows.of(table, read_labels(y, self.classes_, operation), sample_weight)
            if rows.labels.min() != rows.labels.max():
                return rows
        raise InputError(f"{operation}: y has only 1 class in the rows with a positive weight; it needs 2 classes")

    def _learn(self, rows: Rows, eval_set: Any = None, start: Run | None = None) -> Self:
        if not 0 <= self.validation_fraction < 1:
            raise InputError(f"fit: validation_fraction must be in [0, 1), got {self.validation_fraction}")
        seed = self._seed()
        encoding = start.encoder if start else make_schema(rows.table, self.fields, self.min_count)
        held_out = self._read_eval_set(eval_set) if eval_set is not None else None
        train, validation = (rows, held_out) if held_out else rows.split(self.validation_fraction, seed)
        check_effort(_plain(self.effort))
        settings = {**self._settings(), "seed": seed, "effort": _plain(self.effort)}
        try:
            self.run_, self.settings_, self.history_ = fit_run(self.model, encoding, train, validation, settings, start)
        except Fm2Error as error:
            if rows.table.width > 1:
                raise
            raise InputError(f"{error} (X has 1 feature(s))") from error  # not every model works with a single field
        return self

    def _read_eval_set(self, eval_set: Any) -> Rows:
        pairs = [eval_set] if isinstance(eval_set, tuple) else eval_set
        if not (isinstance(pairs, list) and len(pairs) == 1 and isinstance(pairs[0], tuple) and len(pairs[0]) == 2):
            raise InputError("fit: eval_set must be one pair (X, y)")
        table = read_table(self, pairs[0][0], column_names(self.fields), reset=False)
        return self._rows(table, np.asarray(pairs[0][1]), None, "eval_set")

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _settings(self) -> dict[str, Any]:
        """Return the settings that are not None as plain values; a grid search passes NumPy's."""
        values = {name: getattr(self, name) for name in self._get_param_names() if name not in DATA_PARAMETERS}
        return {name: _plain(value) for name, value in values.items() if value is not None}

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Return the logit of the second class for each row, without calibration."""
        rows = self._encode(X)
        return self.run_.logits(rows)

    def _encode(self, X: Any) -> EncodedRows:
        check_is_fitted(self)
        with value_errors():
            table = read_table(self, X, column_names(self.fields), reset=False)
            return self.run_.encoder.encode_rows(table, self.threads or 0)

    def _calibrated_logits(self, X: Any) -> NDArray[np.floating[Any]]:
        rows = self._encode(X)
        logits = self.run_.logits(rows)
        return logits if self.run_.calibration is None else self.run_.calibration.apply(logits, rows)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of both classes for each row."""
        logits = self._calibrated_logits(X)
        return np.stack([sigmoid(-logits), sigmoid(logits)], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more likely class for each row."""
        second = self._calibrated_logits(X) > 0
        classes: NDArray[Any] = self.classes_[second.astype(np.intp)]
        return classes

    @writes("path")
    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a directory that :meth:`load` reads; all fm2 commands accept it as a run as well."""
        check_is_fitted(self)
        saving.save(self, Path(path), overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a saved classifier; nothing in the directory can run code."""
        return saving.load(cls, local_path(path))

    @available_if(lambda self: get_spec(self.model).compile_plan is not None)  # type: ignore[untyped-decorator]
    def compile(self, path: str | Path, **options: Any) -> Scorer:
        """Compile the model to one file that scores without torch, and open it; options as in :func:`fm2.compile`."""
        check_is_fitted(self)
        with scratch() as directory:
            self.run_.save(directory)
            compile(directory, path, **options)
        return load(path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value
