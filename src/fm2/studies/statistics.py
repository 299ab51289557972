"""Which differences between models are significant: paired tests on the same rows, and the variation over seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fm2.evaluation.metrics import Floats
from fm2.evaluation.significance import CONFIDENCE, Estimates, auc_influence, log_loss_influence
from fm2.files import atomic_file, write_errors

Interval = tuple[float, float]

INFLUENCES = {"auc": auc_influence, "log_loss": log_loss_influence}
NUMBERS = ("difference", "low", "high", "p_value")
HIGHER_IS_BETTER = {"auc": True, "log_loss": False}


@dataclass(frozen=True)
class PairDifference:
    """How much higher a metric of a model is than that of a baseline, with its simultaneous confidence interval.

    The p-value is that of this pair alone.
    """

    model: str
    baseline: str
    difference: float
    low: float
    high: float
    p_value: float

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def reversed(self) -> PairDifference:
        """Return how much higher the metric of the baseline is."""
        return PairDifference(self.baseline, self.model, -self.difference, -self.high, -self.low, self.p_value)

    def __str__(self) -> str:
        return f"{self.difference:+.5f} [{self.low:+.5f}, {self.high:+.5f}]"


@dataclass(frozen=True)
class MetricStatistics:
    """A metric of several models: confidence intervals of models and runs, and the differences of pairs.

    ``reference`` is the best model, or the one that all others are compared with.
    """

    reference: str
    models: dict[str, Interval]
    runs: dict[str, Interval]
    pairs: list[PairDifference]

    def difference(self, model: str, baseline: str) -> PairDifference:
        """Return how much higher the metric of a model is than that of a baseline."""
        for pair in self.pairs:
            if (pair.model, pair.baseline) == (model, baseline):
                return pair
            if (pair.model, pair.baseline) == (baseline, model):
                return pair.reversed()
        raise KeyError(f"{model}, {baseline}")

    @property
    def tied(self) -> list[str]:
        """The models that do not differ significantly from the reference."""
        others = (model for model in self.models if model != self.reference)
        return [model for model in others if not self.difference(model, self.reference).significant]

    @property
    def leaders(self) -> list[str]:
        """The reference, and the models tied with it."""
        return [self.reference, *self.tied]


@dataclass(frozen=True)
class Statistics:
    """The statistics of each metric on so many ``rows``. ``seeds`` is the smallest number of seeds of a model.

    All differences of a metric are within their intervals at once with probability ``confidence``.
    """

    confidence: float
    rows: int
    seeds: int
    metrics: dict[str, MetricStatistics]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for a JSON file, with the ties and whether each difference is significant."""
        metrics = {
            name: {
                **{"reference": metric.reference, "tied": metric.tied, "models": metric.models, "runs": metric.runs},
                "differences": [{**asdict(pair), "significant": pair.significant} for pair in metric.pairs],
            }
            for name, metric in self.metrics.items()
        }
        return {"confidence": self.confidence, "rows": self.rows, "seeds": self.seeds, **metrics}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Statistics:
        """Read the result of :meth:`to_dict`; invalid values raise a TypeError, ValueError or KeyError."""
        metrics = {}
        for name in INFLUENCES:
            stored = values[name]
            pairs = [
                PairDifference(str(pair["model"]), str(pair["baseline"]), *map(float, map(pair.get, NUMBERS)))
                for pair in stored["differences"]
            ]
            models, runs = (
                {str(key): (float(low), float(high)) for key, (low, high) in stored[kind].items()}
                for kind in ("models", "runs")
            )
            metrics[name] = MetricStatistics(str(stored["reference"]), models, runs, pairs)
            _ = metrics[name].tied  # raises a KeyError if a pair is missing
        return cls(float(values["confidence"]), int(values["rows"]), int(values["seeds"]), metrics)

    def caption(self, split: str) -> str:
        """Return a sentence that explains the intervals."""
        intervals = f"{self.confidence:.0%} intervals, valid for all differences of a metric at once"
        rows = f"{intervals}, from {self.rows:,} {split} rows"
        if self.seeds > 1:
            return f"{rows} and {self.seeds} seeds"
        return f"{rows}; one seed, so they do not include the variation between trainings"


