"""``fm2.compile``: a run's best model becomes one file that scores without torch."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fm2.compression import spectrum
from fm2.compression.spectrum import Moments
from fm2.compression.weights import Floats, Weights, read_weights
from fm2.data.dataset import Dataset
from fm2.engine import plans
from fm2.engine.encoder_sections import encoder_sections
from fm2.engine.model_file import BEGINS, new_model
from fm2.engine.plans import Dtype, Plan
from fm2.engine.scorer import load
from fm2.errors import Fm2Error
from fm2.evaluation.evaluate import id_map, map_ids
from fm2.files import check_replaceable, write_errors

PlanName = Literal["auto", "direct", "cached", "spectral"]
MEASURED_ROWS = 5000
DEFAULT_MEMORY, DEFAULT_RANK = 4e9, 16


@dataclass(frozen=True)
class Compiled:
    """What was written: where, by which plan, how large, and the largest difference that rounding made to a number.

    ``measured`` tells the median microseconds of a prediction by each plan that was tried. ``lost`` tells, of the
    spectral plan, how far the logits of some rows are from the exact ones: as a root mean square, and at most.
    """

    path: Path
    plan: str
    bytes: int
    error: float
    measured: dict[str, float] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)


def compile(
    run: str | Path,
    out: str | Path,
    *,
    plan: PlanName = "auto",
    rank: int | None = None,
    dtype: Dtype = "f32",
    memory: float = DEFAULT_MEMORY,
    data: Dataset | str | Path | None = None,
    watch: Callable[[str], None] = lambda doing: None,
) -> Compiled:
    """Compile the best model of a run into one file; a compiled model that is there already is replaced as a whole.

    ``plan`` is how FwFM, FvFM and FmFM are scored. ``direct`` applies field matrices to embeddings. ``cached`` looks
    the products up (sections 4.2 and 4.3 of the paper), of as many features as fit into ``memory`` bytes. ``spectral``
    cuts the field matrices at a ``rank`` (16), where the training rows of ``data`` lie if given; it is not exact, and
    how far it is from that is measured, on validation rows of the data, or on rows drawn by the features' frequencies.
    ``auto`` tries the exact ones here, on rows drawn by the features' frequencies, and takes the quickest. ``watch`` is
    told what comes next.
    """
    for name, value, choices in (("plan", plan, get_args(PlanName)), ("dtype", dtype, get_args(Dtype))):
        if value not in choices:
            raise Fm2Error(f"compile: the {name} is '{value}'; it is one of {', '.join(choices)}")
    for name, given in (("data", data), ("rank", rank)):
        if given is not None and plan != "spectral":
            raise Fm2Error(f"compile: the {name} is for the plan spectral, and the plan is {plan}")
    if not memory >= 0:  # what is no number is not
        raise Fm2Error(f"compile: the memory is {memory:,.0f} bytes; it is 0 or more")
    out = Path(out)
    check_replaceable(out, "compile", "compiled model", BEGINS)
    watch("reading the model")
    weights = read_weights(run)
    if plan == "spectral":
        rank = DEFAULT_RANK if rank is None else rank
        spectrum.check_rank(weights, rank)
        watch("cutting the spectrum")
        training, others = _known_rows(weights, Path(run), data)
        moments = None if training is None else spectrum.measure_moments(weights, training)
        compiled = write(weights, spectral_plan(weights, rank, dtype, moments), out)
        return replace(compiled, lost=_lost(weights, out, others))
    best, measured = choose(weights, out.parent, plan, dtype, memory, watch)
    watch(f"writing {best.title}")
    return write(weights, best, out, measured)


def choose(
    weights: Weights,
    folder: Path,
    plan: PlanName = "auto",
    dtype: Dtype = "f32",
    memory: float = DEFAULT_MEMORY,
    watch: Callable[[str], None] = lambda doing: None,
) -> tuple[Plan, dict[str, float]]:
    """Choose among the exact plans: the quickest here, tried in a folder; tell the microseconds of each as well."""
    candidates = list(_candidates(weights, plan, dtype, memory))
    measured = {}
    for candidate in candidates if len(candidates) > 1 else ():
        watch(f"trying {candidate.title}")
        measured[candidate.title] = _measure(weights, candidate, folder)
    return min(candidates, key=lambda candidate: measured.get(candidate.title, 0.0)), measured


def write(weights: Weights, plan: Plan, out: Path, measured: dict[str, float] | None = None) -> Compiled:
    """Write a model by a plan."""
    meta = {
        "model": weights.config,
        "schema": weights.schema.to_dict(),
        "metrics": weights.metrics,
        "plan": plan.title,
        "measured": measured or {},
    }
    described = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with new_model(out, {**plan.sections, **encoder_sections(weights), "meta": described}) as parts:
        error = plan.write_rows(parts["rows"])
    return Compiled(out, plan.title, out.stat().st_size, error, measured or {})


def _candidates(weights: Weights, plan: PlanName, dtype: Dtype, memory: float) -> Iterator[Plan]:
    """Give the exact plans that the model has, of those that are asked for."""
    single = {"sums": plans.sums, "embedding_sum": plans.machine, "field_aware": plans.partners}
    if weights.spec.compile_plan in single:
        yield single[weights.spec.compile_plan](weights, dtype)
    else:
        orders = dict(plans.orders(weights))
        if plan in ("auto", "direct"):
            order = orders["by size"]
            yield plans.prefixes(weights, order, [0] * len(order), dtype, "direct")
        for name, order in orders.items():
            if plan in ("auto", "cached"):
                cached = plans.affordable(weights, order, dtype, memory)
                share = sum(cached) / sum(weights.sizes)
                yield plans.prefixes(weights, order, cached, dtype, f"cached {name}, {share:.0%} of the features")


def _known_rows(
    weights: Weights, run: Path, data: Dataset | str | Path | None
) -> tuple[NDArray[np.int32] | None, NDArray[np.int32]]:
    """Give training rows, if there is a data set, and others to measure with; without one, these are drawn."""
    if data is None:
        return None, draw_rows(weights, MEASURED_ROWS)
    dataset = data if isinstance(data, Dataset) else Dataset.open(data)
    ours = id_map(weights, dataset, run)
    training = map_ids(spectrum.some_rows(dataset.train.ids), ours)
    others = map_ids(np.asarray(dataset.validation.ids[:MEASURED_ROWS]), ours)
    return training, others if len(others) else training[:MEASURED_ROWS]


def spectral_plan(weights: Weights, rank: int, dtype: Dtype = "f32", moments: Moments | None = None) -> Plan:
    """Plan a cut spectrum, where the rows of such moments lie if they are given."""
    found = spectrum.cut(weights, rank, moments)

    def features(field: int, some: slice) -> tuple[Floats, Floats]:
        return found.features(weights, field, some)

    moved = replace(weights, bias=weights.bias + found.constant)
    return plans.pairs(moved, features, found.signs, dtype, f"spectral, rank {rank}")


def _lost(weights: Weights, compiled: Path, ids: NDArray[np.int32]) -> dict[str, float]:
    """Tell how far the logits of a compiled model are from the exact ones."""
    far = load(compiled, verify=False).logits(ids) - spectrum.exact_logits(weights, ids)
    return {"mean": float(np.sqrt(np.mean(np.square(far, dtype=np.float64)))), "most": float(np.abs(far).max())}


def _measure(weights: Weights, plan: Plan, folder: Path) -> float:
    """Give the median microseconds of a prediction, of a file that is written for it and removed again."""
    with write_errors(folder, "compile"):
        room = tempfile.TemporaryDirectory(dir=folder)
    with room as name:
        scorer = load(write(weights, plan, Path(name) / "model.fm2").path, verify=False)
        ids = draw_rows(weights, MEASURED_ROWS)
        for _ in range(2):  # the second time its pages are there
            times = scorer.time(ids)
    return float(np.median(times)) * 1e6


def draw_rows(weights: Weights, rows: int, seed: int = 0) -> NDArray[np.int32]:
    """Draw rows of ids, each field by the frequencies of its features."""
    random = np.random.default_rng(seed)
    columns = []
    for place in range(len(weights.sizes)):
        sums = np.cumsum(weights.counts(place), dtype=np.float64)
        columns.append(np.searchsorted(sums, random.random(rows) * sums[-1], side="right"))
    return np.ascontiguousarray(np.stack(columns, axis=1), dtype=np.int32)
