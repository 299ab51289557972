"""What all classifiers share: scikit-learn's methods around ``fm2.prepare``, ``fm2.train`` and a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted, check_random_state

from fm2.engine.compile import compile
from fm2.engine.scorer import Scorer, load
from fm2.errors import Fm2Error
from fm2.estimators import saving
from fm2.estimators.fields import Fields, column_names, make_schema
from fm2.estimators.fit import Rows, fit_run, scratch
from fm2.estimators.inputs import InputError, read_classes, read_labels, read_table, value_errors
from fm2.evaluation.metrics import sigmoid
from fm2.models.choices import Metric, Optimizer, Schedule
from fm2.models.networks import NETWORKS

if TYPE_CHECKING:
    import polars

    from fm2.training.run import Run

OWN = ("fields", "min_count", "validation_fraction", "random_state")  # parameters that are no settings of a training


def _goes_on(estimator: Classifier) -> bool:
    return estimator.model != "poly2"  # it finds its pairs by their ids, which new rows change


def _compiles(estimator: Classifier) -> bool:
    return estimator.model not in NETWORKS  # those are exported, as ONNX


@dataclass(kw_only=True, eq=False, repr=False)
class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A model of clicks, or of any two classes, as scikit-learn has it.

    What is None is the model's default for so many rows, as of ``fm2 train``, whose settings these are. ``fields``
    tells what the columns mean: a :class:`fm2.Schema`, a list of :class:`fm2.Field`, or a mapping of columns to kinds
    or fields; by default their types tell. Values seen fewer than ``min_count`` times are unknown (4, or 1 where there
    are fewer than 1,000 rows). Where ``fit`` is given no ``eval_set``, it holds a ``validation_fraction`` of the rows
    back, from both classes, to know when to stop; where that would be fewer than four rows of a class, the training
    rows serve.

    After ``fit``, ``run_`` is the trained model, ``history_`` the evaluations on the validation rows, ``settings_``
    what was trained with, ``classes_`` the two classes, of which the second is the click.
    """

    model: ClassVar[str]

    fields: Fields = None
    min_count: int | None = None
    validation_fraction: float = 0.1
    random_state: int | np.random.RandomState | None = 0
    optimizer: Optimizer | None = None
    learning_rate: float | None = None
    schedule: Schedule | None = None
    batch_size: int | None = None
    epochs: int | None = None
    l2: float | None = None
    l2_power: float | None = None
    l1: float | None = None
    initial_accumulator: float | None = None
    ema_decay: float | None = None
    positive_weight: float | None = None
    metric: Metric | None = None
    evaluations_per_epoch: int | None = None
    patience: int | None = None
    threads: int | None = None
    device: str | None = None

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None, eval_set: Any = None) -> Self:
        """Train on the rows of X, whose classes are y; ``eval_set`` is a pair (X, y) that tells when to stop."""
        with value_errors():
            if y is None:
                raise InputError(f"{type(self).__name__} requires y to be passed, but the target y is None")
            table = read_table(self, X, column_names(self.fields), reset=True)
            y, self.classes_ = read_classes(y)
            check_consistent_length(table, y)
            return self._learn(self._rows(table, y, sample_weight, "fit"), eval_set)

    @available_if(_goes_on)  # type: ignore[untyped-decorator]
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go on with the model of the last call and new rows, among which both classes are; the first call fits.

        New values join those that the model knows, which keep what they learned. ``classes`` are those of the first
        call's y, unless they are given.
        """
        with value_errors():
            first = not self.__sklearn_is_fitted__()
            table = read_table(self, X, column_names(self.fields), reset=first)
            y, found = read_classes(y)
            check_consistent_length(table, y)
            given = found if classes is None else read_classes(classes)[1]
            if not first and classes is not None and not np.array_equal(given, self.classes_):
                raise InputError(f"partial_fit: the classes are {given.tolist()}, and were {self.classes_.tolist()}")
            self.classes_ = given if first else self.classes_
            return self._learn(self._rows(table, y, sample_weight, "partial_fit"), before=None if first else self.run_)

    def _rows(self, table: polars.DataFrame, y: NDArray[Any], sample_weight: Any, operation: str) -> Rows:
        """Give the rows that count, refusing those of one class."""
        if len(self.classes_) == 2:
            rows = Rows.of(table, read_labels(y, self.classes_, operation), sample_weight)
            if rows.labels.min() != rows.labels.max():
                return rows
        raise InputError(f"{operation}: y has only 1 class among the rows that count; there have to be 2 classes")

    def _learn(self, rows: Rows, eval_set: Any = None, before: Run | None = None) -> Self:
        if not 0 <= self.validation_fraction < 1:
            raise InputError(f"fit: validation_fraction is {self.validation_fraction}; it is from 0 to less than 1")
        seed = self._seed()
        encoded = before.encoder if before else make_schema(rows.table, self.fields, self.min_count)
        held = self._held(eval_set) if eval_set is not None else None
        train, validation = (rows, held) if held else rows.divided(self.validation_fraction, seed)
        settings = {**self._settings(), "seed": seed}
        try:
            found = fit_run(self.model, encoded, train, validation, settings, before)
        except Fm2Error as wrong:
            if rows.table.width > 1:
                raise
            raise InputError(f"{wrong} (X has 1 feature(s))") from wrong  # not every model makes something of one
        self.run_, self.settings_, self.history_ = found
        return self

    def _held(self, eval_set: Any) -> Rows:
        pairs = [eval_set] if isinstance(eval_set, tuple) else eval_set
        if not (isinstance(pairs, list) and len(pairs) == 1 and isinstance(pairs[0], tuple) and len(pairs[0]) == 2):
            raise InputError("fit: eval_set is one pair, (X, y)")
        table = read_table(self, pairs[0][0], column_names(self.fields), reset=False)
        y = np.asarray(pairs[0][1])
        check_consistent_length(table, y)
        return self._rows(table, y, None, "eval_set")

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _settings(self) -> dict[str, Any]:
        """Give the settings that are told, as plain values: a search hands over numpy's."""
        told = {name: getattr(self, name) for name in self._get_param_names() if name not in OWN}
        return {name: _plain(value) for name, value in told.items() if value is not None}

    def decision_function(self, X: Any) -> NDArray[np.float32]:
        """Give the logit of the second class, for each row."""
        check_is_fitted(self)
        with value_errors():
            table = read_table(self, X, column_names(self.fields), reset=False)
            return self.run_.logits(self.run_.encoder.encode(table, self.threads or 0))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Give the probabilities of both classes, for each row."""
        logits = self.decision_function(X)
        return np.stack([sigmoid(-logits), sigmoid(logits)], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """Give the class that is the likelier, for each row."""
        second = self.decision_function(X) > 0
        likelier: NDArray[Any] = self.classes_[second.astype(np.intp)]
        return likelier

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write a directory that :meth:`load` reads; it is a run for all of fm2's commands as well."""
        check_is_fitted(self)
        saving.save(self, Path(path), overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what :meth:`save` wrote; nothing in it can run code."""
        return saving.load(cls, Path(path))

    @available_if(_compiles)  # type: ignore[untyped-decorator]
    def compile(self, path: str | Path, **options: Any) -> Scorer:
        """Write one file that scores without torch, and open it; the options are those of :func:`fm2.compile`."""
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


def parameters(classifier: type[Classifier]) -> list[str]:
    """Name the settings of a training that a classifier has."""
    return [field.name for field in dataclasses.fields(classifier) if field.name not in OWN]