def measure_statistics(
    labels: NDArray[Any],
    weights: NDArray[Any] | None,
    models: Mapping[str, Sequence[str]],
    predictions: Callable[[str], NDArray[Any]],
    reference: str | None = None,
    confidence: float = CONFIDENCE,
) -> Statistics:
    """Compare models on the same rows: all pairs, or each one with a ``reference``.

    Each model has one run per seed; ``predictions`` returns the probabilities of a run.

    >>> labels = np.array([0, 1, 0, 1, 1, 0])
    >>> runs = {"a-0": np.array([0.2, 0.6, 0.4, 0.3, 0.8, 0.1]), "b-0": np.array([0.5, 0.6, 0.4, 0.3, 0.4, 0.2])}
    >>> measured = measure_statistics(labels, None, {"a": ["a-0"], "b": ["b-0"]}, runs.__getitem__)
    >>> measured.metrics["auc"].reference, measured.metrics["auc"].tied
    ('a', ['b'])
    """
    metrics = {}
    for name in INFLUENCES:
        estimates, runs = _estimate(name, labels, weights, models, predictions, confidence)
        metrics[name] = _compare(list(models), estimates, runs, HIGHER_IS_BETTER[name], reference, confidence)
    return Statistics(confidence, len(labels), min(map(len, models.values())), metrics)


def _estimate(
    metric: str,
    labels: NDArray[Any],
    weights: NDArray[Any] | None,
    models: Mapping[str, Sequence[str]],
    predictions: Callable[[str], NDArray[Any]],
    confidence: float,
) -> tuple[Estimates, dict[str, Interval]]:
    """Return the mean of each model over its seeds, and the intervals of the runs.

    The influences of a row are added up over seeds, so that the memory does not depend on the number of seeds.
    """
    influences = np.zeros((len(models), len(labels)))
    values: list[Floats] = []
    intervals: dict[str, Interval] = {}
    for mean, runs in zip(influences, models.values(), strict=True):
        of_runs = np.zeros(len(runs))
        for number, run in enumerate(runs):
            of_runs[number], influence = INFLUENCES[metric](labels, predictions(run), weights)
            single = Estimates(of_runs[number : number + 1], np.array([[influence @ influence]]))
            intervals[run] = single.interval(0, confidence)
            mean += influence / len(runs)
        values.append(of_runs)
    means = np.array([of_runs.mean() for of_runs in values])
    between = np.array([of_runs.var(ddof=1) / len(of_runs) if len(of_runs) > 1 else 0.0 for of_runs in values])
    return Estimates(means, influences @ influences.T, between, [len(runs) for runs in values]), intervals


def _compare(
    names: Sequence[str],
    estimates: Estimates,
    runs: dict[str, Interval],
    higher_is_better: bool,
    reference: str | None,
    confidence: float,
) -> MetricStatistics:
    """Compare all pairs, or all models with the reference."""
    best = int(np.argmax(estimates.values) if higher_is_better else np.argmin(estimates.values))
    compared = list(combinations(range(len(names)), 2))
    if reference is not None:
        best = names.index(reference)
        compared = [(model, best) for model in range(len(names)) if model != best]
    together = estimates.simultaneous(confidence, compared)
    pairs = []
    for model, baseline in compared:
        difference = estimates.difference(model, baseline)
        interval = difference.interval(together)
        pairs.append(PairDifference(names[model], names[baseline], difference.value, *interval, difference.p_value))
    models = {name: estimates.interval(index, confidence) for index, name in enumerate(names)}
    return MetricStatistics(names[best], models, runs, pairs)


class PredictionFiles:
    """The probabilities of each run on the same rows, one file per run in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, run: str) -> Path:
        """Return the file of a run."""
        return self.directory / f"{run}.npy"

    def save(self, run: str, probabilities: NDArray[np.float32]) -> None:
        """Write the probabilities of a run."""
        with write_errors(self.directory, "predictions"):
            self.directory.mkdir(parents=True, exist_ok=True)
            with atomic_file(self.path(run)) as partial, partial.open("wb") as file:
                np.save(file, probabilities)

    def load(self, run: str, rows: int) -> NDArray[np.float32] | None:
        """Return the probabilities of a run; None if they are missing or damaged."""
        try:
            probabilities = np.load(self.path(run), allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return probabilities if probabilities.shape == (rows,) and probabilities.dtype == np.float32 else None
