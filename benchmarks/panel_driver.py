"""Fit one peer of the panel. panel_peers.py runs this in the environment of `make peers`, which has no fm2.

    python panel_driver.py JOB RESULT

JOB is a JSON file: the model, the number of threads, a time limit in CPU seconds per thread, and the file of the rows.
LightGBM and CatBoost read a Parquet table of raw columns, and JOB names its categories; logistic regression reads the
one-hot rows of the three splits. RESULT is an .npz file: the predictions for the validation and test rows, the wall and
CPU seconds of the fit without reading, the number of trees or the regularization that the validation rows selected, and
whether the time limit was reached.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars
from numpy.typing import NDArray

TREES = 2000
PATIENCE = 50
C_GRID = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
ITERATIONS = 300
SEED = 1

Table = tuple[Any, NDArray[np.float64]]


@dataclass(frozen=True)
class Fitted:
    """The predictions for the validation and test rows, the time of the fit, and what the validation rows selected."""

    predictions: list[NDArray[np.float64]]
    clock: Clock
    selected: float


class Clock:
    """Wall and CPU seconds since it was created, and whether the time is over.

    The limit is in CPU seconds per thread, because other processes may slow a fit down.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self._start = time.perf_counter()
        self._cpu_start = time.process_time()
        self._limit: float = request["limit"] * request["threads"]

    def is_over(self) -> bool:
        """Return whether the limit is reached."""
        return time.process_time() - self._cpu_start > self._limit

    def stop(self) -> Clock:
        """Store the seconds, and whether the limit was reached."""
        self.was_over = self.is_over()
        self.seconds = time.perf_counter() - self._start
        self.cpu_seconds = time.process_time() - self._cpu_start
        return self


def main() -> None:
    job, result = (Path(name) for name in sys.argv[1:])
    request = json.loads(job.read_text())
    fitted = FITS[request["model"]](request)
    validation, test = fitted.predictions
    figures: dict[str, Any] = {
        "seconds": fitted.clock.seconds,
        "cpu_seconds": fitted.clock.cpu_seconds,
        "selected": fitted.selected,
    }
    figures |= {"threads": request["threads"], "at_limit": fitted.clock.was_over}
    np.savez(result, validation=validation, test=test, **figures)


def fit_lightgbm(request: dict[str, Any]) -> Fitted:
    """Fit LightGBM with native categories, a learning rate of 0.05 and otherwise defaults."""
    import lightgbm

    train, validation, test = read_table(request, known_values=True)

    def stop_in_time(state: Any) -> None:
        if clock.is_over():
            raise lightgbm.callback.EarlyStopException(state.iteration, state.evaluation_result_list)

    model = lightgbm.LGBMClassifier(
        n_estimators=TREES, learning_rate=0.05, n_jobs=request["threads"], random_state=SEED, verbosity=-1
    )
    clock = Clock(request)
    stopping = lightgbm.early_stopping(PATIENCE, verbose=False)
    rows, labels = validation
    model.fit(*train, eval_X=rows, eval_y=labels, eval_metric="binary_logloss", callbacks=[stopping, stop_in_time])
    clock.stop()
    return Fitted(predict(model, validation, test), clock, model.best_iteration_)


def fit_catboost(request: dict[str, Any]) -> Fitted:
    """Fit CatBoost with its default learning rate and its target statistics of categories."""
    import catboost

    class Deadline:
        def after_iteration(self, info: Any) -> bool:
            return not clock.is_over()

    train, validation, test = read_table(request, known_values=False)
    model = catboost.CatBoostClassifier(
        iterations=TREES,
        od_type="Iter",
        od_wait=PATIENCE,
        cat_features=request["categories"],
        thread_count=request["threads"],
        random_seed=SEED,
        allow_writing_files=False,
        verbose=False,
    )
    clock = Clock(request)
    model.fit(*train, eval_set=validation, callbacks=[Deadline()])
    clock.stop()
    return Fitted(predict(model, validation, test), clock, model.best_iteration_ + 1)


def predict(model: Any, *splits: Table) -> list[NDArray[np.float64]]:
    """Return a classifier's probabilities for the rows of splits."""
    return [model.predict_proba(rows)[:, 1] for rows, _ in splits]


def read_table(request: dict[str, Any], known_values: bool) -> list[Table]:
    """Read the rows and labels of the splits. ``known_values`` makes values without a training row missing."""
    import pandas

    table = polars.read_parquet(request["rows"])
    split = table["split"].to_numpy()
    columns: dict[str, Any] = {}
    for name in table.columns:
        if name in request["categories"]:
            values = table[name].to_numpy()
            known = np.unique(values[split == 0] if known_values else values)
            codes = np.searchsorted(known, values).clip(max=len(known) - 1)
            columns[name] = pandas.Categorical.from_codes(np.where(known[codes] == values, codes, -1), known)
        elif name not in ("split", "label"):
            columns[name] = table[name].to_numpy()
    frame = pandas.DataFrame(columns)
    labels = table["label"].to_numpy()
    return [(frame[split == number], labels[split == number]) for number in range(3)]


def fit_logistic(request: dict[str, Any]) -> Fitted:
    """Fit scikit-learn's logistic regression; select C on the validation rows."""
    import scipy.sparse
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    arrays = np.load(request["rows"])

    def split(name: str) -> Table:
        parts = [arrays[f"{name}_{part}"] for part in ("weights", "features", "offsets")]
        shape = (len(parts[2]) - 1, int(arrays["n_features"]))
        return scipy.sparse.csr_matrix(tuple(parts), shape=shape), arrays[f"{name}_labels"]

    train, validation, test = (split(name) for name in ("train", "validation", "test"))
    model = LogisticRegression(solver="lbfgs", max_iter=ITERATIONS, warm_start=True)
    best: tuple[float, float, list[NDArray[np.float64]]] = (np.inf, 0.0, [])
    clock = Clock(request)
    for c in C_GRID:
        model.set_params(C=c).fit(*train)
        predictions = predict(model, validation, test)
        best = min(best, (log_loss(validation[1], predictions[0]), c, predictions), key=lambda entry: entry[0])
        if best[1] < c or clock.is_over():
            break
    return Fitted(best[2], clock.stop(), best[1])


FITS = {"LightGBM": fit_lightgbm, "CatBoost": fit_catboost, "scikit-learn LR": fit_logistic}


if __name__ == "__main__":
    main()
