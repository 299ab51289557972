"""``fm2.rank_crosses``: rank pairs of fields by what their combinations add to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from typing import Any

from fm2.cpu import check_threads
from fm2.data.dataset import Dataset
from fm2.errors import Fm2Error
from fm2.field import CROSS_MIN_COUNT
from fm2.progress import Progress
from fm2.studies.crosses.residuals import CrossGain, Residuals, Watch

DEFAULT_ROWS = 1_000_000
EXTENDED_PAIRS = 10  # the best pairs, which triples extend
CHUNK = 32
LEAST_Z = 3.0
FALSE_RATE = 0.01  # the probability that a cross without any effect is significant, over all candidates


@dataclass(frozen=True)
class CrossRanking:
    """Crosses, the largest gain first. ``log_loss`` is that of the base model on the validation rows.

    A gain is significant if it is larger than ``least_z`` standard errors; the more crosses are tried, the larger the
    gains that chance alone produces.
    """

    crosses: list[CrossGain]
    log_loss: float
    model: str

    @property
    def least_z(self) -> float:
        """The number of standard errors that a significant gain has."""
        return max(LEAST_Z, NormalDist().inv_cdf(1 - FALSE_RATE / max(len(self.crosses), 1)))

    def is_significant(self, cross: CrossGain) -> bool:
        """Return whether a gain is larger than chance produces."""
        return cross.z > self.least_z

    def lines(self, top: int = 10) -> list[str]:
        """Return the lines of a table of the best crosses."""
        shown = self.crosses[:top]
        width = max([len(str(cross)) for cross in shown] + [5])
        table = [f"{'cross':<{width}} {'gain':>9} {'relative':>9} {'z':>6} {'combinations':>13} {'covered':>8}"]
        for cross in shown:
            scores = f"{cross.gain:>9.6f} {cross.gain / self.log_loss:>9.3%} {cross.z:>6.1f}"
            table.append(f"{cross!s:<{width}} {scores} {cross.combinations:>13,} {cross.covered:>8.1%}")
        significant = sum(map(self.is_significant, self.crosses))
        gains = f"gain: decrease of the validation log loss of {self.model}, {self.log_loss:.6f}"
        found = f"{significant} of {len(self.crosses)} crosses have more than {self.least_z:.1f} standard errors"
        return [*table, "", gains, found]


def rank_crosses(
    data: Dataset | str | Path,
    *,
    model: str = "lr",
    triples: bool = False,
    min_count: int = CROSS_MIN_COUNT,
    rows: int = DEFAULT_ROWS,
    seed: int = 0,
    threads: int = 0,
    progress: bool | None = None,
    watch: Watch = lambda step: None,
    **settings: Any,
) -> CrossRanking:
    """Rank all pairs of fields by how much crossing them would add to a model, measured on validation rows.

    Two base models are trained, each on one half of the training rows; ``settings`` are theirs. Their errors on the
    rows that they have not seen give a weight to each combination that occurs at least ``min_count`` times. The gain of
    a cross is the decrease of the log loss of the validation rows if these weights are added to the logits. With
    ``triples``, the best pairs are extended by every other field, and triples that gain more than their pairs are
    ranked as well. Gains are measured with at most ``rows`` training and validation rows; the base models use all.

    Multi-valued fields, interpolated and linear numbers, and crosses of the dataset are not crossed; the base model
    has them. ``watch`` is called with the name of each step.
    """
    dataset = Dataset.of(data)
    residuals = make_residuals(dataset, model, rows=rows, seed=seed, threads=threads, watch=watch, settings=settings)
    return rank_residuals(residuals, model, triples=triples, min_count=min_count, progress=progress)


def make_residuals(dataset: Dataset, model: str, *, rows: int, seed: int, threads: int, **others: Any) -> Residuals:
    """Check the options and train the base models."""
    check_threads("crosses", threads)
    if rows < 1:
        raise Fm2Error(f"crosses: rows must be at least 1, got {rows}")
    return Residuals(dataset, model, rows=rows, seed=seed, threads=threads, **others)


def rank_residuals(
    residuals: Residuals, model: str, *, triples: bool, min_count: int, progress: bool | None
) -> CrossRanking:
    """Measure all pairs, then the triples of the best ones."""
    if min_count < 1:
        raise Fm2Error(f"crosses: min_count must be at least 1, got {min_count}")
    if len(residuals.fields) < 2:
        raise Fm2Error("crosses: there are fewer than two fields that can be crossed")
    pairs = _untried(residuals, combinations(residuals.fields, 2))
    ranked = _measure(residuals, pairs, min_count, "ranking pairs", progress)
    if triples:
        gains = {frozenset(cross.fields): cross.gain for cross in ranked}
        best = [cross for cross in ranked[:EXTENDED_PAIRS] if cross.z > LEAST_Z]
        indices = {residuals.names[field]: field for field in residuals.fields}
        extended = {
            tuple(sorted({*(indices[name] for name in cross.fields), field}))
            for cross in best
            for field in residuals.fields
            if residuals.names[field] not in cross.fields
        }
        measured = _measure(residuals, _untried(residuals, sorted(extended)), min_count, "ranking triples", progress)
        better = [
            cross
            for cross in measured
            if cross.gain > max(gains.get(frozenset(pair), 0.0) for pair in combinations(cross.fields, 2))
        ]
        ranked = sorted([*ranked, *better], key=lambda cross: -cross.gain)
    return CrossRanking(ranked, residuals.log_loss, model)


def _untried(residuals: Residuals, crosses: Any) -> list[tuple[int, ...]]:
    """Leave out the crosses that the dataset already has."""
    return [parts for parts in crosses if frozenset(residuals.names[part] for part in parts) not in residuals.known]


def _measure(
    residuals: Residuals, crosses: Sequence[tuple[int, ...]], min_count: int, title: str, shown: bool | None
) -> list[CrossGain]:
    measured: list[CrossGain] = []
    with Progress(title, len(crosses), shown, unit="crosses") as progress:
        for start in range(0, len(crosses), CHUNK):
            measured += residuals.measure(crosses[start : start + CHUNK], min_count)
            progress.update(len(measured), len(measured))
    return sorted(measured, key=lambda cross: -cross.gain)
