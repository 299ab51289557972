"""The table and the targets of one log of the panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

import fm2
from fm2.evaluation import metrics
from fm2.evaluation.significance import Difference, Estimates, auc_estimates, log_loss_estimates
from fm2.models.registry import model_names
from panel_fits import Fitted
from targets import Target

AUC_LIMIT = 1.0  # thousandths that fm2 may be behind
LOG_LOSS_LIMIT = 0.5
ROUNDING = 0.1
NOISE = 1.96  # standard errors


@dataclass(frozen=True)
class Report:
    """All models fitted on one log: fm2's with one or more seeds each, and the peers.

    If the ``truth`` is known, the metrics of the test rows are expected values under these click probabilities. A click
    that was drawn from them hardly tells good models apart: 50,000 rows with 0.5% clicks have 250.
    """

    dataset: fm2.Dataset
    models: dict[str, list[Fitted]]
    peers: list[Fitted]
    truth: NDArray[np.float64] | None = None

    @cached_property
    def names(self) -> list[str]:
        """The models and peers, in the order of the estimates."""
        return [*self.models, *(peer.name for peer in self.peers)]

    @cached_property
    def groups(self) -> list[list[Fitted]]:
        """The fits of each name."""
        return [*self.models.values(), *([peer] for peer in self.peers)]

    @cached_property
    def labels(self) -> NDArray[np.generic]:
        """The labels of the test rows, or their true click probabilities if these are known."""
        test = self.dataset.test
        return test.labels if self.truth is None else self.truth[test.rows]

    @cached_property
    def auc(self) -> Estimates:
        """The test AUC of each name: the mean over its seeds."""
        return self._estimates(auc_estimates(self.labels, self._tests(), self.dataset.test.weights))

    @cached_property
    def log_loss(self) -> Estimates:
        """The test log loss of each name: the mean over its seeds."""
        return self._estimates(log_loss_estimates(self.labels, self._tests(), self.dataset.test.weights))

    @cached_property
    def validation(self) -> list[float]:
        """The validation log loss of each name: the mean over its seeds."""
        labels, weights = self.dataset.validation.labels, self.dataset.validation.weights
        losses = [[metrics.log_loss(labels, fit.validation, weights) for fit in group] for group in self.groups]
        return [float(np.mean(each)) for each in losses]

    def _tests(self) -> list[NDArray[np.floating]]:
        return [fit.test for group in self.groups for fit in group]

    def _estimates(self, of_fits: Estimates) -> Estimates:
        ends = np.cumsum([len(group) for group in self.groups])
        return of_fits.averages([range(end - len(group), end) for end, group in zip(ends, self.groups, strict=True)])

    def best(self, names: Sequence[str], by: Sequence[float] | NDArray[np.float64]) -> str:
        """Return the name with the lowest value of ``by``, which has a value for each of the report's names."""
        return min(names, key=lambda name: by[self.names.index(name)])

    @cached_property
    def best_peer(self) -> str:
        """The peer with the lowest log loss of the test rows, or the best model if there are no peers."""
        return self.best([peer.name for peer in self.peers] or list(self.models), self.log_loss.values)

    def difference(self, estimates: Estimates, name: str, baseline: str) -> Difference:
        """Return how much higher a metric of ``name`` is than that of ``baseline``."""
        return estimates.difference(self.names.index(name), self.names.index(baseline))

    def print_table(self) -> None:
        """Print the models by log loss of the test rows, with differences to the best peer in thousandths."""
        heading = f"{'':5}{'model':18}{'AUC':>8}{'log loss':>10}{'validation':>12}"
        heading += f"{'AUC − ' + self.best_peer:>28}{'log loss − ' + self.best_peer:>28}"
        print(f"{heading}{'seconds':>9}{'CPU':>8}{'threads':>9}")
        for rank, index in enumerate(np.argsort(self.log_loss.values), 1):
            name, group = self.names[index], self.groups[index]
            line = f"{rank:3}  {name:18}{self.auc.values[index]:8.4f}{self.log_loss.values[index]:10.5f}"
            line += f"{self.validation[index]:12.5f}"
            for estimates in (self.auc, self.log_loss):
                line += f"{_interval(self.difference(estimates, name, self.best_peer)):>28}"
            seconds, cpu_seconds = (np.mean([getattr(f, key) for f in group]) for key in ("seconds", "cpu_seconds"))
            last = "  LAST EPOCH" if any(fit.at_last_epoch for fit in group) else ""
            print(f"{line}{seconds:9.1f}{cpu_seconds:8.1f}{group[0].threads:9}  {group[0].note}{last}")
        if self.truth is not None:
            best = metrics.evaluate(self.labels, self.labels, self.dataset.test.weights)
            print(f"     {'true probability':18}{best['auc']:8.4f}{best['log_loss']:10.5f}")
            print("     AUC and log loss of the test rows are expected values under the true probabilities")

    def targets(self) -> list[Target]:
        """Compare the model that validation rows select with the best peer on test rows; compare FmFM with others."""
        chosen, lowest = (self.best(list(self.models), by) for by in (self.validation, self.log_loss.values))
        shallow = [name for name in model_names(deep=False) if name in self.models]
        peers = [peer.name for peer in self.peers]
        best_auc = self.best(peers, -self.auc.values) if peers else ""
        best_shallow = self.best(shallow, -self.auc.values) if shallow else ""
        last = sum(fit.at_last_epoch for group in self.models.values() for fit in group)
        return [
            Target(f"{chosen}: AUC behind {best_auc or 'peers'}", self._behind(best_auc, chosen), at_most=AUC_LIMIT),
            Target(
                f"{chosen}: log loss behind {self.best_peer}",
                self._more_loss(chosen, self.best_peer) if peers else None,
                at_most=LOG_LOSS_LIMIT,
            ),
            Target(f"{lowest}, best on test: log loss behind", self._more_loss(lowest, self.best_peer)),
            Target(f"fmfm: AUC behind {best_shallow}", self._behind(best_shallow, "fmfm"), at_most=AUC_LIMIT),
            *(
                Target(f"fmfm: log loss above {other}, standard errors", self._errors("fmfm", other), at_most=NOISE)
                for other in ("fwfm", "lr")
            ),
            Target("lr: log loss behind scikit-learn LR", self._more_loss("lr", "scikit-learn LR"), at_most=ROUNDING),
            Target("fits with the best epoch in the last one", last, at_most=0),
            Target(f"{chosen}: CPU seconds / CatBoost's", self._time_ratio(chosen, "CatBoost"), at_most=1),
        ]

    def _behind(self, leader: str, name: str) -> float | None:
        """Return by how many thousandths the AUC of ``name`` is below that of the leader."""
        known = {leader, name} <= set(self.names)
        return 1e3 * self.difference(self.auc, leader, name).value if known else None

    def _more_loss(self, name: str, leader: str) -> float | None:
        known = {leader, name} <= set(self.names)
        return 1e3 * self.difference(self.log_loss, name, leader).value if known else None

    def _errors(self, name: str, other: str) -> float | None:
        if not {name, other} <= set(self.names):
            return None
        difference = self.difference(self.log_loss, name, other)
        return difference.value / difference.standard_error if difference.standard_error else 0.0

    def _time_ratio(self, name: str, peer: str) -> float | None:
        if not {name, peer} <= set(self.names):
            return None
        a, b = (np.mean([fit.cpu_seconds for fit in self.groups[self.names.index(each)]]) for each in (name, peer))
        return float(a / b)


def _interval(difference: Difference) -> str:
    """Format thousandths with their 95% confidence interval."""
    low, high = difference.interval()
    return f"{1e3 * difference.value:+.2f} [{1e3 * low:+.2f}, {1e3 * high:+.2f}]"
