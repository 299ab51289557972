"""LightGBM on the rows of a log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.data.tree_inputs import FOLDS, TreeRows
from fm2.errors import require
from fm2.progress import Progress

Floats = NDArray[np.float32]

# Fewer trees that learn faster (at most 300 with a rate of 0.12) raise the test log loss of FmFM with trees by .0002 to
# .0005 on adult, avazu, criteo_inferred, movies, numbers and user_item of benchmarks/panel.py.
MOST_TREES, PATIENCE = 1000, 50
SETTINGS = {
    "objective": "cross_entropy",  # labels may be click rates
    "learning_rate": 0.05,
    "num_leaves": 16,
    "max_depth": 6,
    "min_data_in_leaf": 50,
    "lambda_l2": 1.0,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "use_missing": False,
    "deterministic": True,  # whatever the number of threads
    "force_row_wise": True,
    "verbose": -1,
}
FAST = {"learning_rate": 0.15}  # to compare inputs
# Larger trees are better where many numbers have effects in common: on a log of diamonds, the trees' test log loss is
# .275 instead of .280, and CatBoost's .274. On logs of categories, they are worse: .619 instead of .616 on InstEval's.
LARGE = {"num_leaves": 64, "max_depth": -1}
FEW_ROWS = 100_000  # that one thread fits about as fast as several, which would have to wait for each other


def require_lightgbm() -> Any:
    """Import LightGBM, or raise an error that says how to install it.

    Its threads wait for each other thousands of times. By default, OpenMP lets them spin, which takes the processor
    from the thread that they wait for: on a busy machine with two cores, fitting then took ten times as long.
    """
    is_set = "OMP_WAIT_POLICY" in os.environ
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when OpenMP is first loaded
    try:
        return require("lightgbm", "trees", "fitting trees")
    finally:
        if not is_set:
            del os.environ["OMP_WAIT_POLICY"]


def is_lower(losses: NDArray[np.float64], others: NDArray[np.float64], weights: Floats) -> bool:
    """Return whether the mean of losses is lower than that of others, by more than half its standard error.

    Of several comparisons, the best one gains by chance.

    >>> others = np.array([0.5, 0.4, 0.6])
    >>> [is_lower(others - gains, others, np.ones(3)) for gains in ([0.1, 0.1, 0.2], [0.1, -0.2, 0.2])]
    [True, False]
    """
    if np.count_nonzero(weights) < 2:
        return False
    gains, shares = others - losses, weights / weights.sum()
    mean = float(gains @ shares)
    error = float(np.linalg.norm((gains - mean) * shares))
    return mean > error / 2


class TreeProgress:
    """Counts the trees that are fitted, and estimates the percentage of the work that is done."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress, self._trees = progress, 0
        self.begin(0, 0, 1)

    def begin(self, start: float, end: float, fits: int) -> None:
        """Begin a part of the work, between two percentages, that takes up to this number of fits."""
        self._percent, self._end, self._per_fit = start, end, (end - start) / fits

    def add_tree(self, _: object) -> None:
        """Count a tree. LightGBM calls this for each one."""
        self._trees += 1
        if self._progress:
            self._progress.update(int(self._percent), self._trees)

    def add_fit(self) -> None:
        """Count a fit."""
        self._percent = min(self._percent + self._per_fit, self._end)


class Boosting:
    """LightGBM on training rows."""

    def __init__(self, rows: TreeRows, seed: int, threads: int, progress: TreeProgress | None = None) -> None:
        self._lightgbm = require_lightgbm()
        self._rows = rows
        self._progress = progress or TreeProgress()
        threads = threads if len(rows.labels) > FEW_ROWS else 1
        self._settings = {**SETTINGS, "seed": seed % 2**31, "num_threads": threads}

    def choose_size(self, numbers: Floats, validation: TreeRows, of_validation: Floats) -> None:
        """Fit larger trees from now on if they are better on the validation rows."""
        if not len(validation.labels):
            return
        small, large = self._settings, self._settings | LARGE
        losses, of_large = (self._losses(numbers, validation, of_validation, each) for each in (small, large))
        if is_lower(of_large, losses, validation.weights):
            self._settings = large

    def fit_all(self, numbers: Floats, trees: int) -> Any:
        """Fit ``trees`` trees to all rows."""
        return self._fit(self._settings, self._data(numbers), trees)

    def predict_held_out(self, numbers: Floats) -> tuple[Floats, int]:
        """Return the logit of each row by trees that were not fitted to its fold, and the mean number of trees.

        The fold only decides when to stop adding trees.
        """
        predictions, sizes = np.zeros(len(numbers), np.float32), []
        for fold in range(FOLDS):
            held_out = self._rows.folds == fold
            data, valid = self._data(numbers, ~held_out), self._data(numbers, held_out)
            fitted = self._fit_until_best(data, valid, self._settings)
            predictions[held_out] = fitted.predict(numbers[held_out], raw_score=True)
            sizes.append(fitted.best_iteration)
        return predictions, max(round(float(np.mean(sizes))), 1)

    def gains(self, numbers: Floats, trees: int) -> NDArray[np.float64]:
        """Return by how much the splits on each input lower the loss in a few trees, as shares of their sum."""
        fitted = self._fit(self._settings | FAST, self._data(numbers), trees)
        gains: NDArray[np.float64] = fitted.feature_importance("gain")
        return gains / max(float(gains.sum()), 1e-9)

    def lowest_losses(self, numbers: Floats, validation: TreeRows, of_validation: Floats) -> NDArray[np.float64]:
        """Return the log losses of the validation rows by as many trees as have the lowest mean."""
        return self._losses(numbers, validation, of_validation, self._settings | FAST)

    def _losses(
        self, numbers: Floats, validation: TreeRows, of_validation: Floats, settings: dict[str, Any]
    ) -> NDArray[np.float64]:
        valid = self._lightgbm.Dataset(of_validation, validation.labels, weight=validation.weights)
        fitted = self._fit_until_best(self._data(numbers), valid, settings)
        logits: NDArray[np.float64] = fitted.predict(of_validation, raw_score=True)
        return np.logaddexp(0, logits) - validation.labels * logits

    def _fit_until_best(self, data: Any, valid: Any, settings: dict[str, Any]) -> Any:
        stop = self._lightgbm.early_stopping(PATIENCE, verbose=False)
        return self._fit(settings, data, MOST_TREES, valid_sets=[valid], callbacks=[stop])

    def _fit(self, settings: dict[str, Any], data: Any, trees: int, callbacks: Sequence[Any] = (), **rest: Any) -> Any:
        fitted = self._lightgbm.train(settings, data, trees, callbacks=[self._progress.add_tree, *callbacks], **rest)
        self._progress.add_fit()
        return fitted

    def _data(self, numbers: Floats, chosen: NDArray[np.bool_] | None = None) -> Any:
        arrays = numbers, self._rows.labels, self._rows.weights
        numbers, labels, weights = arrays if chosen is None else (array[chosen] for array in arrays)
        return self._lightgbm.Dataset(numbers, labels, weight=weights)
